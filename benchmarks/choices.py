"""Leave-one-data-set-out choice of the estimator's constants: the value chosen, and what it costs.

    python benchmarks/choices.py --data DIR [--seeds 201,202]

Constants of the estimator that were chosen on streams are varied one at a time: half of the shipped
value, the value, its double. Every value is run on groupings of ``groupings.py`` at ε = 1 and 4
with a client and with a person as unit. For each data set, the value with the best mean score on
the groupings of all *other* data sets is chosen, and compared with the shipped one on the left-out
groupings. Scores are stored in runs/choices.json by seed, so that a run can be resumed; the table
goes into docs/transfer.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np
from groupings import GROUPINGS
from transfer import PUBLIC, score

from cslr.config import load_config, with_settings
from cslr.protocol import public_space, step5_rehearse
from cslr.protocol.step4_aggregate import contribution
from cslr.runs.embedded import EmbeddedStream, embed_stream, settle

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "runs" / "choices.json"
PAGE: Final = ROOT / "docs" / "transfer.md"
BEGIN, END = "<!-- choices:begin (written by `benchmarks/choices.py`) -->", "<!-- choices:end -->"
CELLS: Final = tuple((unit, epsilon) for unit in ("client", "person") for epsilon in (1.0, 4.0))
FACTORS: Final = (0.5, 1.0, 2.0)
DATA_SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "desk": ("desk",),
    "clinic": ("clinic",),
    "reviews": ("moods by product",),
    "dialogues": ("services", "intents"),
    "news": ("news",),
}
"""Groupings by the data set that their rows come from."""


@dataclass(frozen=True)
class Constant:
    """A number that was chosen on streams."""

    meaning: str
    module: ModuleType
    name: str
    only: tuple[str, ...] = ()
    """The groupings that it affects; empty: all."""
    units: tuple[str, ...] = ("client", "person")
    """The units of privacy for which it has an effect."""

    @property
    def shipped(self) -> float:
        """Its value in the source."""
        return float(getattr(self.module, self.name))

    @contextmanager
    def times(self, factor: float) -> Iterator[None]:
        """The constant multiplied by a factor, inside a with block."""
        shipped = getattr(self.module, self.name)
        setattr(self.module, self.name, factor * shipped)
        try:
            yield
        finally:
            setattr(self.module, self.name, shipped)


CONSTANTS: Final = (
    Constant("how far public sentences count", public_space, "SENTENCES_HALF"),
    Constant("when a matrix is sent", contribution, "MOST_NOISE", units=("person",)),
    Constant("how far a head is held to the free rule", step5_rehearse, "TRUST_HALF"),
    Constant("what the free rule is made of", step5_rehearse, "CLEAR_HALF"),
    Constant("distance of modes", step5_rehearse, "OVERLAP"),
    Constant("share of an intent", step5_rehearse, "INTENT_SHARES", only=("intents", "desk")),
)

Key = tuple[str, float, str, str, float, int]  # constant, factor, grouping, unit, ε, seed
Scores = dict[Key, float]


def kept() -> Scores:
    """The scores that were measured so far."""
    rows = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    return {
        (name, f, grouping, unit, eps, seed): s for name, f, grouping, unit, eps, seed, s in rows
    }


def keep(scores: Scores) -> None:
    """Store the scores."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    rows = [[*key, value] for key, value in scores.items()]
    KEPT.write_text(json.dumps(rows), encoding="utf-8")


def keys_of(grouping: str, seed: int) -> list[tuple[Constant | None, Key]]:
    """All runs of a grouping with a seed; the run with the shipped values has no constant."""
    found: list[tuple[Constant | None, Key]] = [
        (None, ("", 1.0, grouping, unit, epsilon, seed)) for unit, epsilon in CELLS
    ]
    for constant in CONSTANTS:
        if constant.only and grouping not in constant.only:
            continue
        found += [
            (constant, (constant.name, factor, grouping, unit, epsilon, seed))
            for factor in FACTORS
            if factor != 1.0
            for unit, epsilon in CELLS
            if unit in constant.units
        ]
    return found


def measure(grouping: str, embedded: EmbeddedStream, seed: int, scores: Scores) -> None:
    """Run the missing cells of a grouping."""
    base = load_config(None, {"stream.name": "clinic", "seeds": (seed,)})
    for constant, key in keys_of(grouping, seed):
        if key in scores:
            continue
        _, factor, _, unit, epsilon, _ = key
        settings = {"method": "cslr", "privacy.unit": unit, "privacy.epsilon": epsilon}
        settled = settle(with_settings(base, settings))
        if constant is None:
            scores[key] = score(settled, embedded, (seed,))
        else:
            with constant.times(factor):
                scores[key] = score(settled, embedded, (seed,))
        keep(scores)


def embedded_of(grouping: str, data: Path) -> EmbeddedStream:
    """The embedded stream of a grouping."""
    base = load_config(None, {"stream.name": "clinic", "seeds": (201,)})
    stream = GROUPINGS[grouping](data)
    stream = replace(stream, public=stream.public[:PUBLIC])
    return embed_stream(stream, base, time.perf_counter(), progress=False)


# -- leaving a data set out ------------------------------------------------------------------------


def gains(scores: Scores, constant: Constant, factor: float, grouping: str) -> list[float]:
    """Points gained over the shipped value, by cell and seed; zero where it has no effect."""
    found = []
    for key, shipped in scores.items():
        name, _, where, unit, epsilon, seed = key
        if name or where != grouping:
            continue
        other = scores.get((constant.name, factor, grouping, unit, epsilon, seed), shipped)
        found.append(other - shipped)
    return found


def mean_gain(scores: Scores, constant: Constant, factor: float, names: list[str]) -> float:
    """Mean over groupings of the mean over cells and seeds."""
    return float(np.mean([np.mean(gains(scores, constant, factor, name)) for name in names]))


def measured(scores: Scores) -> dict[str, list[str]]:
    """The groupings of each data set of which there are scores."""
    seen = {key[2] for key in scores}
    sets = {name: [each for each in some if each in seen] for name, some in DATA_SETS.items()}
    return {name: some for name, some in sets.items() if some}


def without(scores: Scores, constant: Constant, data_set: str) -> tuple[float, float]:
    """The factor that all other data sets choose, and what it gains on this one, in points."""
    sets = measured(scores)
    others = [name for other, some in sets.items() if other != data_set for name in some]
    by_factor = {factor: mean_gain(scores, constant, factor, others) for factor in FACTORS}
    best = max(FACTORS, key=lambda factor: (by_factor[factor], factor == 1.0))
    return best, mean_gain(scores, constant, best, sets[data_set])


def chance(scores: Scores, constant: Constant, factor: float, names: list[str]) -> float:
    """Standard error of ``mean_gain``, from the spread over cells and seeds."""
    each = [gains(scores, constant, factor, name) for name in names]
    errors = [np.var(some, ddof=1) / len(some) for some in each]
    return float(np.sqrt(np.sum(errors)) / len(names))


def table(scores: Scores) -> list[str]:
    """The lines between the markers."""
    sets = measured(scores)
    columns = ["constant", "shipped", "half / double, all", *[f"without {name}" for name in sets]]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lost, made = [], 0
    for constant in CONSTANTS:
        some = [name for names in sets.values() for name in names]
        halves = " / ".join(f"{mean_gain(scores, constant, f, some):+.2f}" for f in (0.5, 2.0))
        cells = []
        for data_set, names in sets.items():
            if constant.only and not set(names) & set(constant.only):
                cells.append("–")  # plays no part
                continue
            made += 1
            factor, gain = without(scores, constant, data_set)
            if factor == 1.0:
                cells.append("same")
                continue
            error = chance(scores, constant, factor, names)
            cells.append(f"{factor * constant.shipped:g}: {gain:+.2f} ± {error:.2f}")
            lost.append(gain)
        name = f"{constant.meaning} (`{constant.name}`)"
        lines.append(f"| {' | '.join([name, f'{constant.shipped:g}', halves, *cells])} |")
    seeds = ", ".join(map(str, sorted({key[-1] for key in scores})))
    rows = "; ".join(name for names in sets.values() for name in names)
    return [
        *lines,
        "",
        f"Groupings: {rows}. Seeds {seeds}; client and person, ε = 1 and 4.",
        f"Without a data set {len(lost)} of {made} choices differ from the shipped value; on the "
        "data set left out",
        f"they gain {np.mean(lost) if lost else 0.0:+.2f} points on average, from "
        f"{min(lost, default=0.0):+.2f} to {max(lost, default=0.0):+.2f}.",
    ]


def write(scores: Scores) -> None:
    """The block of docs/transfer.md."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    block = "\n".join([BEGIN, *table(scores), END])
    PAGE.write_text(before + block + rest.split(END)[1], encoding="utf-8")


def main() -> None:
    """Measure what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="201,202")
    asked = parser.parse_args()
    scores = kept()
    for seed in map(int, filter(None, asked.seeds.split(","))):
        for grouping in (name for some in DATA_SETS.values() for name in some):
            if all(key in scores for _, key in keys_of(grouping, seed)):
                continue
            started = time.process_time()
            measure(grouping, embedded_of(grouping, asked.data), seed, scores)
            print(f"{grouping}, seed {seed}: {time.process_time() - started:.0f} CPU s", flush=True)
    write(scores)
    print("\n".join(table(scores)))


if __name__ == "__main__":
    main()

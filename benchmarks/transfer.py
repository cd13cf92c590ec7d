"""Whether CSLR is ever worse than zero-shot, on other streams than the reported ones.

    python benchmarks/transfer.py --data DIR [--only "news;intents"]

Runs CSLR with default settings on every grouping of ``groupings.py``, at ε = 1, 4 and 8, with a
client and with a person as unit, and for people without noise, seeds 101 and 102. For comparison:
zero-shot, pooled training, and DP-Joint for people at ε = 4, a trusted curator who pools all rows.
A cell below zero-shot − 0.5 is marked ``!``; the program then ends with exit code 1. Unrounded
scores are stored in transfer.json, and the table in docs/transfer.md is made of all of them. A
stored grouping is measured again only if ``--only`` names it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from groupings import GROUPINGS

from cslr.config import Config, load_config, with_settings
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, embed_stream, settle
from cslr.runs.measure import figures_of
from cslr.runs.prepare import context_of, ledger_of, plan_of, population_of, with_head

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = Path(__file__).with_suffix(".json")
BEGIN, END = (
    "<!-- transfer:begin (written by `benchmarks/transfer.py`) -->",
    "<!-- transfer:end -->",
)
SEEDS: Final = (101, 102)
CELLS: Final = tuple(product(("client", "person"), (1.0, 4.0, 8.0)))
PUBLIC: Final = 4_000
"""Public sentences of which spaces are built: fewer than for reported streams, to save time."""
ALLOWED: Final = 0.5
"""Points below zero-shot that may be due to chance."""


@dataclass(frozen=True)
class Outcome:
    """One grouping, mean scores in %."""

    name: str
    labels: int
    tasks: int
    clients: int
    people: int
    zero_shot: float
    pooled: float
    curator: float | None
    """DP-Joint, person, ε = 4; None: not measured yet."""
    noiseless: float | None
    """CSLR, person, ε = ∞; None: not measured yet."""
    cells: dict[tuple[str, float], float]

    def keep(self) -> None:
        """Store it with the others."""
        every = {**self.kept(), self.name: self}
        rows = [
            {**asdict(each), "cells": [[*cell, score] for cell, score in each.cells.items()]}
            for each in (every[name] for name in GROUPINGS if name in every)
        ]
        KEPT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def kept(cls) -> dict[str, Outcome]:
        """All stored outcomes, by name."""
        found = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
        return {
            each["name"]: cls(
                **{**each, "cells": {(unit, epsilon): s for unit, epsilon, s in each["cells"]}}
            )
            for each in found
        }

    def below(self) -> list[tuple[str, float]]:
        """Cells in which training on clients made the score worse than zero-shot."""
        return [cell for cell, score in self.cells.items() if score < self.zero_shot - ALLOWED]

    def closed(self, score: float | None) -> str:
        """Share of the gap from zero-shot to pooled training that a score closes, in %."""
        if score is None:
            return "–"
        return f"{100 * (score - self.zero_shot) / (self.pooled - self.zero_shot):.0f}"

    def row(self) -> str:
        """The outcome as a row in Markdown."""
        sizes = f"{self.labels} / {self.tasks} / {self.clients} / {self.people:,}"
        below = self.below()
        cells = [f"{score:.1f}{' !' * (cell in below)}" for cell, score in self.cells.items()]
        compared = (self.cells["person", 4.0], self.curator, self.noiseless)
        closed = " / ".join(map(self.closed, compared))
        ends = [told(score) for score in (self.noiseless, self.curator, self.pooled)]
        columns = [self.name, sizes, f"{self.zero_shot:.1f}", *cells, *ends, f"{closed} %"]
        return f"| {' | '.join(columns)} |"


def told(score: float | None) -> str:
    """A score as the table shows it."""
    return "–" if score is None else f"{score:.1f}"


def score(settled: SettledConfig, embedded: EmbeddedStream, seeds: tuple[int, ...]) -> float:
    """Mean over seeds of the average score after the last task, in %."""
    settled = with_head(settled, embedded.stream)
    stream = embedded.stream
    tasks, means = len(stream.tasks), []
    plan = plan_of(settled, tasks, stream.cap, stream.tasks_per_person)
    for seed in seeds:
        population = population_of(settled.config, embedded, seed)
        with tempfile.TemporaryDirectory() as folder:
            directory = RunDirectory(Path(folder) / "run", settled.given)
            directory.begin()
            with ledger_of(settled, seed, directory) as ledger:
                context = context_of(settled, embedded, population, seed, plan, ledger, directory)
                *_, last = settled.method.stages(context)
                scenario = embedded.stream.scenario(None)
                figures = figures_of(embedded, context, scenario, last(), tasks)
        means.append(100 * float(np.mean(figures["scores"])))
    return float(np.mean(means))


def outcome(name: str, embedded: EmbeddedStream, base: Config) -> Outcome:
    """All cells of one grouping."""

    def of(method: str, unit: str, epsilon: float, seeds: tuple[int, ...]) -> float:
        settings = {"method": method, "privacy.unit": unit, "privacy.epsilon": epsilon}
        return score(settle(with_settings(base, settings)), embedded, seeds)

    stream = embedded.stream
    return Outcome(
        name,
        len(stream.labels),
        len(stream.tasks),
        stream.clients,
        stream.registered_people,
        of("zero-shot", "client", 4.0, SEEDS[:1]),
        of("joint", "client", 4.0, SEEDS[:1]),
        of("dp-joint", "person", 4.0, SEEDS),
        of("cslr", "person", math.inf, SEEDS),
        {cell: of("cslr", *cell, SEEDS) for cell in CELLS},
    )


def rows_of(what: str, outcomes: list[Outcome]) -> list[str]:
    """A table in Markdown; ``what`` names its first column."""
    head = [f"{unit}, ε = {epsilon:g}" for unit, epsilon in CELLS]
    columns = [what, "labels / tasks / clients / people", "zero-shot", *head]
    columns += ["person, no noise", "DP-Joint, person, ε = 4", "pooled"]
    columns += ["gap closed: CSLR / DP-Joint (person, ε = 4) / no noise"]
    rule = "|---" * len(columns) + "|"
    return [f"| {' | '.join(columns)} |", rule, *[each.row() for each in outcomes]]


def table(outcomes: list[Outcome]) -> str:
    """The Markdown between the markers."""
    whole = {each.name for each in outcomes if each.curator is not None}
    missing = [name for name in GROUPINGS if name not in whole]
    note = ["", f"Not measured with the code as it is: {'; '.join(missing)}."] if missing else []
    return "\n".join([BEGIN, *rows_of("grouping", outcomes), *note, END])


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    named = [name for name in asked.only.split(";") if name]
    whole = {name for name, each in Outcome.kept().items() if each.curator is not None}
    for name in named or [name for name in GROUPINGS if name not in whole]:
        started = time.perf_counter()
        base = load_config(None, {"stream.name": "clinic", "seeds": SEEDS})
        stream = GROUPINGS[name](asked.data)
        stream = replace(stream, public=stream.public[:PUBLIC])
        embedded = embed_stream(stream, base, started, progress=True)
        found = replace(outcome(name, embedded, base), name=name)
        found.keep()
        print(found.row(), f"{time.perf_counter() - started:.0f} s", flush=True)
    kept = Outcome.kept()
    outcomes = [kept[name] for name in GROUPINGS if name in kept]
    page = ROOT / "docs" / "transfer.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(head + table(outcomes) + rest.split(END)[1], encoding="utf-8")
    return 1 if any(each.below() for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

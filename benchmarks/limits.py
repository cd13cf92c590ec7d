"""Is accuracy limited by the release or by its estimator? Estimators chosen in hindsight show it.

    python benchmarks/limits.py --data DIR

The modes are estimated from the same releases in many ways ("readings"): with different weights of
label texts for the contrast of labels, different weights of the released sums for what modes have
in common and for their differences, in different directions, and at different distances of the
modes for the head. The best way is chosen by its score on the very rows it is scored on. Reported
scores must not be obtained like that, so this is an upper bound for estimators of this kind. The
same is done with the true means, as if there were no noise. Rows are held-out train rows. The table
goes into docs/limits.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from rich.progress import track

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config, load_config
from cslr.files import write_atomic
from cslr.methods.cslr import agree
from cslr.methods.method import MethodContext
from cslr.methods.registry import method_named
from cslr.protocol.public_space import Modes, PublicSpace
from cslr.protocol.round import Session
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, load_embedded
from cslr.runs.measure import score
from cslr.runs.prepare import context_of, ledger_of, plan_of, population_of

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- limits:begin (written by `make limits`) -->", "<!-- limits:end -->"
SEEDS = (101, 102, 103, 104)
CELLS = (
    ("ag-news", 20),
    ("ag-news", 100),
    ("amazon", 50),
    ("amazon", 250),
    ("multiwoz", 40),
    ("multiwoz", 200),
)
"""Streams and clients: the paper's number and five times as many."""
CONTRASTS = (1.0, 0.5)
"""β: the weight of label texts."""
MIDDLES = ((0.0, 0.0), (0.3, 0.0), (0.6, 0.0), (1.0, 0.0), (0.5, 0.5))
"""The weight of released means for what modes have in common, and the exponent of the public
topics' spectrum by which that weight differs between directions."""
FLATNESS = (0.0, 0.5, 1.0)
"""The same exponent for the differences between modes."""
TRUSTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""The weight of released means for the differences between modes."""
PLACES = ("public centre", "middle", "as they are")
"""The point from which the modes of a task are moved to equal distances; or they are not moved."""
Reading = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """One seed: what was released, and what is needed to estimate modes in other ways."""

    embedded: EmbeddedStream
    space: PublicSpace
    modes: Modes
    replay: Replay  # as CSLR reads it
    observed: FloatArray  # (K, r) means from the sums alone

    @property
    def domains(self) -> bool:
        """Whether tasks share labels, which are then separated around each task's centre."""
        return bool(self.replay.centre.any())

    @cached_property
    def prior(self) -> FloatArray:
        """(K, r) the prototypes."""
        return self.modes.prototypes.mean[self.replay.labels]

    @cached_property
    def true(self) -> FloatArray:
        """(K, r) the means of all rows of all clients, without clipping and noise."""
        train = self.embedded.train
        x = self.space.into(train.z.astype(np.float64))
        pairs = zip(self.replay.tasks, self.replay.labels, strict=True)
        return np.stack(
            [x[(train.tasks == task) & (train.labels == k)].mean(axis=0) for task, k in pairs]
        )

    @cached_property
    def _whitened(self) -> tuple[FloatArray, FloatArray]:
        """The precision of a mode (r, r), and the test rows times it."""
        precision = np.linalg.inv(self.space.shape[: self.space.dimension, : self.space.dimension])
        return precision, self.space.into(self.embedded.test.z.astype(np.float64)) @ precision

    def readings(self, means: FloatArray) -> Iterator[tuple[Reading, FloatArray]]:
        """Estimates of the modes from means (K, r), each with its settings."""
        middle, topics = self.prior.mean(axis=0), self.space.between[: self.space.dimension]
        topics = topics / topics.max()
        everywhere = np.zeros_like(self.replay.tasks)
        for settings in product(CONTRASTS, MIDDLES, FLATNESS, TRUSTS):
            contrast, (common, level), flat, trust = settings
            texts = middle + contrast * (self.prior - middle)
            beyond = means - texts
            shared = averaged(beyond, self.replay.tasks if self.domains else everywhere)
            own = averaged(beyond - shared, self.replay.labels)
            yield settings, texts + common * topics**level * shared + trust * topics**flat * own

    def score_of(self, mean: FloatArray, place: str) -> float:
        """AA of the best linear rule for these means (K, r) of the modes."""
        precision, rows = self._whitened
        tasks, centre = self.replay.tasks, np.zeros_like(mean)
        if self.domains:
            centre = averaged(mean, tasks)
            precision, rows = self._between(centre)
        elif place == "middle":
            centre = averaged(mean, np.zeros_like(tasks))
        if place != "as they are":
            contrast = mean - centre
            distance = np.einsum("ki,ij,kj->k", contrast, self._whitened[0], contrast)[:, None]
            mean = centre + contrast / np.sqrt(np.maximum(averaged(distance, tasks), 1e-12))
        labels = self.replay.labels
        of_labels = np.stack([mean[labels == k].mean(axis=0) for k in np.unique(labels)])
        offsets = np.einsum("ki,ij,kj->k", of_labels, precision, of_labels) / 2
        return average(self.embedded, rows @ of_labels.T - offsets)

    def _between(self, centres: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``_whitened`` with the spread between tasks, which is not informative about labels."""
        every = np.unique(centres, axis=0)
        apart = every - every.mean(axis=0)
        r = self.space.dimension
        precision = np.linalg.inv(self.space.shape[:r, :r] + apart.T @ apart / len(every))
        return precision, self.space.into(self.embedded.test.z.astype(np.float64)) @ precision


def averaged(values: FloatArray, groups: IntArray) -> FloatArray:
    """(K, r) the mean of each mode's group."""
    means = np.empty_like(values)
    for group in np.unique(groups):
        means[groups == group] = values[groups == group].mean(axis=0)
    return means


def average(embedded: EmbeddedStream, scores: FloatArray) -> float:
    """AA of scores (n, c) of the test rows, every label allowed."""
    every = np.ones(scores.shape[1], dtype=np.bool_)
    return 100 * float(
        np.mean(score(embedded, scores, [every] * len(embedded.stream.tasks), every).tasks)
    )


def set_up(
    config: Config, embedded: EmbeddedStream, seed: int, method: str, where: Path
) -> MethodContext:
    """One seed of a method, in a directory of its own."""
    config = config.model_copy(update={"method": method})
    directory = RunDirectory(where / method / str(seed), config)
    directory.begin()
    settled = SettledConfig.of(config)
    plan = plan_of(settled, len(embedded.stream.tasks), embedded.stream.cap)
    ledger = ledger_of(settled, seed, directory)
    population = population_of(config, embedded, seed)
    return context_of(settled, embedded, population, seed, plan, ledger, directory)


def learnt_in_the_end(context: MethodContext, embedded: EmbeddedStream, method: str) -> float:
    """AA of a method after its last task."""
    *_, last = method_named(method).stages(context)
    return average(embedded, last().scores(embedded.test.z))


def case_of(context: MethodContext, embedded: EmbeddedStream) -> Case:
    """Release all tasks, or read the stored releases."""
    agreement = agree(context)
    session = Session(agreement, context.plan, context.ledger, context.keep)
    for task, labels in enumerate(context.tasks):
        session.release(task, labels, context.cohort(task))
    releases = session.releases
    expected = [np.full(len(r.value.modes), r.value.expected_weight) for r in releases]
    means = [r.value.means(weight)[0] for r, weight in zip(releases, expected, strict=True)]
    replay = session.replay()
    return Case(embedded, agreement.space, agreement.modes, replay, np.concatenate(means))


def measure(stream: str, clients: int, data: Path) -> dict[str, float]:
    """Every column of one row, mean over seeds."""
    config = load_config(
        None,
        {
            "stream.name": stream,
            "stream.data": data,
            "stream.rows": "held-out",
            "stream.clients": clients,
            "stream.min_rows": 0,  # fewer rows are held out than reported on
            "privacy.epsilon": 4.0,
            "seeds": SEEDS,
        },
    )
    embedded = load_embedded(config)
    columns: dict[str, list[float]] = defaultdict(list)
    hindsight: dict[str, dict[Reading, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as where:
        for seed in config.seeds:
            for method in ("zero-shot", "joint", "cslr"):
                context = set_up(config, embedded, seed, method, Path(where))
                columns[method].append(learnt_in_the_end(context, embedded, method))
            case = case_of(context, embedded)  # of cslr, the last one
            columns["texts"].append(case.score_of(case.prior, PLACES[0]))
            for name, means in (("released", case.observed), ("true", case.true)):
                for settings, mean in case.readings(means):
                    for place in PLACES[1:] if case.domains else PLACES:
                        hindsight[name][*settings, place].append(case.score_of(mean, place))
    best = {
        name: max(float(np.mean(scores)) for scores in of.values())
        for name, of in hindsight.items()
    }
    return {**{name: float(np.mean(scores)) for name, scores in columns.items()}, **best}


def row_of(stream: str, clients: int, columns: dict[str, float]) -> str:
    """One line of the table."""
    low, high = columns["zero-shot"], columns["joint"]
    ends = [columns[name] for name in ("cslr", "released", "true")]
    way = [f"{100 * (end - low) / (high - low):.0f} %" for end in ends]
    names = ("zero-shot", "texts", "cslr", "released", "true", "joint")
    figures = [f"{columns[name]:.1f}" for name in names]
    return f"| {stream} | {clients} | {' | '.join(figures)} | {' / '.join(way)} |"


def main() -> None:
    """Measure every row and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    rows = [
        row_of(stream, clients, measure(stream, clients, data))
        for stream, clients in track(CELLS, description="limits")
    ]
    lines = [
        BEGIN,
        "| stream | clients | zero-shot | label texts | CSLR | releases in hindsight | true means "
        "in hindsight | joint | share of the gap: CSLR / releases / true means |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "AA in %, held-out rows, ε = 4 end to end against the roster, δ = 1e-05, unit: one client; "
        f"seeds {', '.join(map(str, SEEDS))}; `make limits DATA=DIR`.",
        END,
    ]
    page = ROOT / "docs" / "limits.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    write_atomic(page, (before + "\n".join(lines) + rest.split(END)[1]).encode())


if __name__ == "__main__":
    main()

"""How well a release estimates known means of synthetic clients, by number of units and ε.

    OPENBLAS_NUM_THREADS=1 python benchmarks/units_scale.py
    OPENBLAS_NUM_THREADS=1 python benchmarks/units_scale.py --write     # into docs/speed.md

The clients of ``scale.py``: 5 rows each of 4 labels in 384 dimensions around true centres that are
known here and near, but not at, the label texts. All take part in one release. ``error`` is the
mean distance of the released means from the true ones over the mean distance between labels;
``accuracy`` is of the nearest released mean on rows drawn around the true centres. The row of label
texts alone uses no client. Medians over draws of the noise.
"""

from __future__ import annotations

import argparse
import math
import statistics

import numpy as np
from measuring import write_block
from scale import LABELS, NoKeep, agreed, batches

from cslr.federation.streamed_cohort import StreamedCohort
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import Summed
from cslr.protocol.agreement import Agreement
from cslr.protocol.ports import Ask
from cslr.protocol.round import Session
from cslr.seeding import Seeds

UNITS = (100, 1_000, 10_000, 100_000)
EPSILONS = (0.5, 1.0, 4.0, 8.0, math.inf)
TEST_ROWS, SPREAD = 4_000, 0.4
"""Rows on which accuracy is measured, and their standard deviation in each direction, which is so
large that even the true means do not classify all of them correctly."""
BEGIN, END = "<!-- units:begin (written by `benchmarks/units_scale.py`) -->", "<!-- units:end -->"


class Answered:
    """A cohort whose sum is computed once: only the noise is drawn again."""

    def __init__(self, cohort: StreamedCohort) -> None:
        self._cohort = cohort
        self._sums: dict[str, Summed] = {}

    def total(self, ask: Ask[object]) -> Summed:
        """The sum of all units."""
        if ask.label not in self._sums:
            self._sums[ask.label] = self._cohort.total(ask)
        return self._sums[ask.label]


def found_means(agreement: Agreement, cohort: Answered, epsilon: float, seed: int) -> np.ndarray:
    """(LABELS, r) the means estimated from one release."""
    budget = Budget(epsilon)
    ledger = Ledger.in_memory(Federation("units", budget, "simulated"), SeededKeys(Seeds(seed)))
    session = Session(agreement, calibrate(budget, 1), ledger, NoKeep())
    session.release(0, tuple(range(LABELS)), cohort)  # type: ignore[arg-type]
    replay = session.replay()
    return replay.mean[np.argsort(replay.labels)]


def scores(means: np.ndarray, true: np.ndarray, test: np.ndarray) -> tuple[float, float]:
    """Error and accuracy of means (LABELS, r); test: (LABELS, n, r) rows about the true ones."""
    between = np.linalg.norm(true[:, None] - true, axis=-1)[np.triu_indices(LABELS, 1)].mean()
    error = np.linalg.norm(means - true, axis=1).mean() / between
    distance = np.linalg.norm(test[:, :, None] - means, axis=-1)  # (LABELS, n, LABELS)
    right = distance.argmin(axis=-1) == np.arange(LABELS)[:, None]
    return float(error), float(right.mean())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, nargs="+", default=list(UNITS))
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="Write into docs/speed.md.")
    asked = parser.parse_args()
    names = [f"ε = {epsilon:g}".replace("inf", "∞") for epsilon in EPSILONS]
    lines = [f"| units | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    print("\n".join(lines))
    for units in asked.units:
        lines.append(row_of(units, asked.times, asked.workers, first=units == asked.units[0]))
        print(lines[-1], flush=True)
    if asked.write:
        write_block(BEGIN, lines, END)


def row_of(units: int, times: int, workers: int, first: bool) -> str:
    """A line of the table; the first comes with those of label texts alone and the true means."""
    seeds = Seeds(101)
    agreement, truth = agreed(seeds, units)
    true = agreement.space.into(truth)
    noise = seeds.at("test").standard_normal((LABELS, TEST_ROWS // LABELS, truth.shape[1]))
    test = agreement.space.into(truth[:, None] + SPREAD * noise)
    cohort = Answered(StreamedCohort(lambda: batches(units, truth, seeds), workers))
    cells = []
    for epsilon in EPSILONS:
        runs = 1 if math.isinf(epsilon) else times
        found = [
            scores(found_means(agreement, cohort, epsilon, seed), true, test)
            for seed in range(runs)
        ]
        cells.append(cell(*(statistics.median(each) for each in zip(*found, strict=True))))
    line = f"| {units:,} | {' | '.join(cells)} |"
    if not first:
        return line
    prior, best = (scores(each, true, test) for each in (agreement.modes.prototypes.mean, true))
    free, ideal = (
        f"| {name} | {cell(*each)} |" + " |" * (len(EPSILONS) - 1)
        for name, each in (("label texts alone", prior), ("true means", best))
    )
    return "\n".join([ideal, free, line])


def cell(error: float, accuracy: float) -> str:
    """Both figures."""
    return f"{error:.3f}, {100 * accuracy:.1f} %"


if __name__ == "__main__":
    main()

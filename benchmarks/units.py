"""The CPU time of a release with few large units of privacy and with many small ones.

    OMP_NUM_THREADS=1 python benchmarks/units.py [--rows 12000] [--many 100000]

The same synthetic rows (384 directions, one task of two labels) are held by 20 clients, and by as
many people as there are rows. Both contribute to one release, and the sum is noised and charged in
a ledger in memory. Kinds of releases are repeated alternately, and the fastest of each counts;
``ratio`` is its CPU time over that of the 20 clients. The table goes into docs/speed.md. The last
lines are about ``--many`` people: the peak of memory beyond their rows shows that sums stream.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cslr.config import HeadConfig, ReplayConfig
from cslr.federation.simulation import Population
from cslr.methods.cslr import agree
from cslr.methods.gradient_rounds import CLIP, start_rule
from cslr.methods.method import MethodContext
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.head import Family
from cslr.protocol.ports import Ask
from cslr.protocol.round import sum_ask
from cslr.protocol.step4_aggregate.contribution import Units
from cslr.protocol.updates import UpdateId, update_ask
from cslr.seeding import Seeds

WIDTH, LABELS, PUBLIC, CLIENTS = 384, 2, 4000, 20
TASKS = (tuple(range(LABELS)),)


KINDS = {"means": "means", "gradient": "a gradient", "statistics": "means and a matrix"}
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "speed.md"
BEGIN, END = "<!-- units:begin (written by `benchmarks/units.py`) -->", "<!-- units:end -->"


@dataclass(frozen=True, eq=False)
class Case:
    """A kind of release to measure."""

    name: str
    context: MethodContext
    kind: str
    enforced: bool


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    name: str
    units: int
    coordinates: int
    seconds: float


def texts(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """(n, d) unit vectors with a falling spectrum, a little apart by label."""
    z = rng.standard_normal((len(labels), WIDTH)) / np.sqrt(1 + np.arange(WIDTH))
    z[:, 0] += np.where(labels > 0, 0.7, -0.7)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z.astype(np.float32)


def context_of(units: Population, rows_a_unit: int, public: np.ndarray) -> MethodContext:
    """A method's view of so many units, ε = 4."""
    budget = Budget(4.0, unit="person")
    ledger = Ledger.in_memory(Federation("units", budget, "simulated"), SeededKeys(Seeds(101)))
    return MethodContext(
        clients=units,
        tasks=TASKS,
        family=Family("classification", LABELS),
        label_texts=texts(np.random.default_rng(3), np.arange(LABELS)),
        topics=None,
        public=public,
        encoder="synthetic",
        replay=ReplayConfig(),
        head=HeadConfig(),
        plan=calibrate(budget, releases=1),
        ledger=ledger,
        seeds=Seeds(101),
        test_shares=np.full((1, LABELS), 1 / LABELS),
        keep=Nowhere(),
        units=Units(units.count, rows_a_unit),
    )


class Nowhere:
    """Stores nothing: each release is made again."""

    def load(self, label: str) -> None:
        """Nothing was stored."""

    def save(self, label: str, vector: np.ndarray) -> None:
        """Store nothing."""


def population(rows: int, units: int) -> Population:
    """``units`` units that share the rows by turns."""
    rng = np.random.default_rng(1)
    labels = rng.integers(LABELS, size=rows)
    whole = np.zeros(rows, dtype=np.int64)
    return Population(texts(rng, labels), labels, whole, np.arange(rows) % units, units)


def asked(context: MethodContext, kind: str) -> Ask[object]:
    """The question of a release: statistics of a task, or a gradient."""
    if kind == "gradient":
        update = UpdateId(0, 0, context.clients.count)
        return update_ask(update, start_rule(context).question(), CLIP)
    agreement = agree(context)
    if kind == "means":
        agreement = replace(
            agreement,
            second_moments="shared",
            resolution=replace(agreement.resolution, tied=0),
        )
    return sum_ask(agreement.request(0, TASKS[0]))


def seconds_of(context: MethodContext, kind: str, enforced: bool) -> tuple[int, float]:
    """Coordinates and processor time of one release."""
    ask, everybody = asked(context, kind), np.ones(context.clients.count, dtype=np.bool_)
    ledger = Ledger.in_memory(context.ledger.federation, SeededKeys(Seeds(101)))
    ledger.fix_plan(context.plan, {})
    begun = time.process_time()
    cohort = context.clients.cohort(0, everybody, 1, None, enforced)
    size = len(release(cohort.total(ask), context.plan.charge(kind, 0), ledger).value)
    return size, time.process_time() - begun


def measure(cases: Sequence[Case], times: int) -> list[Cell]:
    """The fastest release of each case, all of them repeated in turn."""
    found = [
        [seconds_of(each.context, each.kind, each.enforced) for each in cases] for _ in range(times)
    ]
    return [
        Cell(case.name, case.context.clients.count, *min(of_case, key=lambda each: each[1]))
        for case, of_case in zip(cases, zip(*found, strict=True), strict=True)
    ]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--many", type=int, default=100_000, help="0: leave this part out")
    parser.add_argument("--times", type=int, default=9)
    given = parser.parse_args()
    public = texts(np.random.default_rng(2), np.random.default_rng(4).integers(2, size=PUBLIC))
    silos = context_of(population(given.rows, CLIENTS), given.rows // CLIENTS, public)
    people = context_of(population(given.rows, given.rows), 1, public)
    cells = []
    for mode in ("enforced", "simulated"):
        cases = [Case(f"{mode}, clients", silos, "statistics", mode == "enforced")] + [
            Case(f"{mode}, people, {told}", people, kind, mode == "enforced")
            for kind, told in KINDS.items()
        ]
        cells += measure(cases, given.times)
    lines = table(cells)
    print("\n".join(lines), flush=True)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    block = "\n".join([BEGIN, *lines, END])
    PAGE.write_text(before + block + rest.split(END)[1], encoding="utf-8")
    if given.many:
        print("\n".join(memory(given.many, public)))


def memory(units: int, public: np.ndarray) -> list[str]:
    """Time and peak memory for so many people, beyond their rows."""
    before = peak()
    many = context_of(population(units, units), 1, public)
    held = peak()
    lines = [f"the rows of {units} people: {held - before:.0f} MB"]
    for kind in ("means", "gradient"):
        _, seconds = seconds_of(many, kind, enforced=True)
        lines.append(f"{KINDS[kind]}: {seconds:.1f} s, peak {peak() - held:.0f} MB above")
    return lines


def table(cells: Sequence[Cell]) -> list[str]:
    """In Markdown; ratios to the first row of the same mode."""
    lines = ["| one release | units | coordinates | CPU s | ratio |", "|---|---|---|---|---|"]
    for cell in cells:
        mode = cell.name.split(",")[0]
        base = next(each for each in cells if each.name.startswith(mode))
        numbers = f"{cell.units:,} | {cell.coordinates:,} | {cell.seconds:.3f}"
        lines.append(f"| {cell.name} | {numbers} | {cell.seconds / base.seconds:.2f} |")
    return lines


def peak() -> float:
    """The most memory this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

"""What a release costs with few large units and with many small ones, side by side.

    python benchmarks/units.py [--rows 12000] [--many 100000]

The same synthetic rows (384 directions, one task of two labels) are held by 20 clients and by as
many people as there are rows; both answer the question of one release, and the sum is noised and
charged in a ledger in memory. ``ratio`` is the processor time over that of the 20 clients. The last
lines are about ``--many`` people: the peak of memory above their rows shows that sums stream.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from dataclasses import dataclass, replace

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
    """Keeps nothing: each release is made anew."""

    def load(self, label: str) -> None:
        """Nothing was kept."""

    def save(self, label: str, vector: np.ndarray) -> None:
        """It is not."""


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


def measure(name: str, context: MethodContext, kind: str, enforced: bool, times: int) -> Cell:
    """The fastest of a few releases."""
    ask, everybody = asked(context, kind), np.ones(context.clients.count, dtype=np.bool_)
    seconds, size = math.inf, 0
    for number in range(times):
        charge = context.plan.charge(f"{kind} {number}", 0)
        ledger = Ledger.in_memory(context.ledger.federation, SeededKeys(Seeds(101)))
        ledger.fix_plan(context.plan, {})
        begun = time.process_time()
        cohort = context.clients.cohort(0, everybody, 1, None, enforced)
        size = len(release(cohort.total(ask), charge, ledger).value)
        seconds = min(seconds, time.process_time() - begun)
    return Cell(name, context.clients.count, size, seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--many", type=int, default=100_000, help="0: leave this part out")
    parser.add_argument("--modes", default="enforced,simulated")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    public = texts(np.random.default_rng(2), np.random.default_rng(4).integers(2, size=PUBLIC))
    silos = context_of(population(given.rows, CLIENTS), given.rows // CLIENTS, public)
    people = context_of(population(given.rows, given.rows), 1, public)
    print(f"{'one release':32} {'units':>7} {'coordinates':>12} {'seconds':>8} {'ratio':>6}")
    for mode in given.modes.split(","):
        enforced = mode == "enforced"
        base = measure(f"{mode}, clients", silos, "statistics", enforced, given.times)
        show(base, base)
        for kind in ("means", "gradient", "statistics"):
            show(measure(f"{mode}, people, {kind}", people, kind, enforced, given.times), base)
    if not given.many:
        return
    before = peak()
    many = context_of(population(given.many, given.many), 1, public)
    held = peak()
    for kind in ("means", "gradient"):
        cell = measure(f"people, {kind}", many, kind, True, 1)
        print(f"{cell.units} {cell.name}: {cell.seconds:.1f} s, peak {peak() - held:.0f} MB above")
    print(f"the rows themselves: {held - before:.0f} MB")


def show(cell: Cell, base: Cell) -> None:
    """Print one row as soon as it is known."""
    ratio = cell.seconds / base.seconds
    numbers = f"{cell.units:7} {cell.coordinates:12} {cell.seconds:8.3f} {ratio:6.2f}"
    print(f"{cell.name:32} {numbers}", flush=True)


def peak() -> float:
    """The most memory this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

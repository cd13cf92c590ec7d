"""A synthetic federation on which any plan can be audited without reading real rows.

The mechanism does not depend on what the numbers mean, so a plan is as private here as on real
data. The vector of a canary is the worst that the clipping bound allows in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import HeadConfig, ReplayConfig
from cslr.federation.simulation import Population
from cslr.methods.method import MethodContext
from cslr.paper_constants import PaperConstants
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, Plan
from cslr.protocol.head import Family
from cslr.protocol.step4_aggregate.contribution import Units
from cslr.seeding import Seeds

__all__ = ["Memory", "synthetic_context"]

PUBLIC: Final = 800
TOPICS: Final = 40
ROWS: Final = 4
"""Rows of an honest client in each task."""
ANCHORS: Final = 50


@dataclass
class Memory:
    """A ``Keep`` in memory, for one process."""

    kept: dict[str, FloatArray] = field(default_factory=dict)

    def load(self, label: str) -> FloatArray | None:
        return self.kept.get(label)

    def save(self, label: str, vector: FloatArray) -> None:
        self.kept[label] = vector


def synthetic_context(
    plan: Plan,
    clients: int,
    labels: int,
    dimension: int,
    seeds: Seeds,
    clients_per_person: int = 1,
) -> MethodContext:
    """A class-incremental stream with ``labels`` labels per task, to run the plan on.

    clients: the registered units of the plan, which are people if it protects people.
    """
    tasks, total = plan.releases, plan.releases * labels
    rng = seeds.at("synthetic")
    centres = _unit(rng.standard_normal((TOPICS + total, dimension)))
    topics = rng.integers(len(centres), size=PUBLIC)
    return MethodContext(
        clients=_population(clients, tasks, labels, centres[TOPICS:], rng),
        tasks=tuple(tuple(range(task * labels, (task + 1) * labels)) for task in range(tasks)),
        family=Family("classification", total),
        label_texts=centres[TOPICS:],
        topics=None,
        public=_near(centres[topics], rng),
        encoder="synthetic",
        replay=ReplayConfig(dimension=dimension),
        head=HeadConfig(),
        constants=PaperConstants(m=ANCHORS),
        plan=plan,
        ledger=_ledger(plan, seeds),
        seeds=seeds,
        test_shares=np.zeros((tasks, total)),
        keep=Memory(),
        units=_units(plan, clients, clients_per_person),
    )


def _units(plan: Plan, count: int, clients_per_person: int) -> Units:
    """As a run would declare them: people have few rows, nothing is known about clients."""
    return Units(count, ROWS, clients_per_person) if plan.budget.unit == "person" else Units(count)


def _population(
    clients: int, tasks: int, labels: int, centres: FloatArray, rng: np.random.Generator
) -> Population:
    """Every client has a few rows of every task."""
    shape = (clients, tasks, ROWS)
    of_task: IntArray = np.broadcast_to(np.arange(tasks)[:, None], shape).ravel()
    of_client: IntArray = np.broadcast_to(np.arange(clients)[:, None, None], shape).ravel()
    of_row = of_task * labels + rng.integers(labels, size=of_task.size)
    z = _near(centres[of_row], rng)
    return Population(z=z, labels=of_row, tasks=of_task, clients=of_client, count=clients)


def _ledger(plan: Plan, seeds: Seeds) -> Ledger:
    """A ledger whose budget is the plan's ε against the roster, which is audited."""
    epsilon = plan.epsilon("roster") * (1 + 1e-9)
    budget = Budget(epsilon, plan.budget.delta, unit=plan.budget.unit)
    return Ledger.in_memory(Federation("audit", budget, "simulated"), SeededKeys(seeds))


def _near(centres: FloatArray, rng: np.random.Generator) -> FloatArray:
    width = centres.shape[-1]
    return _unit(centres + rng.standard_normal(centres.shape) / np.sqrt(width))


def _unit(z: FloatArray) -> FloatArray:
    unit: FloatArray = z / np.linalg.norm(z, axis=-1, keepdims=True)
    return unit

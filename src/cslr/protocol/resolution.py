"""The resolution of a release: a public function of the plan, computed before any row is read.

The noise does not depend on the size of a contribution, so the useful level of detail depends on
the number of units. Few large units (silos): means, and one number for the spread. Many small
units: a unit has full weight from its expected number of rows on, weights are measured, and if the
noise allows it the contribution also contains one symmetric matrix, the second moments that all
modes of a task share (``tied``), in the leading r₂ public directions.

A direction enters the matrix if the noise of an entry after all tasks is at most ``MOST_NOISE``
times its public variance.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.privacy.plan import Plan

__all__ = ["FEW_UNITS", "UNKNOWN_UNITS", "Resolution", "Units", "resolve"]

MANY: Final = 30.0
"""Expected weight of a mode from which on small units are many enough to measure weights."""
MOST_NOISE: Final = 0.5
"""Noise of an entry of the matrix, relative to the public variance of its direction."""
LEAST_TIED: Final = 64
"""Directions below which a matrix does not pay for its share of the norm."""
TIED_NORM: Final = 1.4
"""Norm of a small unit's contribution with a matrix, of embeddings of length one."""
MOST_ROWS: Final = 8
"""Rows from which on a unit's label counts fully, however many are expected."""


@dataclass(frozen=True)
class Units:
    """Public facts about the units of privacy: declared numbers, never counted on rows."""

    count: int  # N, registered
    rows: int = MOST_ROWS
    """Rows that a unit is expected to have of one task."""
    clients_per_person: int = 1
    """The most clients that hold rows of one unit; each clips to its share of the bound."""
    tasks: float | None = None
    """Tasks that a unit is expected to have rows of; None: as many as it has rows of a task."""

    def heard(self, cap: int) -> float:
        """Tasks that a unit is expected to contribute to."""
        return min(cap, max(1.0, self.rows if self.tasks is None else self.tasks))


UNKNOWN_UNITS: Final = Units(1)
"""Of which nothing is declared: taken to be few."""


@dataclass(frozen=True)
class Resolution:
    """The contents of a contribution, and the public scale of each block."""

    full_weight: int = MOST_ROWS
    """Rows from which on a label of a unit counts fully: w = min(n, full) / full."""
    weight_scale: float = 0.05
    """A weight is at most 1, an offset of a silo about 0.4: weights take little of the norm."""
    weight_unsure: float = 0.25
    """Relative doubt about the expected sum of weights."""
    second_scale: float = 0.5
    tied: int = 0  # r₂
    tied_scale: float = math.sqrt(2)
    """An entry off the diagonal stands for two: the triangle is as long as the matrix."""
    simulated_rows: int = 16
    """Rows per label of the simulated units that the clipping bound is learnt from."""
    simulated_labels: int | None = None
    """Labels that such a unit has rows of; None: all of a task."""

    def share_of_labels(self, labels: int) -> float:
        """Of the labels of a task, the share that a unit is expected to have rows of."""
        if self.simulated_labels is None:
            return 1.0
        return min(1.0, self.full_weight / max(labels, 1))

    def facts(self) -> dict[str, object]:
        """For the plan."""
        return asdict(self)


FEW_UNITS: Final = Resolution()


def resolve(
    units: Units, plan: Plan, labels_per_task: int, variances: FloatArray, may_tie: bool
) -> Resolution:
    """The resolution that units, noise and the public variances (r,) of directions allow.

    labels_per_task: the most labels of a task. may_tie: whether a matrix may be sent at all.
    """
    full = max(1, min(units.rows, MOST_ROWS))
    if full == MOST_ROWS or expected_weight(units, plan, labels_per_task) < MANY:
        return FEW_UNITS
    return Resolution(
        full_weight=full,
        weight_scale=0.3,
        weight_unsure=1.0,
        second_scale=0.1,
        tied=_tied(units, plan, variances) if may_tie else 0,
        simulated_rows=full,
        simulated_labels=1,
    )


def expected_weight(units: Units, plan: Plan, labels_per_task: int) -> float:
    """The expected sum of a mode's weights: a unit with few rows has few labels."""
    share = min(1.0, units.rows / labels_per_task)
    return plan.q * units.count * plan.cap / plan.releases * share


def _tied(units: Units, plan: Plan, variances: FloatArray) -> int:
    """r₂: directions in which noise leaves entries of the matrix useful; 0 if they are too few."""
    contributions = plan.q * units.count * units.heard(plan.cap)
    sigma = 0.0 if plan.sigma is None else plan.sigma * units.clients_per_person
    noise = sigma * TIED_NORM * math.sqrt(plan.releases / 2) / contributions
    directions = int(np.sum(MOST_NOISE * variances >= noise))
    return directions if directions >= LEAST_TIED else 0

"""Private evaluation: correct answers on clients' test rows as one noisy, charged sum.

A unit (a client) with test rows of m tasks sends for each of these tasks the share a_j of its rows
that is answered correctly and the share that is not, both divided by √m; zeros for other tasks:

    v = (a_1, 1 − a_1, ..., a_T, 1 − a_T) / √m,    ‖v‖ ≤ 1

So the clip at S = 1 never shortens a vector. A vector depends only on the unit's own rows and on
what was released before. From the released sums (R_j, W_j) of a task anyone can compute

    accuracy  R_j / (R_j + W_j)

the weighted mean of the units' shares of correct answers; a unit with test rows of m tasks has
weight 1/√m in each. To first order, noise of standard deviation σ in each sum gives it a standard
error of σ √(a² + (1 − a)²) / (R_j + W_j).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Plan
from cslr.privacy.values import Bounded, Grid, Released, bound
from cslr.protocol.ports import Ask, Cohort, Keep, release_sum

__all__ = ["LABEL", "Exam", "Graded", "Measured", "answers_of", "measured", "read", "shares_of"]

LABEL: Final = "evaluation"
"""The name of the release in the ledger and of the saved vector."""
GRID: Final = Grid(1.0)
LEAST_WEIGHT: Final = 3.0
"""A task's accuracy is reported if its weight exceeds this many standard deviations of noise."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Accuracy per task, computed from released values, so it may be stored."""

    accuracy: FloatArray  # (T,) in [0, 1], NaN where too few units have test rows
    error: FloatArray  # (T,) standard error due to the noise alone, NaN where accuracy is


@dataclass(frozen=True)
class Exam:
    """PUBLIC. The evaluation request; units already have the model that is evaluated."""

    tasks: int  # T


@dataclass(frozen=True, eq=False, repr=False)
class Graded:
    """PRIVATE. Test rows of units after the model answered them."""

    right: BoolArray  # (n,)
    tasks: IntArray  # (n,)
    units: IntArray  # (n,) the unit of each row


def shares_of(right: BoolArray, tasks: IntArray, count: int) -> FloatArray:
    """(2T,) the vector v of one unit, from its rows: right (n,), tasks (n,); T = count tasks."""
    rows = np.bincount(tasks, minlength=count)
    hits = np.bincount(tasks, weights=right, minlength=count)
    held = rows > 0
    shares = np.zeros((count, 2))
    shares[held, 0] = hits[held] / rows[held]
    shares[held, 1] = 1.0 - shares[held, 0]
    vector: FloatArray = shares.ravel() / math.sqrt(max(int(held.sum()), 1))
    return vector


def answers_of(graded: Graded, ask: Ask[Exam]) -> Bounded:
    """On the device: the vector of each unit, from its own test rows, clipped.

    Without any unit it is one row of zeros, so that a sum without test rows can be released.
    """
    count, units = ask.request.tasks, graded.units
    order = np.argsort(units, kind="stable")
    ends = np.flatnonzero(np.diff(units[order])) + 1
    vectors = [
        shares_of(graded.right[rows], graded.tasks[rows], count)
        for rows in (np.split(order, ends) if len(order) else ())
    ]
    return bound(np.stack([*vectors] or [np.zeros(2 * count)]), ask.grid)


def measured(
    cohort: Callable[[], Cohort], exam: Exam, plan: Plan, ledger: Ledger, keep: Keep
) -> Released[Measured]:
    """The evaluation that the plan includes; an interrupted one is not charged again.

    cohort: the units with test rows, which have the model that is evaluated.

    Guarantee: one Gaussian release of multiplier ``plan.evaluation_sigma``, in which zeroing a unit
    moves the sum by at most 1, charged before its noise is drawn.
    """
    if not plan.schedule.evaluation:
        raise ValueError("plan: it contains no charge for an evaluation")
    charge = plan.evaluation_charge(LABEL)
    noisy = release_sum(Ask(LABEL, "evaluation", exam, GRID), cohort, charge, ledger, keep)
    carried = ledger.carried(LABEL)
    sigma = plan.evaluation_sigma if carried is None else carried
    return noisy.map(partial(read, sigma=sigma or 0.0))


def read(sums: FloatArray, sigma: float) -> Measured:
    """Accuracy and its standard error from released sums (2T,), each with noise of std σ."""
    right, wrong = sums.reshape(-1, 2).T
    weight = right + wrong
    known = weight > LEAST_WEIGHT * math.sqrt(2.0) * sigma
    divisor = np.where(known, weight, 1.0)
    accuracy = np.clip(right / divisor, 0.0, 1.0)
    error = sigma * np.hypot(accuracy, 1.0 - accuracy) / divisor
    return Measured(np.where(known, accuracy, np.nan), np.where(known, error, np.nan))

"""Updates of a model as releases: clip a client's update, sum, pay, add noise, average.

One update is one vector over all parameters that are trained, clipped once. It is divided by the
cohort that is expected, a public number, never by the one that came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cslr.arrays import FloatArray
from cslr.privacy.grid import Grid, bound
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Plan
from cslr.privacy.secure_sum import plain_sum
from cslr.privacy.values import Summed
from cslr.protocol.once import release_once
from cslr.protocol.ports import Keep

__all__ = ["UpdateId", "release_update", "sum_of_updates"]


@dataclass(frozen=True)
class UpdateId:
    """Which update: the round of a task, among N registered clients."""

    task: int
    round: int
    clients: int

    @property
    def label(self) -> str:
        """Its name in the ledger and among what is kept."""
        return f"task {self.task} update {self.round}"

    def expected(self, plan: Plan) -> float:
        """The expected cohort: q N, less where a client may speak about some tasks only."""
        return plan.head_q * self.clients * plan.cap / plan.releases


def release_update(
    ask: Callable[[], Summed], where: UpdateId, plan: Plan, ledger: Ledger, keep: Keep
) -> FloatArray:
    """(D,) the average update: asked for, charged, noised with ``plan.head_sigma``, kept.

    One that was released or charged before an interruption is taken from there, and not paid twice.

    Guarantee: one Gaussian release of multiplier ``plan.head_sigma``.
    """
    charge = plan.head_charge(where.label, where.task, where.round)
    noisy = release_once(charge, lambda: release(ask(), charge, ledger), ledger, keep)
    return noisy.value / where.expected(plan)


def sum_of_updates(vectors: FloatArray, norm: float) -> Summed:
    """The sum of updates (b, D), each clipped to ``norm``: by so much zeroing a client moves it."""
    return plain_sum([bound(vectors, Grid(norm))])

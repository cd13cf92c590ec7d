"""Updates of a model as releases: clip a client's update, sum, pay, add noise, average.

One update is one vector over all parameters that are trained, clipped once. It is divided by the
cohort that is expected, a public number, never by the one that came.
"""

from __future__ import annotations

from dataclasses import dataclass

from cslr.privacy.grid import Grid, bound
from cslr.privacy.ledger import Ledger
from cslr.privacy.mechanism import recall, release, settle
from cslr.privacy.plan import Plan
from cslr.privacy.secure_sum import plain_sum
from cslr.privacy.values import Summed
from cslr.protocol.ports import Keep
from cslr.types import FloatArray

__all__ = ["Where", "kept_update", "release_update", "released_update"]


@dataclass(frozen=True)
class Where:
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


def kept_update(where: Where, plan: Plan, ledger: Ledger, keep: Keep) -> FloatArray | None:
    """(D,) the update as it was released before an interruption, if it was."""
    kept = keep.load(where.label)
    if kept is None:
        return None
    return recall(kept, where.label, ledger).value / where.expected(plan)


def release_update(
    summed: Summed, where: Where, plan: Plan, ledger: Ledger, keep: Keep
) -> FloatArray:
    """(D,) the average update: charged, noised with ``plan.head_sigma``, kept."""
    charge = plan.head_charge(where.label, where.task, where.round)
    noisy = release(summed, charge, ledger)
    keep.save(where.label, noisy.value)
    settle(noisy, where.label, ledger)
    return noisy.value / where.expected(plan)


def released_update(
    vectors: FloatArray, norm: float, where: Where, plan: Plan, ledger: Ledger, keep: Keep
) -> FloatArray:
    """(D,) the average of updates (b, D), each clipped to ``norm``; a kept one is not paid twice.

    Guarantee: one Gaussian release of multiplier ``plan.head_sigma``, in which zeroing a client
    moves the sum by at most ``norm``.
    """
    kept = kept_update(where, plan, ledger, keep)
    if kept is not None:
        return kept
    summed = plain_sum([bound(vectors, Grid(norm))])
    return release_update(summed, where, plan, ledger, keep)

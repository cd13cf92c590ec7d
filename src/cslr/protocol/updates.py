"""Model updates as releases: clip, sum, charge, add noise, average.

One update is one vector of all trained parameters, clipped once. The sum is divided by the expected
size of the cohort, a public number, never by the actual size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cslr.arrays import FloatArray
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Plan
from cslr.privacy.values import Bounded, Grid, bound
from cslr.protocol.ports import Ask, Cohort, Examples, Keep, Training, release_sum

__all__ = ["UpdateId", "release_update", "update_ask", "update_of"]


@dataclass(frozen=True)
class UpdateId:
    """Which update: the round of a task, among N registered clients."""

    task: int
    round: int
    clients: int

    @property
    def label(self) -> str:
        """Its name in the ledger and of the saved vector."""
        return f"task {self.task} update {self.round}"

    def expected(self, plan: Plan) -> float:
        """The expected cohort size: q N, or less if a cap limits the tasks of a client."""
        return plan.head_q * self.clients * plan.cap / plan.releases


def update_of(examples: Examples, ask: Ask[Training]) -> Bounded:
    """On the device: each client's update, all parameters as one vector, clipped once."""
    return bound(ask.request.updates(examples), ask.grid)


def update_ask(
    update: UpdateId, training: Training, norm: float, clients_per_unit: int = 1
) -> Ask[Training]:
    """The request for an update of each client, clipped to ``norm``.

    clients_per_unit: the most clients that hold rows of one unit, and so the most updates it has in
    a round. Zeroing a unit moves the sum by at most ``clients_per_unit`` × ``norm``.
    """
    return Ask(
        update.label, "update", training, Grid(norm * clients_per_unit, share=clients_per_unit)
    )


def release_update(
    ask: Ask[Training],
    update: UpdateId,
    cohort: Callable[[], Cohort],
    plan: Plan,
    ledger: Ledger,
    keep: Keep,
) -> FloatArray:
    """(D,) the average update: requested, charged, noised with ``plan.head_sigma``, and saved.

    An update that was released or charged before an interruption is reused and not charged again.

    Guarantee: one Gaussian release of multiplier ``plan.head_sigma``.
    """
    charge = plan.head_charge(update.label, update.task, update.round)
    return release_sum(ask, cohort, charge, ledger, keep).value / update.expected(plan)

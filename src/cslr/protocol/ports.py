"""The interface between server and clients: the only requests a server can make.

A request is an ``Ask``: a named value that can be sent as a message. ``Cohort.total`` gives the
server only the sum over the participating clients, ``each`` only answers that every device has
noised itself. In one process these are vectorised calls; over a network they are messages and a
secure aggregation. The protocol is the same for both.

A release is made once, even if the process is interrupted: see ``release_once``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.mixture import Gaussians
from cslr.paper_constants import PaperConstants
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import finish, publish, recall, release, release_each, settle
from cslr.privacy.values import Bounded, Grid, Noised, Released, Summed
from cslr.protocol.head import Family, Head
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import FEW_UNITS, Layout, Resolution

__all__ = [
    "Ask",
    "AskKind",
    "Cohort",
    "Examples",
    "Keep",
    "NoisedCohort",
    "Request",
    "Training",
    "release_lists",
    "release_sum",
]

AskKind = Literal["sum", "block", "list", "update", "evaluation"]
"""A task's joint vector, one of its four statistics, a list, an update of a model, or the shares of
correct answers; ``messages.ANSWERS`` has the device's function for each."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, repr=False)
class Examples:
    """PRIVATE. One task's examples of b clients, padded to the longest; a device has b = 1."""

    z: FloatArray  # (b, n, d)
    labels: IntArray  # (b, n)
    mask: BoolArray  # (b, n) which rows are real
    clients: tuple[int, ...]  # (b,) ids, for the random streams
    targets: FloatArray | None = None
    """(b, n, outputs) y of each example; None: the label determines it."""
    kinds: IntArray | None = None
    """(b, n) the true mode of each example, known only in studies that measure alignment."""


@dataclass(frozen=True, eq=False)
class Request:
    """PUBLIC. The request to every client: it may depend on released values, not on raw ones."""

    task: int
    groups: tuple[tuple[int, ...], ...]
    """The label groups that modes describe, in their order: one label each, or all of the task."""
    space: PublicSpace
    prototypes: Gaussians
    """(groups × J, r): public, and moved by earlier releases."""
    family: Family
    learner: ListLearner
    matcher: str
    layout: Layout
    grids: tuple[Grid, ...]
    """One clip for everything, or one for each of the four statistics."""
    seed: int
    """Seeds the starts of EM and the random matcher; no noise is drawn from it."""
    names: Mapping[int, IntArray] | None = None
    """(groups, L) the canonical ids of each client's candidates, if the server assigned them."""
    candidates: FloatArray | None = None
    """(groups, V, r) public means that clients vote for; None: means are averaged."""
    head: Head | None = None
    """The head whose clipped logits are the targets; None: targets are made of the labels."""
    resolution: Resolution = FEW_UNITS
    signed: FloatArray | None = None
    """(b, groups, L, m) signatures of released lists, in the order of ``names``; for studies."""
    paper: PaperConstants | None = None
    """The constants of the paper's protocol, if it is run exactly as written."""

    @property
    def sub_modes(self) -> int:
        """J: modes of each group."""
        return len(self.prototypes.mean) // len(self.groups)

    @property
    def one_mode(self) -> bool:
        """Whether each group has one mode, so that candidates need no matching."""
        return self.sub_modes == 1 and self.names is None

    def by_row(self, examples: Examples) -> bool:
        """Whether every unit has one row, so that its statistics follow from that row directly."""
        one = examples.mask.shape[1] == 1 and self.learner.size == 1 and self.one_mode
        plain = self.paper is None and self.candidates is None and self.head is None
        sums = not self.layout.targets and self.layout.seconds <= self.space.dimension
        return one and plain and sums and all(len(group) == 1 for group in self.groups)

    def prototypes_of(self, group: int) -> Gaussians:
        """(J, r) the prototypes of the group with this index."""
        chosen = slice(group * self.sub_modes, (group + 1) * self.sub_modes)
        return Gaussians(self.prototypes.mean[chosen], self.prototypes.covariance[chosen])


class Keep(Protocol):
    """Storage of released vectors, which are read back after an interruption."""

    def load(self, label: str) -> FloatArray | None:
        """The vector saved under this label, if any."""

    def save(self, label: str, vector: FloatArray) -> None:
        """Save a vector under this label; it is on disk when this returns."""


class Training(Protocol):
    """PUBLIC. The request to every client for one round of training."""

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) each client's update of the model; zeros for a client without rows."""


@dataclass(frozen=True, eq=False)
class Ask(Generic[R_co]):
    """PUBLIC. One request to clients, the same for all of them."""

    label: str
    """Its name in the ledger, of the saved vector, and in messages."""
    kind: AskKind
    request: R_co
    """What clients receive: a ``Request``, a ``Training``, or an ``Exam``."""
    grid: Grid
    """The clipping bound of an answer, and its grid steps."""
    block: int = 0
    """Which of the four statistics, if they are clipped separately."""


class Cohort(Protocol):
    """The participating clients, as the server can query them."""

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum of all clients' answers."""

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """Each client's id and its answer, to which noise is added before it can be read."""


@runtime_checkable
class NoisedCohort(Protocol):
    """Clients on other machines, which add noise to their answers before the sum."""

    def noised(self, ask: Ask[Any], charge: Charge, ledger: Ledger) -> Noised:
        """The sum of the noised answers of all clients that did not drop out.

        It is unmasked only if the ledger can pay for it.
        """


# -- releases, safe against interruptions ----------------------------------------------------------


def release_sum(
    ask: Ask[Any], cohort: Callable[[], Cohort], charge: Charge, ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """(D,) the noisy sum of a cohort's answers; clients are not asked if it was released before.

    Clients on other machines add the noise themselves; ``ledger.carried`` has its multiplier.
    """

    def released() -> Released[FloatArray]:
        clients = cohort()
        if isinstance(clients, NoisedCohort):
            return publish(clients.noised(ask, charge, ledger), charge, ledger)
        return release(clients.total(ask), charge, ledger)

    return release_once(charge, released, ledger, keep)


def release_lists(
    ask: Ask[Any], cohort: Cohort, charge: Charge, ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """(b, 1 + D) each client's id and its answer with noise of its own."""

    def released() -> Released[FloatArray]:
        clients, answers = cohort.each(ask)
        return release_each(answers, charge, ledger, clients)

    return release_once(charge, released, ledger, keep)


def release_once(
    charge: Charge, ask_and_pay: Callable[[], Released[FloatArray]], ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """The result of a charge: read back, finished after an interruption, or released now.

    ask_and_pay: asks the clients, charges and adds noise. It is not called if the result is saved
    or its sum was charged already, so what happens after a crash does not depend on clients' rows.

    Guarantee: what is saved was charged, and only once however often this is interrupted. The one
    exception is an interrupted release whose sum the disk lost: it is charged again.
    """
    stored = keep.load(charge.label)
    if stored is not None:
        return recall(stored, charge.label, ledger)
    released = finish(charge, ledger)
    if released is None:
        released = ask_and_pay()
    keep.save(charge.label, released.value)
    settle(released, charge.label, ledger)
    return released

"""The only questions a server may ask of its clients.

A question is an ``Ask``: a value with a name, which can travel as a message. ``Cohort.total`` shows
the server nothing but the sum over the clients that take part, ``each`` only what every device has
noised by itself. In process they are vectorised calls, over a network messages and a secure
aggregation; the protocol cannot tell which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.gaussian import Gaussians
from cslr.privacy.accounting import Charge
from cslr.privacy.grid import Grid
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.values import Bounded, Noised, Summed
from cslr.protocol.head import Head
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.resolution import FEW_UNITS, Resolution
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import Layout
from cslr.protocol.targets import Family

__all__ = ["Ask", "AskKind", "Cohort", "Examples", "Keep", "NoisedCohort", "Request", "Training"]

AskKind = Literal["sum", "block", "list", "update", "evaluation"]
"""A task's joint vector, one of its four statistics, a list, an update of a model, or the shares of
right answers; ``answers.ANSWERS`` has the function on the device for each."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Examples:
    """PRIVATE. One task's examples of b clients, padded to the longest; a device has b = 1."""

    z: FloatArray  # (b, n, d)
    labels: IntArray  # (b, n)
    mask: BoolArray  # (b, n) which rows are real
    clients: tuple[int, ...]  # (b,) ids, for the random streams
    targets: FloatArray | None = None
    """(b, n, outputs) y of each example, where the label does not settle it."""
    kinds: IntArray | None = None
    """(b, n) the true mode of each example, in a study that measures alignment."""


@dataclass(frozen=True, eq=False)
class Request:
    """PUBLIC. What every client is told: it may depend on released values, never on raw ones."""

    task: int
    groups: tuple[tuple[int, ...], ...]
    """What this task's modes are about, in their order: a label each, or all labels together."""
    space: PublicSpace
    prototypes: Gaussians
    """(groups × J, r): public, moved by what was released earlier."""
    family: Family
    learner: ListLearner
    matcher: str
    layout: Layout
    grids: tuple[Grid, ...]
    """One clip for everything, or one for each of the four statistics."""
    seed: int
    """Seeds the starts of EM and the random matcher; protects nothing."""
    names: Mapping[int, IntArray] | None = None
    """(groups, L) the canonical ids of each client's candidates, where the server gave them."""
    candidates: FloatArray | None = None
    """(groups, V, r) what the means are voted for; None: they are averaged."""
    head: Head | None = None
    """Whose clipped logits are the targets; None: the answers themselves."""
    resolution: Resolution = FEW_UNITS

    @property
    def sub_modes(self) -> int:
        """J: modes of each group."""
        return len(self.prototypes.mean) // len(self.groups)

    def prototypes_of(self, place: int) -> Gaussians:
        """(J, r) the prototypes of the group at this place."""
        chosen = slice(place * self.sub_modes, (place + 1) * self.sub_modes)
        return Gaussians(self.prototypes.mean[chosen], self.prototypes.covariance[chosen])


class Keep(Protocol):
    """Where released vectors are made safe, and found again after an interruption."""

    def load(self, label: str) -> FloatArray | None:
        """What was kept under this label, if anything."""

    def save(self, label: str, vector: FloatArray) -> None:
        """Durable when it returns."""


class Training(Protocol):
    """PUBLIC. What every client is told for one round in which clients train a model."""

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) how each client would change the model; zeros for one without rows."""


@dataclass(frozen=True, eq=False)
class Ask(Generic[R_co]):
    """PUBLIC. One question to clients, the same for all of them."""

    label: str
    """Its name in the ledger, among what is kept, and in messages."""
    kind: AskKind
    request: R_co
    """What clients are told: a ``Request``, a ``Training``, or an ``Exam``."""
    grid: Grid
    """The bound that an answer is clipped to, and its steps."""
    block: int = 0
    """Which of the four statistics, where each is clipped by itself."""


class Cohort(Protocol):
    """The clients, as the server may see them."""

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum of what all clients answer, and nothing else."""

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """What each client answers, under its name; it is noised before anybody opens it."""


@runtime_checkable
class NoisedCohort(Protocol):
    """Clients on other machines, which noise their answers before they are added up."""

    def noised(self, ask: Ask[Any], charge: Charge, ledger: Ledger) -> Noised:
        """The sum of what the survivors answer with their noise, unmasked if it can be paid for."""

"""The only questions a server may ask of its clients.

``total`` shows the server nothing but the sum over the clients that take part. In process it is a
vectorised call, over a network it is a secure aggregation; the protocol cannot tell which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cslr.numerics.gaussian import Gaussians
from cslr.privacy.grid import Grid
from cslr.privacy.values import Summed
from cslr.protocol.public import PublicSpace
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import Layout
from cslr.protocol.targets import Family
from cslr.types import BoolArray, FloatArray, IntArray

__all__ = ["Cohort", "Examples", "Keep", "Request"]


@dataclass(frozen=True)
class Examples:
    """PRIVATE. One task's examples of b clients, padded to the longest; a device has b = 1."""

    z: FloatArray  # (b, n, d)
    labels: IntArray  # (b, n)
    mask: BoolArray  # (b, n) which rows are real
    clients: tuple[int, ...]  # (b,) ids, for the random streams
    targets: FloatArray | None = None
    """(b, n, outputs) y of each example, where the label does not settle it."""


@dataclass(frozen=True)
class Request:
    """PUBLIC. What every client is told: it may depend on released values, never on raw ones."""

    task: int
    labels: tuple[int, ...]
    """The labels of this task, in the order of its modes."""
    space: PublicSpace
    prototypes: Gaussians
    """(labels × J, r): public, moved by what was released earlier."""
    family: Family
    learner: ListLearner
    matcher: str
    layout: Layout
    grid: Grid
    seed: int
    """Seeds the starts of EM and the random matcher; protects nothing."""

    def prototypes_of(self, label: int) -> Gaussians:
        """(J, r) the prototypes of one of the labels."""
        sub_modes = len(self.prototypes.mean) // len(self.labels)
        first = self.labels.index(label) * sub_modes
        chosen = slice(first, first + sub_modes)
        return Gaussians(self.prototypes.mean[chosen], self.prototypes.covariance[chosen])


class Keep(Protocol):
    """Where released vectors are made safe, and found again after an interruption."""

    def load(self, label: str) -> FloatArray | None:
        """What was kept under this label, if anything."""

    def save(self, label: str, vector: FloatArray) -> None:
        """Durable when it returns."""


class Cohort(Protocol):
    """The clients, as the server may see them."""

    def total(self, request: Request) -> Summed:
        """The sum of all contributions to this request."""

"""What a server expects of an answer: the question it answers, its shape and its range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cslr.arrays import IntArray
from cslr.errors import (
    FutureRound,
    OldRound,
    OverlongVector,
    WrongFederation,
    WrongKind,
    WrongLabel,
    WrongRun,
    WrongShape,
    WrongTerms,
)
from cslr.federation.wire.codec import Header, Limits, Question
from cslr.federation.wire.terms import terms_of
from cslr.privacy.mechanism import noise_in_steps
from cslr.privacy.values import Bounded, Grid, NotAdmitted, admit

__all__ = ["MANY_SIGMAS", "Expected", "admitted", "check_header", "check_list"]

MANY_SIGMAS: Final = 12.0
"""Noise of an honest list beyond this has probability 10⁻³³ per coordinate."""


@dataclass(frozen=True)
class Expected:
    """One row of D coordinates in answer to a question. PUBLIC."""

    question: Question
    width: int  # D
    grid: Grid
    space: str
    """The digest of the public space and of everything else that clients use."""
    sigma: float | None = None
    """Noise multiplier of a list, which its sender adds; other kinds arrive without noise."""

    def __post_init__(self) -> None:
        if self.question.terms != terms_of(self.grid, self.space, self.sigma):
            raise ValueError("question: its terms do not match grid, space and sigma")

    @property
    def limits(self) -> Limits:
        """Exactly the bytes that the answer needs."""
        return Limits(body=8 * self.width)

    @property
    def farthest(self) -> int:
        """The largest coordinate, in grid steps, that a list may have."""
        steps = self.grid.steps
        noise = 0.0 if self.sigma is None else MANY_SIGMAS * noise_in_steps(self.sigma, steps)
        return steps + math.ceil(noise)


def check_header(header: Header, question: Question, width: int) -> None:
    """Refuse an answer to another question, or one of another shape."""
    said = header.question
    if said.federation != question.federation:
        raise WrongFederation(
            f"the message is for federation {said.federation!r}; this is {question.federation!r}"
        )
    if said.run != question.run:
        raise WrongRun(f"the message is for run {said.run!r}; this is {question.run!r}")
    if said.round < question.round:
        raise OldRound(f"round {said.round} is over; this is round {question.round}")
    if said.round > question.round:
        raise FutureRound(f"round {said.round} has not begun; this is round {question.round}")
    if said.kind != question.kind:
        raise WrongKind(f"expected a message of kind {question.kind}, got {said.kind}")
    if said.label != question.label:
        raise WrongLabel(f"expected release {question.label!r}, got {said.label!r}")
    if said.terms != question.terms:
        raise WrongTerms(
            "it was made with another clip, grid, noise or public space than this round "
            "requests; answer the request of this round"
        )
    if header.shape != (1, width):
        raise WrongShape(f"expected shape (1, {width}), got {header.shape}")


def admitted(rows: IntArray, grid: Grid) -> Bounded:
    """Rows (b, D) as they were sent; refused if the norm of one exceeds the bound."""
    try:
        return admit(rows, grid)
    except NotAdmitted as error:
        raise OverlongVector(str(error)) from None


def check_list(rows: IntArray, farthest: int) -> None:
    """Refuse a list with larger coordinates than clip and noise explain.

    Coordinates are compared and not squared, because squares of large integers wrap around.
    """
    if ((rows > farthest) | (rows < -farthest)).any():
        raise OverlongVector(f"a coordinate of the list exceeds {farthest} grid steps")

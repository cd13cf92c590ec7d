"""Clients that are read or generated batch by batch: a release over more than fit in memory.

``simulation.Population`` holds the rows of all clients. A ``StreamedCohort`` holds none: it asks
for batches whenever the server asks a question, adds up their answers as integers and forgets them.
So its memory does not grow with the number of clients, and the sum does not depend on the batches.

It is for studies: who takes part, and that nobody exceeds a cap, is up to who makes the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cslr.privacy.secure_sum import plain_sum
from cslr.privacy.values import Bounded, Summed
from cslr.protocol.answers import answer
from cslr.protocol.ports import Ask, Examples

__all__ = ["StreamedCohort"]


@dataclass(frozen=True, eq=False)
class StreamedCohort:
    """The clients of one round; a ``Cohort``."""

    batches: Callable[[], Iterator[Examples]]
    """All clients that take part, each in one batch; the same ones at every call."""

    def total(self, ask: Ask[Any]) -> Summed:
        """An ideal secure sum over the clients that take part."""
        return plain_sum(answer(batch, ask) for batch in self.batches())

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """What each client answers, under its name: these are kept, so memory grows with them."""
        clients: list[int] = []
        answers = []
        for batch in self.batches():
            clients.extend(batch.clients)
            answers.append(answer(batch, ask))
        return tuple(clients), answers

"""Clients that are read or generated batch by batch, for releases over more than fit in memory.

``simulation.Population`` holds the rows of all clients. A ``StreamedCohort`` holds none: it asks
for batches whenever the server asks a question, adds up their answers as integers and drops them.
So its memory does not grow with the number of clients, and the sum does not depend on the batches.

It is for studies: whoever makes the batches decides who takes part and has to enforce the cap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from cslr.privacy.values import Bounded, Summed, plain_sum
from cslr.protocol.messages import answer
from cslr.protocol.ports import Ask, Examples

__all__ = ["StreamedCohort"]


@dataclass(frozen=True, eq=False)
class StreamedCohort:
    """The clients of one round; a ``Cohort``."""

    batches: Callable[[], Iterator[Examples]]
    """Makes batches of all clients that take part, each in one batch; the same at every call."""
    workers: int = 1
    """Processes that answer for batches; the sum is the same whatever their number."""

    def total(self, ask: Ask[Any]) -> Summed:
        """An ideal secure sum over the clients that take part."""
        if self.workers > 1:
            return plain_sum(_answers(self.batches(), ask, self.workers))
        return plain_sum(answer(batch, ask) for batch in self.batches())

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """The answer and the name of each client; answers are kept, so memory grows with them."""
        clients: list[int] = []
        answers = []
        for batch in self.batches():
            clients.extend(batch.clients)
            answers.append(answer(batch, ask))
        return tuple(clients), answers


def _answers(batches: Iterator[Examples], ask: Ask[Any], workers: int) -> Iterator[Bounded]:
    """The answers in order; at most two batches a worker are on their way at any time."""
    with ProcessPoolExecutor(workers, initializer=_remember, initargs=(ask,)) as pool:
        waiting: deque[Future[Bounded]] = deque()
        for batch in batches:
            waiting.append(pool.submit(_answer, batch))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_ASKED: dict[str, Ask[Any]] = {}
"""In a worker process: the question, which is sent once and not with each batch."""


def _remember(ask: Ask[Any]) -> None:
    _ASKED["now"] = ask


def _answer(batch: Examples) -> Bounded:
    return answer(batch, _ASKED["now"])

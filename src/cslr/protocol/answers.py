"""How a device answers requests: one function per kind, listed in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cslr.arrays import FloatArray
from cslr.privacy.values import Bounded
from cslr.protocol.evaluation import answers_of
from cslr.protocol.list_mode import list_of
from cslr.protocol.ports import Ask, AskKind, Examples, Request
from cslr.protocol.round import blocks_of, contribute, contribute_block
from cslr.protocol.updates import update_of

__all__ = ["ANSWERS", "Device", "answer"]

ANSWERS: Final[Mapping[AskKind, Callable[[Any, Ask[Any]], Bounded]]] = {
    "sum": contribute,
    "block": contribute_block,
    "list": list_of,
    "update": update_of,
    "evaluation": answers_of,
}
"""What clients hold, and what they are asked -> (b, D) their answers, clipped."""


def answer(rows: Any, ask: Ask[Any]) -> Bounded:
    """The answers of b clients with these rows; each depends on the client's own rows only."""
    return ANSWERS[ask.kind](rows, ask)


@dataclass(eq=False)
class Device:
    """Answers requests for the clients of one round, and caches work between requests.

    The four statistics of a task share one request: what clients compute for the first statistic is
    cached, per client, until another request arrives.
    """

    _request: Request | None = field(default=None, init=False)
    _blocks: dict[tuple[int, ...], list[FloatArray]] = field(default_factory=dict, init=False)

    def answer(self, examples: Examples, ask: Ask[Any]) -> Bounded:
        """As ``answer``; the examples of the same clients must stay the same."""
        if ask.kind != "block":
            return answer(examples, ask)
        if ask.request is not self._request:
            self._request, self._blocks = ask.request, {}
        if examples.clients not in self._blocks:
            self._blocks[examples.clients] = blocks_of(examples, ask.request)
        return contribute_block(examples, ask, self._blocks[examples.clients])

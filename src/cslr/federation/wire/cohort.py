"""Clients in one process whose answers travel as signed messages: a federation without a network.

The sum is the simulation's, integer for integer. Messages are checked, refused and recovered as
over a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cslr.federation.simulation import SimulatedCohort
from cslr.federation.wire.codec import KINDS, Kind, Question
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.inbox import Inbox
from cslr.federation.wire.terms import terms_of
from cslr.privacy.values import Bounded, Summed, leaving
from cslr.protocol.ports import Ask

__all__ = ["InboxCohort", "identities"]


def identities(addresses: Iterable[int]) -> dict[int, Identity]:
    """A fresh key for each registered client, by its address (``Population.addresses``)."""
    return {int(address): Identity.new(f"client-{address}") for address in addresses}


@dataclass
class InboxCohort:
    """The clients of one round, as the server may ask them: by messages into an inbox."""

    clients: SimulatedCohort
    members: Mapping[int, Identity]
    """By address of each registered client, which is its number unless rows name their clients."""
    federation: str
    run: str
    space: str
    """The digest of the public space that clients use."""
    asked: int = field(default=0, init=False)
    """Questions so far, which number the rounds."""

    def __post_init__(self) -> None:
        unknown = set(self.clients.population.addresses.tolist()) - self.members.keys()
        if unknown:
            raise ValueError(f"members: {len(unknown)} registered clients have no signing identity")

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum of what the inbox accepts."""
        answer = self.clients.device.answer
        answers = [(batch.clients, answer(batch, ask)) for batch in self.clients.batches()]
        inbox = self._inbox(ask, leaving(answers[0][1]).shape[1])
        taking_part = set(self.clients.population.addresses[self.clients.taking_part].tolist())
        for clients, bounded in answers:
            # Each side computes the terms itself; the client from the grid that it clipped to.
            terms = terms_of(bounded.grid, self.space)
            question = replace(inbox.expected.question, terms=terms)
            for client, row in zip(clients, leaving(bounded), strict=True):
                if client in taking_part:  # an empty cohort's batch has no client
                    inbox.accept(self.members[client].answer(question, row[None]))
        return inbox.close()

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """As in the simulation, where the mechanism draws the noise of the devices."""
        return self.clients.each(ask)

    def _inbox(self, ask: Ask[Any], width: int) -> Inbox:
        """The inbox of a question. width: D of the answers; a real server computes it itself."""
        self.asked += 1
        terms = terms_of(ask.grid, self.space)
        kind = message_kind(ask)
        question = Question(self.federation, self.run, self.asked, ask.label, kind, terms)
        keys = {member.client: member.public for member in self.members.values()}
        return Inbox(Expected(question, width, ask.grid, self.space), keys)


def message_kind(ask: Ask[Any]) -> Kind:
    """The kind of message that answers a question; it has the name of the kind of question."""
    if ask.kind == "evaluation":
        raise ValueError(f"ask: an evaluation does not travel as a message; known: {KINDS}")
    return ask.kind

"""Clients in one process whose answers travel as signed messages: a federation without a network.

The sum is the simulation's, integer for integer; what the way there refuses and survives is the
same as over a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cslr.engines.codec import Kind, Question
from cslr.engines.inbox import Inbox
from cslr.engines.simulation import SimulatedCohort
from cslr.engines.wire.expected import Expected
from cslr.engines.wire.identity import Identity
from cslr.privacy.grid import Grid
from cslr.privacy.secure_sum import leaving
from cslr.privacy.values import Bounded, Summed
from cslr.protocol.ports import Device

__all__ = ["InboxCohort", "identities"]


def identities(count: int) -> dict[int, Identity]:
    """A fresh key for each of the registered clients 0 … count − 1."""
    return {client: Identity.new(f"client-{client}") for client in range(count)}


@dataclass
class InboxCohort:
    """The clients of one round, as the server may ask them: by messages into an inbox."""

    clients: SimulatedCohort
    members: Mapping[int, Identity]
    federation: str
    run: str
    kind: Kind = "sum"
    asked: int = field(default=0, init=False)
    """Questions so far, which number the rounds."""

    def total(self, device: Device) -> Summed:
        """The sum of what the inbox accepts."""
        answers = [(batch.clients, device(batch)) for batch in self.clients.batches()]
        sent = [
            (client, row[None])
            for clients, answer in answers
            for client, row in zip(clients, leaving(answer), strict=True)
        ]
        # In earnest grid and width are the server's own; here both sides compute them alike.
        inbox = self._inbox(answers[0][1].grid, sent[0][1].shape[1])
        for client, row in sent:
            inbox.accept(self.members[client].answer(inbox.expected.question, row))
        return inbox.close()

    def each(self, device: Device) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """As in the simulation, where the mechanism stands in for the devices' own noise."""
        return self.clients.each(device)

    def _inbox(self, grid: Grid, width: int) -> Inbox:
        self.asked += 1
        label = f"task {self.clients.task}"
        question = Question(self.federation, self.run, self.asked, label, self.kind)
        keys = {member.client: member.public for member in self.members.values()}
        return Inbox(Expected(question, width, grid), keys)

"""A member that answers with something else: it counts as silent, and the release goes on."""

from __future__ import annotations

import pytest

from cslr.federation.parties.asking import pack_statistics, release_of
from cslr.federation.parties.coordinator import Reply
from cslr.methods.cslr import agree
from cslr.protocol.round import sum_ask
from tests.federation.parties.machines import InProcess

HOSTILE = 2


class Altered(InProcess):
    """One member's answers are replaced on one route."""

    route = ""
    alter = staticmethod(lambda answers, asked: b"")

    def ask(self, route, bodies, seconds):
        replies = super().ask(route, bodies, seconds)
        if route == self.route and HOSTILE in replies:
            answers = {member: reply.body for member, reply in replies.items()}
            replies[HOSTILE] = Reply(self.alter(answers, bodies))
        return replies


def flipped(answer: bytes, place: int) -> bytes:
    """The answer with all bits of one byte changed."""
    changed = bytearray(answer)
    changed[place] ^= 0xFF
    return bytes(changed)


ALTERATIONS = {
    "nothing": lambda answers, asked: b"",
    "noise": lambda answers, asked: bytes(range(256)) * 4,
    "another's": lambda answers, asked: answers[1],
    "the request": lambda answers, asked: asked[HOSTILE],
    "cut": lambda answers, asked: answers[HOSTILE][:-1],
    "longer": lambda answers, asked: answers[HOSTILE] + b"\0",
    "flipped": lambda answers, asked: flipped(answers[HOSTILE], -70),
}


@pytest.mark.parametrize("route", ["keys", "shares"])
def test_keys_and_shares_that_are_not_its_own_leave_a_member_out(machines, make_drawer, route):
    federation = machines()
    altered = Altered(federation.transport.nodes)
    altered.route = route
    federation.transport = altered
    for alter in ALTERATIONS.values():
        altered.alter = alter
        federation.events.clear()
        context, coordinator = federation.server(make_drawer())
        with context.ledger:
            coordinator._prepare("task 0")
        rejected = [event.members for event in federation.events if event.what == "rejected"]
        assert rejected == [(HOSTILE,)]
        assert sorted(coordinator.server._round.shared) == [0, 1, 3, 4]


@pytest.mark.parametrize("name", sorted(ALTERATIONS))
@pytest.mark.parametrize("route", ["mask", "consent", "unmask"])
def test_a_release_goes_on_without_the_answer(machines, drawer, route, name):
    federation = machines()
    altered = Altered(federation.transport.nodes)
    altered.route, altered.alter = route, ALTERATIONS[name]
    federation.transport = altered
    context, coordinator = federation.server(drawer)
    with context.ledger:
        request = agree(context).request(0, context.tasks[0])
        charge = context.plan.charge("task 0", 0)
        release = release_of(sum_ask(request), charge.sigma)
        question = pack_statistics(0, request.prototypes.mean)
        noised = coordinator.total(release, question, charge, context.ledger)
    assert noised.survivors == ((0, 1, 3, 4) if route == "mask" else (0, 1, 2, 3, 4))
    rejected = {event.members for event in federation.events if event.what == "rejected"}
    assert rejected == {(HOSTILE,)}

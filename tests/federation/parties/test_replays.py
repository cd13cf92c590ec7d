"""A server that shows old messages again, or tells nodes of different survivors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cslr.errors import CslrError, SumAborted
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from tests.federation.parties.machines import N

FREE = ("hello", "agreement", "result")
"""Questions that are no part of a session."""


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_nothing_of_an_earlier_session_is_answered_anew(machines, drawer, restarted):
    """Only the latest question is answered again, with the same bytes."""
    federation, asked = machines(), []

    def record(route, member, body):
        if route not in FREE:
            asked.append((route, member, body))
        return body

    federation.transport.tamper = record
    federation.learn(drawer)
    if restarted:
        for number in range(N):
            federation.end(number)
            federation.start(number)
    nodes = [federation.node(number) for number in range(N)]
    spent = [federation.spent(number) for number in range(N)]
    latest = {member: (route, body) for route, member, body in asked}
    for route, member, body in asked:
        if latest[member] == (route, body):
            assert nodes[member].answer(route, body) == nodes[member]._saved.answer
            continue
        with pytest.raises(CslrError, match=r"epoch|session"):
            nodes[member].answer(route, body)
    assert [federation.spent(number) for number in range(N)] == spent
    assert len(asked) == 8 * N, "five questions of the first task, three of the second"


def test_nodes_that_are_told_of_different_survivors_unmask_nothing(machines, drawer):
    federation, told = machines(), []

    def split(route, member, body):
        if route != "consent":
            return body
        request = decode(body, SumLimits(N, federation.charter.coordinates))
        gone = 4 if member < 2 else 3
        if member == gone:
            return body
        told.append(member)
        alive = tuple(each for each in request.alive if each != gone)
        return encode(replace(request, alive=alive, dropped=(gone,)))

    federation.transport.tamper, federation.attempts = split, 1
    with pytest.raises(SumAborted, match="members"):
        federation.learn(drawer)
    assert len(told) == N - 1
    assert not federation.transport.sizes.get("unmask"), "nobody gave a share away"
    assert not drawer.kept

"""The same federation behind Flower's apps and a grid in one process."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from cslr.errors import MalformedMessage
from cslr.federation.flower.apps import CODES_FROM, body_of, client_app, message_for
from cslr.federation.flower.transport import GridTransport
from cslr.federation.parties.refusals import FAILED
from tests.federation.flower.local_grid import LocalGrid
from tests.federation.parties.machines import N


def behind_flower(federation) -> LocalGrid:
    """Every node as a ClientApp; node 10 + i of the grid is member i."""
    nodes = federation.transport.nodes
    apps = {10 + number: client_app(nodes[number].answer) for number in range(N)}
    grid = LocalGrid(apps)
    federation.transport = GridTransport(grid, federation.roster.terms(federation.charter))
    return grid


def test_a_stream_is_learnt_through_flowers_messages(machines, drawer, make_drawer):
    federation = machines()
    nodes = federation.transport.nodes
    grid = behind_flower(federation)
    _, ledger, coordinator = federation.learn(drawer)
    assert drawer.kept.keys() == {"task 0", "task 1"}
    assert coordinator.exchanges == 8
    assert [charge.label for charge in ledger.charges] == ["task 0", "task 1"]
    assert all(len(node.ledger.charges) == 2 for node in nodes.values())
    assert np.isfinite(drawer.kept["task 1"]).all()
    grid.apps = {}
    assert federation.transport.present() == frozenset()
    federation.transport.nodes = nodes


def test_a_node_that_is_gone_is_left_out(machines, drawer):
    federation = machines()
    nodes = federation.transport.nodes
    grid = behind_flower(federation)
    grid.lose = lambda message: (
        message.metadata.dst_node_id == 12 and message.metadata.message_type == "query.mask"
    )
    federation.learn(drawer)
    summed = [event.members for event in federation.events if event.what == "summed"]
    assert summed == [(0, 1, 3, 4)] * 2
    federation.transport.nodes = nodes


def test_an_error_leaves_a_node_as_a_code_without_text():
    log = []

    def answer(route, body):
        raise ValueError("Marie Holt has a knee")

    grid = LocalGrid({1: client_app(answer, log.append)})
    (reply,) = grid.send_and_receive([message_for(1, "mask", b"x", 5.0)])
    assert (reply.error.code, reply.error.reason) == (CODES_FROM + FAILED, "")
    assert log == ["mask: ValueError: Marie Holt has a knee"]


def test_a_message_without_bytes_is_refused():
    empty = Message(
        RecordDict({"cslr": ConfigRecord({"body": 3})}), dst_node_id=1, message_type="query.mask"
    )
    with pytest.raises(MalformedMessage, match="carries no bytes"):
        body_of(empty)
    asked = []
    grid = LocalGrid({1: client_app(lambda route, body: asked.append(body) or b"")})
    (reply,) = grid.send_and_receive([empty])
    assert reply.has_error()
    assert not asked


def test_the_deadline_is_the_time_to_live():
    assert message_for(1, "keys", b"", 7.5).metadata.ttl == 7.5


def test_somebody_else_on_the_grid_is_no_member(machines):
    federation = machines()
    nodes = federation.transport.nodes
    grid = behind_flower(federation)
    grid.apps = {**grid.apps, 99: client_app(lambda route, body: bytes(68))}
    assert federation.transport.present() == frozenset(range(N))
    federation.transport.nodes = nodes

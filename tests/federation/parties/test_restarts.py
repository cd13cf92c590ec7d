"""Nodes and servers that end in any phase and start again: nothing is under-charged or reused."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.errors import BudgetExceeded, SumAborted
from cslr.federation.parties import coordinator as coordinator_module
from cslr.federation.parties.coordinator import Counters
from cslr.methods.cslr import stages
from cslr.privacy.ledger.book import Ledger
from tests.federation.parties.machines import N

PHASES = ("keys", "shares", "mask", "consent", "unmask")


class Killed(BaseException):
    """The process is gone."""


def balanced(federation, kept) -> None:
    """Client ledgers ≥ server ledger ≥ releases, and no noise share in two sums."""
    server = Ledger.read(federation.folder / "server" / "ledger.jsonl")
    labels = [charge.label for charge in server.charges]
    assert set(kept.kept) <= set(labels)
    for label in set(labels):
        survivors = [n for n in range(N) if federation.spent(n).count(label) >= labels.count(label)]
        assert len(survivors) >= federation.charter.threshold
    for number in range(N):
        marks = federation.node(number).client._state.noise_keys
        assert len(set(marks)) == len(marks) <= len(federation.spent(number))


@pytest.mark.parametrize("phase", PHASES)
def test_a_node_that_ends_before_it_answers_is_back_for_the_next_task(machines, drawer, phase):
    federation, lost = machines(), []

    def tamper(route, member, body):
        if route == phase and member == 2 and not lost:
            lost.append(federation.end(2))
        elif route == "mask" and lost and 2 not in federation.transport.present():
            pass
        return body

    federation.transport.tamper = tamper
    context, _ = federation.server(drawer)
    with context.ledger:
        for number, stage in enumerate(stages(context)):
            stage()
            if number == 1:
                assert federation.transport.nodes[2] is None
                federation.start(2)
    assert drawer.kept.keys() == {"task 0", "task 1"}
    survivors = [event.members for event in federation.events if event.what == "summed"]
    sent = phase in ("consent", "unmask")
    assert survivors == [(0, 1, 2, 3, 4) if sent else (0, 1, 3, 4), (0, 1, 2, 3, 4)]
    balanced(federation, drawer)


@pytest.mark.parametrize("phase", PHASES)
def test_an_answer_that_is_lost_is_given_again_with_the_same_bytes(machines, drawer, phase):
    federation, answers = machines(), []

    def tamper(route, member, body):
        if route == phase and member == 1:
            answers.append(federation.node(1).answer(route, body))
            federation.end(1)
            federation.start(1)
        return body

    federation.transport.tamper = tamper
    before = federation.spent(1)
    federation.learn(drawer)
    assert answers
    assert not federation.transport.refused
    assert [event.members for event in federation.events if event.what == "summed"] == [
        (0, 1, 2, 3, 4)
    ] * 2
    assert federation.spent(1) == [*before, "task 0", "task 1"]
    balanced(federation, drawer)


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_ends_in_a_phase_begins_a_new_session(machines, make_drawer, phase, drawn):
    federation, kept, died = machines(), make_drawer(), []

    def tamper(route, member, body):
        if route == phase and member == 3 and not died:
            died.append(route)
            raise Killed
        return body

    federation.transport.tamper = tamper
    with pytest.raises(Killed):
        federation.learn(kept)
    federation.learn(kept)
    assert kept.kept.keys() == {"task 0", "task 1"}
    # Members whose masked vector had left are charged twice, the server once.
    twice = phase in ("consent", "unmask")
    assert federation.spent(4).count("task 0") == 1 + twice
    assert federation.spent(0).count("task 0") == 1 + (twice or phase == "mask")
    used = [key for keys in drawn.values() for key in keys]
    assert len(set(used)) == len(used)
    balanced(federation, kept)


def test_a_server_that_ends_after_its_charge_asks_nobody_again(machines, make_drawer):
    federation, kept = machines(), make_drawer()
    honest, kept.save = kept.save, None
    with pytest.raises(TypeError, match="not callable"):
        federation.learn(kept)
    spent = federation.spent(0)
    assert spent == ["task 0"]
    kept.save = honest
    federation.learn(kept)
    assert federation.spent(0) == ["task 0", "task 1"]
    assert len(Ledger.read(federation.folder / "server" / "ledger.jsonl").charges) == 2


def test_too_few_nodes_end_the_session_and_every_attempt_is_charged(machines, drawer):
    federation = machines()

    def tamper(route, member, body):
        return None if route == "consent" and member in (0, 1) else body

    federation.transport.tamper = tamper
    with pytest.raises(SumAborted, match="only 3 members signed"):
        federation.learn(drawer)
    assert not drawer.kept
    attempts = 1 + federation.charter.spare
    assert federation.spent(4) == ["task 0"] * attempts
    assert sum(event.what == "aborted" for event in federation.events) == attempts
    # The next server finds nodes that have spent what the budget has room for.
    with pytest.raises(SumAborted, match="only 0 members sent"):
        federation.learn(drawer)
    refused = {type(error) for _, _, error in federation.transport.refused}
    assert refused == {BudgetExceeded}
    assert federation.node(4).ledger.epsilon("end_to_end", "server") <= federation.charter.epsilon


def test_numbers_of_sessions_are_never_used_twice(tmp_path):
    counters = Counters.at(tmp_path / "counters.json")
    counters.epoch, counters.session = 3, 7
    counters.save()
    again = Counters.at(tmp_path / "counters.json")
    assert (again.epoch, again.session) == (3, 7 + coordinator_module._SHARES_AHEAD)


def test_noise_grows_with_the_survivors_and_never_falls_below_the_claim(machines, drawer):
    federation = machines()
    federation.end(0)
    _, ledger, _ = federation.learn(drawer)
    federation.start(0)
    sigma = federation.charter.noise
    assert [charge.carried for charge in ledger.charges] == pytest.approx(
        [sigma * np.sqrt(4 / 3)] * 2, rel=1e-6
    )
    assert all(charge.carried >= charge.sigma for charge in ledger.charges)

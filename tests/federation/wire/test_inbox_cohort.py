"""Clients who answer by signed messages: the very integers of the simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.federation.wire.cohort import InboxCohort, identities
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL, Grid
from cslr.protocol.evaluation import Exam
from cslr.protocol.ports import Ask
from cslr.protocol.round import Session, block_ask, sum_ask
from cslr.protocol.step4_aggregate.contribution import BLOCKS


def messaging(cohort):
    members = identities(cohort.population.addresses)
    return InboxCohort(cohort, members, "clinics", "run 1", "a space")


@pytest.mark.parametrize("block", range(4))
def test_a_message_says_which_question_it_answers(world, monkeypatch, block):
    """Label and kind are those of the question, and so is the bound."""
    asked = []
    inbox = InboxCohort._inbox

    def noting(self, ask, width):
        asked.append(inbox(self, ask, width).expected.question)
        return inbox(self, ask, width)

    monkeypatch.setattr(InboxCohort, "_inbox", noting)
    agreement = world.agreement(clipping="separate", bounds=(0.2, 0.2, 0.2, 0.2))
    ask = block_ask(agreement.request(1, (2, 3)), block)
    messaging(world.population.cohort(1, np.ones(12, dtype=bool), cap=2)).total(ask)
    assert [(each.label, each.kind) for each in asked] == [(f"task 1 {BLOCKS[block]}", "block")]


def test_an_evaluation_does_not_travel_as_a_message(world):
    cohort = messaging(world.population.cohort(0, np.ones(12, dtype=bool), cap=2))
    with pytest.raises(ValueError, match="an evaluation does not travel as a message"):
        cohort._inbox(Ask("evaluation", "evaluation", Exam(2), Grid(1.0)), 4)


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("part", [12, 5, 0])
def test_the_sum_of_messages_is_the_sum_of_the_simulation(world, task, part):
    agreement = world.agreement(sub_modes=2, list_size=4)
    cohort = world.population.cohort(task, np.arange(12) < part, cap=9)
    ask = sum_ask(agreement.request(task, ((0, 1), (2, 3))[task]))
    straight = cohort.total(ask)
    by_message = messaging(cohort).total(ask)
    assert by_message.grid == straight.grid
    np.testing.assert_array_equal(by_message.total(_SEAL), straight.total(_SEAL))
    assert np.any(straight.total(_SEAL)) == (part > 0)


@pytest.mark.parametrize("part", [12, 5, 0])
def test_named_clients_send_messages_under_their_addresses(world, part):
    """Rows that came with names: addresses are large numbers, negative for clients without rows."""
    addresses = np.concatenate([2**62 + 977 * np.arange(9), -1 - np.arange(3)])
    named = replace(world.population, ids=addresses)
    ask = sum_ask(world.agreement().request(0, (0, 1)))
    cohort = named.cohort(0, np.arange(12) < part, cap=9)
    np.testing.assert_array_equal(
        messaging(cohort).total(ask).total(_SEAL), cohort.total(ask).total(_SEAL)
    )


def test_a_whole_round_of_named_clients_by_messages_is_the_round(world, make_ledger, make_drawer):
    """The server names lists by their senders' addresses; the sum that follows goes by message."""
    population = replace(world.population, ids=2**40 + 31 * np.arange(12))
    agreement = world.agreement(
        sub_modes=2, list_size=2, release="list", pooled=True, list_bound=0.8
    )
    plan = calibrate(Budget(4.0), 1, 1.0, schedule=Schedule(replay=1, lists=1))
    cohort = population.cohort(0, np.ones(12, dtype=bool), cap=2)

    def released(each):
        session = Session(agreement, plan, make_ledger(math.inf), make_drawer())
        return session.release(0, (0, 1), each).value

    straight, by_message = released(cohort), released(messaging(cohort))
    np.testing.assert_array_equal(by_message.sums.offset, straight.sums.offset)


def test_a_registered_client_without_an_identity_is_named_before_the_round(world):
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), cap=2)
    with pytest.raises(ValueError, match="members: 2 registered clients have no signing identity"):
        InboxCohort(cohort, identities(range(10)), "clinics", "run 1", "a space")


@pytest.mark.parametrize("release", ["sum", "list"])
def test_a_whole_round_by_messages_is_the_round(world, make_ledger, make_drawer, release):
    clipping = {"clipping": "separate", "bounds": (0.2, 0.2, 0.2, 0.2)}
    lists = {"release": "list", "pooled": True, "list_bound": 0.8}
    agreement = world.agreement(
        sub_modes=2, list_size=2, **(lists if release == "list" else clipping)
    )
    releases = Schedule(replay=1, lists=1) if release == "list" else Schedule(replay=4)
    plan = calibrate(Budget(4.0), 1, 1.0, schedule=releases)
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), cap=2)
    by_message = messaging(cohort)
    found = []
    for each in (cohort, by_message):
        session = Session(agreement, plan, make_ledger(math.inf), make_drawer())
        found.append(session.release(0, (0, 1), each).value)
    assert by_message.asked == (1 if release == "list" else 4)
    for name in ("weight", "offset", "second", "target"):
        straight, by_message = (getattr(each.sums, name) for each in found)
        np.testing.assert_array_equal(by_message, straight)

"""Clients who answer by signed messages: the very integers of the simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cslr.federation.wire.cohort import InboxCohort, identities
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL
from cslr.protocol.round import contribute, one_round


def messaging(cohort, **more):
    members = identities(cohort.population.addresses)
    return InboxCohort(cohort, members, "clinics", "run 1", "a space", **more)


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("part", [12, 5, 0])
def test_the_sum_of_messages_is_the_sum_of_the_simulation(world, task, part):
    agreement = world.agreement(sub_modes=2, list_size=4)
    cohort = world.population.cohort(task, np.arange(12) < part, cap=9)
    device = partial(contribute, request=agreement.request(task, ((0, 1), (2, 3))[task]))
    straight = cohort.total(device)
    by_message = messaging(cohort).total(device)
    assert by_message.grid == straight.grid
    np.testing.assert_array_equal(by_message.total(_SEAL), straight.total(_SEAL))
    assert np.any(straight.total(_SEAL)) == (part > 0)


@pytest.mark.parametrize("part", [12, 5, 0])
def test_named_clients_send_messages_under_their_addresses(world, part):
    """Rows that came with names: addresses are large numbers, negative for clients without rows."""
    addresses = np.concatenate([2**62 + 977 * np.arange(9), -1 - np.arange(3)])
    named = replace(world.population, ids=addresses)
    device = partial(contribute, request=world.agreement().request(0, (0, 1)))
    cohort = named.cohort(0, np.arange(12) < part, cap=9)
    np.testing.assert_array_equal(
        messaging(cohort).total(device).total(_SEAL), cohort.total(device).total(_SEAL)
    )


def test_a_whole_round_of_named_clients_by_messages_is_the_round(world, make_ledger, make_drawer):
    """The server names lists by their senders' addresses; the sum that follows goes by message."""
    population = replace(world.population, ids=2**40 + 31 * np.arange(12))
    agreement = world.agreement(
        sub_modes=2, list_size=2, release="list", pooled=True, list_bound=0.8
    )
    plan = calibrate(Budget(4.0), 1, 1.0, schedule=Schedule(replay=1, lists=1))
    cohort = population.cohort(0, np.ones(12, dtype=bool), cap=2)
    straight, by_message = (
        one_round(0, (0, 1), each, agreement, plan, make_ledger(math.inf), make_drawer()).value
        for each in (cohort, messaging(cohort))
    )
    np.testing.assert_array_equal(by_message.sums.offset, straight.sums.offset)


def test_a_registered_client_without_an_identity_is_named_before_the_round(world):
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), cap=2)
    with pytest.raises(ValueError, match="members: 2 registered clients have no identity"):
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
    found = [
        one_round(0, (0, 1), each, agreement, plan, make_ledger(math.inf), make_drawer()).value
        for each in (cohort, messaging(cohort, kind="sum" if release == "list" else "block"))
    ]
    for name in ("weight", "offset", "second", "target"):
        straight, by_message = (getattr(each.sums, name) for each in found)
        np.testing.assert_array_equal(by_message, straight)

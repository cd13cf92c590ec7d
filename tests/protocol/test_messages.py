"""Every kind of message is declared once, and a charge that fits none is refused."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import PrivacyError
from cslr.numerics.mixture import Gaussians
from cslr.privacy.accounting import Charge
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.protocol.agreement import simulated_clients
from cslr.protocol.list_mode import list_statistics
from cslr.protocol.messages import (
    MESSAGES,
    TARGET_BOUND,
    MessageKind,
    messages_of,
    with_bound,
)
from cslr.protocol.round import statistics_of
from cslr.protocol.step4_aggregate.contribution import BLOCKS
from cslr.protocol.updates import UpdateId
from cslr.seeding import Seeds

PLAN = calibrate(Budget(4.0), 3, 0.5, schedule=Schedule(replay=4, lists=1, head=2), head_q=0.3)


def only(charge: Charge) -> MessageKind:
    (message,) = messages_of(charge)
    return message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_the_function_that_makes_a_message_exists(message):
    module, name = message.made_by.rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), name))


def test_no_kind_is_declared_twice():
    names = [message.name for message in MESSAGES]
    assert len(set(names)) == len(names)


def test_the_charges_of_a_plan_are_for_the_messages_they_are_named_after():
    assert only(PLAN.charge("task 2", 2)).name == "statistics of a task"
    for block in BLOCKS:
        assert only(PLAN.charge(f"task 0 {block}", 0)).name == f"{block} of a task"
    assert only(PLAN.list_charge("task 1 list", 1)).name == "list of a task"
    updates = messages_of(PLAN.head_charge(UpdateId(1, 0, 12).label, 1, 0))
    assert {message.made_by.split(".")[1] for message in updates} == {"protocol"}


def test_an_update_without_noise_is_declared_and_costs_everything():
    open_ = Charge("task 0 update 1", 4, "head", None, task=0)
    assert "update of a head" in {message.name for message in messages_of(open_)}


@pytest.mark.parametrize("label", ["local training", "pooled training"])
def test_what_is_read_openly_is_declared_without_noise_and_cannot_be_sold_as_noised(label):
    assert only(Charge(label, 0, "head", None)).noised_by == "nobody"
    with pytest.raises(PrivacyError, match="does not match any declared message"):
        messages_of(Charge(label, 0, "head", 2.0))


@pytest.mark.parametrize(
    "label", ["", "task", "task x", "task 0 list 2", "task 0 gradients", "task 0 update", "TASK 0"]
)
def test_a_label_that_nobody_declared_is_refused(label):
    with pytest.raises(PrivacyError, match="declare it in"):
        messages_of(Charge(label, 0, "replay", 2.0))


def test_a_list_may_claim_no_amplification():
    charge = PLAN.list_charge("task 0 list", 0)
    with pytest.raises(PrivacyError, match=r"q 0\.3"):
        messages_of(replace(charge, q=0.3))


def test_a_release_about_the_replay_cannot_be_charged_to_the_head():
    """Otherwise it would not count towards the ε of the scope ``replay``."""
    charge = PLAN.charge("task 0", 0)
    with pytest.raises(PrivacyError, match="part head"):
        messages_of(replace(charge, part="head"))


def test_whatever_reaches_the_server_by_name_is_noised_on_the_device_or_by_nobody():
    for message in MESSAGES:
        everyone = message.part == "evaluation"  # all clients take part in it, so no coin hides any
        assert (message.leaves == "server" or everyone) == message.full_rate
        assert message.noised_by != "aggregator" or message.leaves == "sum"
        assert message.clipped_by != "nothing" or message.noised_by == "nobody"
    assert math.isinf(calibrate(Budget(math.inf), 1).epsilon("roster"))


# -- the bounds of statistics that are clipped apart -----------------------------------------------


def test_statistics_clipped_apart_have_bounds_of_their_own_and_weights_say_what_is_kept(world):
    """Nine in ten simulated clients are longer, statistic by statistic, at the public centre.

    Entries named at random share a client's weight among modes, so weights differ in length.
    """
    lists = {"sub_modes": 2, "list_size": 3, "matcher": "random"}
    agreement = world.agreement(clipping="separate", **lists)
    agreement = with_bound(agreement, world.public, labels_per_task=2)
    spread = np.broadcast_to(agreement.space.spread, (4, 8))
    request = replace(agreement.request(0, (0, 1)), prototypes=Gaussians(np.zeros((4, 8)), spread))
    examples = simulated_clients(world.public, 2, Seeds(13))
    blocks = request.layout.blocks(statistics_of(examples, request))
    norms = [np.linalg.norm(block, axis=1) for block in blocks[:3]]
    expected = [np.quantile(each, 0.1) for each in norms]
    np.testing.assert_allclose(agreement.bounds, [*expected, TARGET_BOUND])
    assert agreement.kept == pytest.approx(np.minimum(1.0, expected[0] / norms[0]).mean())
    assert 0.5 < agreement.kept < 0.99
    assert len({round(bound, 6) for bound in agreement.bounds}) == 4


def test_nine_in_ten_simulated_lists_are_longer_than_the_bound_of_a_list(world):
    agreement = with_bound(
        world.agreement(release="list", sub_modes=2, list_size=2), world.public, labels_per_task=1
    )
    request = agreement.request(0, (0,))
    examples = simulated_clients(world.public, 1, Seeds(13))
    lists = list_statistics(examples, request)
    norms = np.linalg.norm(agreement.list_layout(1).pack(lists), axis=1)
    assert np.mean(norms > agreement.list_bound) == pytest.approx(0.9, abs=0.02)


def test_what_several_clients_add_for_one_unit_is_bounded_together(world):
    """With k clients per unit the bound is k times as large, and each client clips to 1/k of it."""
    alone, shared = (
        with_bound(world.agreement(clients_per_person=each), world.public, labels_per_task=2)
        for each in (1, 3)
    )
    assert shared.bounds[0] == pytest.approx(3 * alone.bounds[0])
    assert shared.kept == alone.kept
    (grid,) = shared.request(0, (0, 1)).grids
    assert (grid.bound, grid.share) == (shared.bounds[0], 3)

"""What is agreed before the first release: public, deterministic, blind to clients."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cslr.methods.cslr import agree
from cslr.protocol.agreement import simulated_clients
from cslr.protocol.messages import with_bound
from cslr.protocol.round import statistics_of
from cslr.protocol.step4_aggregate.contribution import Resolution
from cslr.seeding import Seeds


@pytest.mark.parametrize("lists", [{}, {"sub_modes": 2, "list_size": 4}], ids=["plain", "lists"])
@pytest.mark.parametrize("second_moments", ["shared", "diagonal"])
@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
def test_the_bound_is_positive_and_the_same_every_time(world, lists, second_moments, family):
    agreement = world.agreement(**lists, second_moments=second_moments, family=family)
    one, two = (with_bound(agreement, world.public, labels_per_task=2) for _ in range(2))
    (bound,) = one.bounds
    assert 0 < bound < 2.0
    assert 0 < one.list_bound < 4.0
    assert 0 < one.kept <= 1
    assert (one.bounds, one.list_bound, one.kept) == (two.bounds, two.list_bound, two.kept)
    before = {name: getattr(agreement, name) for name in ("bounds", "list_bound", "kept")}
    assert replace(one, **before) == agreement


def test_the_bound_clips_nine_in_ten_simulated_clients(world):
    agreement = with_bound(world.agreement(), world.public, labels_per_task=1)
    examples = simulated_clients(world.public, 1, Seeds(13))
    centre = replace(agreement.modes.prototypes, mean=np.zeros((4, 8)))
    request = replace(agreement, modes=replace(agreement.modes, prototypes=centre)).request(0, (0,))
    request = replace(
        request, prototypes=replace(request.prototypes, covariance=agreement.space.spread[None])
    )
    norms = np.linalg.norm(request.layout.pack(statistics_of(examples, request)), axis=1)
    assert np.mean(norms > agreement.bounds[0]) == pytest.approx(0.9, abs=0.02)


def test_what_is_agreed_does_not_depend_on_any_clients_data(make_context):
    context = make_context()
    other = replace(
        context.clients, z=np.random.default_rng(1).uniform(size=context.clients.z.shape)
    )
    one, two = agree(context), agree(replace(context, clients=other))
    assert one.public_facts() == two.public_facts()
    assert (one.bounds, one.list_bound) == (two.bounds, two.list_bound)
    np.testing.assert_array_equal(one.modes.prototypes.mean, two.modes.prototypes.mean)
    np.testing.assert_array_equal(one.space.anchors, two.space.anchors)


def test_public_facts_are_plain_json(world):
    facts = with_bound(world.agreement(), world.public, 2).public_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["clients"] == 12
    assert facts["modes"] == 4
    assert facts["family"] == "classification"
    assert facts["dimension"] == 8
    assert facts["space"]["encoder"] == "synthetic"


@pytest.mark.parametrize(
    "change",
    [
        {"bound": 0.3},
        {"list_size": 2},
        {"matcher": "random"},
        {"seed": 14},
        {"family": "intents"},
    ],
)
def test_another_agreement_has_other_public_facts(world, change):
    assert world.agreement(**change).public_facts() != world.agreement().public_facts()


def test_a_request_carries_the_prototypes_of_its_own_labels(world):
    agreement = world.agreement(sub_modes=2)
    everything = agreement.modes.prototypes.mean
    for labels in ((2, 3), (3, 2), (1,)):
        request = agreement.request(1, labels)
        assert request.layout.modes == 2 * len(labels)
        assert request.groups == tuple((label,) for label in labels)
        for place, label in enumerate(labels):
            np.testing.assert_array_equal(
                request.prototypes_of(place).mean, everything[2 * label : 2 * label + 2]
            )


def test_a_request_may_carry_means_that_earlier_releases_moved(world):
    agreement = world.agreement()
    moved = agreement.modes.prototypes.mean[2:] + 0.1
    request = agreement.request(1, (2, 3), moved)
    plain = agreement.request(1, (2, 3))
    np.testing.assert_array_equal(request.prototypes.mean, moved)
    np.testing.assert_array_equal(request.prototypes.covariance, plain.prototypes.covariance)


@pytest.mark.parametrize(("second_moments", "seconds"), [("shared", 1), ("diagonal", 8)])
@pytest.mark.parametrize(
    ("family", "targets"), [("classification", 0), ("intents", 4), ("tagging", 7)]
)
def test_a_layout_has_room_for_what_is_asked_for(world, second_moments, seconds, family, targets):
    layout = world.agreement(second_moments=second_moments, family=family).layout(3)
    assert layout.seconds == seconds
    assert layout.targets == targets
    assert layout.size == 3 * (1 + 8 + seconds + targets)


def test_more_clients_are_expected_to_weigh_more(world):
    agreement = world.agreement()
    assert replace(agreement, clients=24).expected_weight == 2 * agreement.expected_weight
    assert replace(agreement, kept=0.5).expected_weight == 0.5 * agreement.expected_weight


def test_simulated_clients_are_made_of_public_sentences(world):
    examples = simulated_clients(world.public, 2, Seeds(1))
    rows = {row.tobytes() for row in world.public}
    assert all(row.tobytes() in rows for row in examples.z.reshape(-1, 24))
    assert examples.mask.all()
    np.testing.assert_array_equal(np.unique(examples.labels), [0, 1])


def test_rows_of_one_simulated_label_are_more_alike_than_any_rows(world):
    examples = simulated_clients(world.public, 1, Seeds(1))
    within = examples.z.var(axis=1, ddof=1).sum(axis=-1).mean()
    assert within < 0.9 * world.public.var(axis=0).sum()


def test_facts_name_what_is_unlike_a_plan_of_few_units_only(world):
    """Plans of silos stay as they were written before there were people."""
    plain = world.agreement().public_facts()
    assert not plain.keys() & {"clients_per_person", "resolution", "paper"}
    people = world.agreement(clients_per_person=2, resolution=Resolution(tied=5)).public_facts()
    assert people["clients_per_person"] == 2
    assert people["resolution"]["tied"] == 5
    assert people.keys() - plain.keys() == {"clients_per_person", "resolution"}

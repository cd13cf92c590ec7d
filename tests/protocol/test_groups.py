"""Modes about several labels: a task's own groups, and targets that say which label it was."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.methods.cslr import stages
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.head import HeadSettings, initial_head, label_targets
from cslr.protocol.public_space import declare_modes
from cslr.protocol.round import Session, replay_of, statistics_of
from cslr.protocol.step5_rehearse import Rehearsal, Sampler, rehearse
from cslr.seeding import Seeds

POOLED = {"pooled": True, "sub_modes": 4, "list_size": 4, "bound": 8.0}
FAMILIES = ("classification", "intents", "tagging")


@pytest.fixture
def replay(world, make_ledger, drawer):
    """Q of both tasks without noise: ``replay(family, **settings)``."""

    def go(family="classification", **settings):
        told, agreement = world.told(family), world.agreement(family=family, **settings)
        session = Session(agreement, calibrate(Budget(math.inf), 2), make_ledger(), drawer)
        for task, labels in enumerate(world.tasks):
            cohort = told.population.cohort(task, np.ones(12, dtype=bool), 2)
            session.release(task, labels, cohort)
        return session.replay(), agreement

    return go


# -- what is declared ------------------------------------------------------------------------------


def test_without_groups_every_label_is_one(world):
    modes = world.modes(world.space(), sub_modes=2)
    assert modes.groups == ((0,), (1,), (2,), (3,))
    assert not modes.pooled
    np.testing.assert_array_equal(modes.group, modes.labels)


def test_pooled_modes_stand_by_task(world):
    modes = world.modes(world.space(), sub_modes=3, pooled=True)
    assert modes.groups == ((0, 1), (2, 3))
    assert modes.pooled
    np.testing.assert_array_equal(modes.group, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(modes.labels, [0, 0, 0, 2, 2, 2])
    assert modes.prototypes.mean.shape == (6, 8)


def test_a_task_is_about_its_group_or_about_its_labels_one_by_one(world):
    space = world.space()
    pooled, plain = world.modes(space, pooled=True), world.modes(space)
    assert pooled.groups_of((2, 3)) == ((2, 3),)
    assert plain.groups_of((3, 2)) == ((3,), (2,))
    np.testing.assert_array_equal(pooled.of_groups(((2, 3),)), [1])


def test_the_prototype_of_a_group_lies_between_those_of_its_labels(world):
    space = world.space()
    rng = np.random.default_rng(0)
    groups = [(0, 1), (2, 3)]
    pooled = declare_modes(space, world.public, world.texts, 1, "labels", rng, groups)
    plain = world.modes(space).prototypes.mean
    for place, group in enumerate(groups):
        middle = plain[list(group)].mean(axis=0)
        away = np.linalg.norm(pooled.prototypes.mean[place] - middle)
        assert away < 0.25 * np.linalg.norm(plain[group[0]] - plain[group[1]])


def test_other_groups_are_other_public_facts(world):
    one, two = (world.agreement(pooled=pooled).public_facts() for pooled in (True, False))
    assert one["modes"] == 2
    assert two["modes"] == 4
    assert one["prototypes"] != two["prototypes"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pooled_mode_has_room_for_a_target_in_every_family(world, family):
    agreement = world.agreement(pooled=True, family=family)
    assert agreement.layout(1).targets == agreement.family.outputs
    assert agreement.family.sent(pooled=True) == agreement.family.outputs


# -- what a client says ----------------------------------------------------------------------------


def test_the_usual_target_of_a_group_is_the_mean_of_its_labels(world):
    usual = world.family().usual_of((0, 1))
    np.testing.assert_array_equal(usual, [0.5, 0.5, 0, 0])
    tags = world.family("tagging").usual_of((0, 1))
    np.testing.assert_allclose(tags, [0.5, 0.25, 0.25, 0, 0, 0, 0])


def test_a_client_sends_how_often_each_label_of_the_group_is_met(world):
    examples = world.told("classification").examples(0)
    request = world.agreement(pooled=True).request(0, (0, 1))
    found = statistics_of(examples, request)
    assert found.target.shape == (12, 1, 4)
    for i in range(12):
        shares = label_targets(examples.labels[i, examples.mask[i]], 4).mean(axis=0)
        spoken = found.target[i, 0] / found.weight[i, 0] + [0.5, 0.5, 0, 0]
        np.testing.assert_allclose(spoken, shares, atol=1e-6)


def test_a_list_about_a_group_is_of_all_its_rows_and_of_no_others(world):
    told = world.told("classification")
    everything = told.population
    examples = told.examples(0)
    request = world.agreement(pooled=True).request(0, (0, 1))
    one = statistics_of(examples, request)
    other = replace(examples, mask=examples.mask & (examples.labels == 0))
    two = statistics_of(other, request)
    assert not np.allclose(one.offset, two.offset)
    x = request.space.into(everything.z)
    for client in range(12):
        mine = x[(everything.clients == client) & (everything.tasks == 0)]
        away = mine.mean(axis=0) - request.prototypes.mean[0]
        weight = min(len(mine), 8) / 8
        np.testing.assert_allclose(one.offset[client, 0], weight * away, atol=1e-6)


# -- what is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_without_noise_a_modes_target_says_which_labels_it_holds(world, replay, family):
    """One mode a task: its target is how often labels are met in the task."""
    found, agreement = replay(family, pooled=True, bound=8.0)
    people = world.told(family).population
    for task in (0, 1):
        shares = people.targets[people.tasks == task].mean(axis=0)
        np.testing.assert_allclose(found.targets[task], shares, atol=0.1)
    assert found.pooled
    assert found.heard.all()
    assert agreement.family.name == family


def test_with_several_modes_a_task_tells_its_labels_apart(world, replay):
    """Lists find the sub-topics, each of one label: most modes are nearly one-hot and right."""
    found, agreement = replay(**POOLED)
    people, x = world.population, agreement.space.into(world.population.z)
    means = np.stack([x[people.labels == label].mean(axis=0) for label in range(4)])
    sure = found.targets.max(axis=1) > 0.8
    assert sure.sum() >= 6  # of eight
    nearest = np.linalg.norm(found.mean[:, None] - means, axis=-1).argmin(axis=1)
    np.testing.assert_array_equal(found.targets.argmax(axis=1)[sure], nearest[sure])


def test_before_any_release_a_pooled_mode_is_as_much_about_each_of_its_labels(world):
    agreement = world.agreement(pooled=True)
    found = replay_of([], agreement).value
    np.testing.assert_array_equal(found.targets, [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    assert found.heard.all()


def test_without_a_prior_only_the_labels_of_released_groups_are_heard(world, make_ledger, drawer):
    agreement = world.agreement(pooled=True, prior="none")
    cohort = world.told("classification").population.cohort(0, np.ones(12, dtype=bool), 1)
    plan = calibrate(Budget(math.inf), 1)
    released = Session(agreement, plan, make_ledger(), drawer).release(0, (0, 1), cohort)
    found = replay_of([released], agreement).value
    np.testing.assert_array_equal(found.heard, [True, True, False, False])
    assert len(found.mean) == 1


def test_tasks_are_drawn_equally_often_where_a_mode_is_no_single_labels(replay):
    found, agreement = replay(**POOLED)
    sampler = Sampler.of(found, agreement.space)
    np.testing.assert_array_equal(sampler.kinds, found.tasks)
    z, targets = sampler.draw(50, np.random.default_rng(0))
    assert len(z) == 2 * 50
    assert targets[:50, :2].sum() > 45  # of the first task's labels
    assert targets[50:, 2:].sum() > 45


def test_a_head_learns_single_labels_from_pooled_modes(world, replay):
    found, agreement = replay(**POOLED)
    settings = HeadSettings(16, learning_rate=3e-3)
    start = initial_head(24, 4, settings, np.random.default_rng(0))
    how = Rehearsal(start, settings, 100, 80, Seeds(1))
    head = rehearse(found, agreement.space, world.family(), how)
    right = head.scores(world.test_z).argmax(axis=1) == world.test_labels
    assert right.mean() > 0.85


def test_a_head_learns_pooled_modes_in_the_passes_it_is_given_by_default(make_context, world):
    """Pooled modes have no linear rule to start from, as modes of single labels do."""
    *_, last = stages(make_context(release="pooled", sub_modes=4, n_r=500))
    right = last().scores(world.test_z).argmax(axis=1) == world.test_labels
    assert right.mean() > 0.8


# -- targets that are a head's logits --------------------------------------------------------------


def test_a_heads_logits_are_clipped_one_by_one_and_sent_as_targets(world):
    head = initial_head(24, 4, HeadSettings(16), np.random.default_rng(0))
    head = replace(head, weights2=100 * head.weights2)
    agreement = world.agreement(pooled=True)
    request = agreement.request(0, (0, 1), head=head)
    found = statistics_of(world.told("classification").examples(0), request)
    spoken = found.target[:, 0] / found.weight
    assert np.all(np.linalg.norm(spoken, axis=1) <= 1 + 1e-6)  # a mean of vectors in the ball
    np.testing.assert_allclose(spoken.sum(axis=1), 0.0, atol=1e-6)  # about their own mean
    assert np.linalg.norm(spoken, axis=1).max() > 0.3


def test_logits_are_read_as_answers_among_the_labels_of_the_group(world, make_ledger, drawer):
    """A head predicts label 1 with certainty in task 0: its replay has target 1, none of task 1."""
    head = initial_head(24, 4, HeadSettings(16), np.random.default_rng(0))
    sure = replace(head, bias2=np.array([0.0, 50.0, 60.0, 0.0], dtype=np.float32))
    agreement, plan = world.agreement(pooled=True, bound=8.0), calibrate(Budget(math.inf), 1)
    cohort = world.told("classification").population.cohort(0, np.ones(12, dtype=bool), 1)
    released = Session(agreement, plan, make_ledger(), drawer).release(0, (0, 1), cohort, head=sure)
    assert released.value.logits
    target = replay_of([released], agreement).value.targets[0]
    assert target[1] > 0.9
    np.testing.assert_array_equal(target[2:], 0.0)
    assert target.sum() == pytest.approx(1.0)

"""Replay samples stand where they should, and a head learns from them alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cslr.protocol import step5_rehearse
from cslr.protocol.head import Family, HeadSettings, initial_head
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.protocol.step5_rehearse import (
    OVERLAP,
    TRUSTED,
    WORDS_OVERLAP,
    Rehearsal,
    Sampler,
    _company,
    rehearse,
)
from cslr.seeding import Seeds

WIDTH = 24
FOUR = Family("classification", 4)


def replay_at(
    means: np.ndarray,
    labels=None,
    weights=None,
    relative=1.0,
    family=FOUR,
    centre=None,
    tasks=None,
    trust=0.0,
) -> Replay:
    """Modes at these means; without ``tasks`` none was released yet."""
    count = len(means)
    labels = np.arange(count) if labels is None else np.array(labels)
    return Replay(
        weights=np.full(count, 1 / count) if weights is None else np.array(weights),
        mean=means,
        centre=np.zeros_like(means) if centre is None else centre,
        relative=np.full((count, 1), relative),
        labels=labels,
        heard=np.isin(np.arange(family.labels), labels),
        pooled=False,
        tasks=np.full(count, -1) if tasks is None else np.array(tasks),
        targets=family.usual[labels],
        covariance=None,
        known=np.ones(count, dtype=bool),
        trust=np.broadcast_to(trust, count),
        floored=0.0,
    )


def means_of(world, space) -> np.ndarray:
    """(4, r) where the clients' labels really are."""
    people = world.population
    return np.stack([space.into(people.z[people.labels == k]).mean(axis=0) for k in range(4)])


@pytest.fixture(scope="module")
def space(world):
    return world.space()


@pytest.fixture(scope="module")
def replay(world, space):
    return replay_at(means_of(world, space))


@pytest.fixture(scope="module")
def sampler(replay, space):
    return Sampler.of(replay, space)


def covariance(sampler: Sampler, label: int) -> np.ndarray:
    """(d, d) of the samples of a label with one mode and one scale."""
    factor = sampler.basis.astype(np.float64) @ sampler.factor
    return factor @ factor.T * float(sampler.scale[label, 0]) ** 2


@pytest.mark.parametrize("samples", [1, 2, 7, 40])
def test_every_label_is_drawn_equally_often(world, space, samples):
    replay = replay_at(means_of(world, space), family=Family("classification", 6))
    z, targets = Sampler.of(replay, space).draw(samples, np.random.default_rng(0))
    assert z.shape == (4 * samples, WIDTH)
    assert targets.shape == (4 * samples, 6)
    np.testing.assert_array_equal(targets.sum(axis=1), 1)
    np.testing.assert_array_equal(targets.sum(axis=0), [samples] * 4 + [0, 0])


def test_samples_with_whole_covariances_are_white_noise_by_each_modes_factor(world, space):
    """Written out for every sample: z = μ_k + B C_k ε with Σ_k = C_k C_kᵀ in the basis B."""
    means = means_of(world, space)
    factors = np.random.default_rng(3).standard_normal((4, *2 * means.shape[1:]))
    whole = factors @ np.swapaxes(factors, -1, -2) + np.eye(means.shape[1])
    replay = replace(replay_at(means, labels=[0, 0, 1, 1]), covariance=whole)
    sampler = Sampler.of(replay, space)
    z, _ = sampler.draw(9, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    modes = np.concatenate([sampler._modes_of(kind, 9, rng) for kind in (0, 1)])
    half = rng.standard_normal((5, WIDTH), dtype=np.float32)
    white = np.tile(np.concatenate([half, -half])[:9], (2, 1))
    for found, mode, noise in zip(z, modes, white, strict=True):
        shape = np.zeros((WIDTH, WIDTH))
        r = means.shape[1]
        shape[:r, :r], shape[r:, r:] = whole[mode], space.shape[r:, r:]
        expected = sampler.mean[mode] + space.basis @ np.linalg.cholesky(shape) @ noise
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_mean_of_a_labels_samples_is_its_mode(sampler):
    z, targets = sampler.draw(40, np.random.default_rng(0))
    for label in range(4):
        found = z[targets[:, label] == 1].mean(axis=0)
        np.testing.assert_allclose(found, sampler.mean[label], atol=1e-5)


def test_samples_of_two_labels_differ_exactly_as_their_modes_do(sampler):
    z, _ = sampler.draw(15, np.random.default_rng(0))
    z = z.reshape(4, 15, WIDTH)
    for other in range(1, 4):
        apart = np.broadcast_to(sampler.mean[other] - sampler.mean[0], (15, WIDTH))
        np.testing.assert_allclose(z[other] - z[0], apart, atol=1e-5)


def test_modes_without_a_task_keep_their_direction_and_stand_at_one_distance(
    sampler, replay, space
):
    offset = (sampler.mean - space.centre) @ space.basis
    np.testing.assert_allclose(offset[:, 8:], 0, atol=1e-6)  # nothing is known there
    along = np.sum(offset[:, :8] * replay.mean, axis=1)
    length = np.linalg.norm(offset[:, :8], axis=1) * np.linalg.norm(replay.mean, axis=1)
    np.testing.assert_allclose(along / length, 1, atol=1e-5)
    for label in range(4):
        centred = sampler.mean[label] - space.centre
        distance = np.sqrt(centred @ np.linalg.solve(covariance(sampler, label), centred))
        assert distance == pytest.approx(OVERLAP, rel=1e-3)


@pytest.mark.parametrize(
    ("trust", "expected"),
    [(0.0, WORDS_OVERLAP), (0.5, (WORDS_OVERLAP + TRUSTED) / 2), (1.0, TRUSTED)],
)
def test_types_of_words_stand_farther_apart_the_better_they_are_known(
    world, space, trust, expected
):
    """In standard deviations of samples that spread as all public words do."""
    replay = replay_at(means_of(world, space), trust=trust)
    sampler = Sampler.of(replay, space, of_words=True)
    spread = space.basis @ space.whole_shape @ space.basis.T
    np.testing.assert_allclose(covariance(sampler, 0), spread, atol=1e-5)
    for label in range(4):
        centred = sampler.mean[label] - space.centre
        distance = np.sqrt(centred @ np.linalg.solve(covariance(sampler, label), centred))
        assert distance == pytest.approx(expected, rel=1e-3)
    plain = Sampler.of(replay, space)  # texts do not care
    np.testing.assert_array_equal(plain.mean, Sampler.of(replay_at(replay.mean), space).mean)


def test_the_types_of_a_task_stand_apart_by_their_common_trust(world, space):
    """All modes of a task are scaled by one factor, so their distances keep their proportions."""
    means = means_of(world, space)
    together = replay_at(means, tasks=[0, 0, 1, 1], trust=[0.6, 0.8, 0.5, 0.5])
    equal = replay_at(means, tasks=[0, 0, 1, 1], trust=[0.5**0.5, 0.5**0.5, 0.5, 0.5])
    one, other = (Sampler.of(each, space, of_words=True) for each in (together, equal))
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)


def test_samples_spread_as_widely_as_public_sentences(sampler, space):
    z, _ = sampler.draw(4000, np.random.default_rng(0))
    found = z[:4000].var(axis=0).sum()
    assert found == pytest.approx(space.between.sum() + np.trace(space.within), rel=0.05)


def test_a_wider_replay_has_wider_samples(world, space):
    spreads = [
        Sampler.of(replay_at(means_of(world, space), relative=relative), space)
        .draw(400, np.random.default_rng(0))[0][:400]
        .var(axis=0)
        .sum()
        for relative in (1.0, 4.0)
    ]
    assert spreads[1] == pytest.approx(4 * spreads[0], rel=1e-3)


def test_directions_may_differ_in_width(world, space):
    wide = np.ones((4, 8))
    wide[:, 0] = 9.0
    plain, diagonal = (
        Sampler.of(replace(replay_at(means_of(world, space)), relative=relative), space).draw(
            2000, np.random.default_rng(0)
        )[0][:2000]
        for relative in (np.ones((4, 8)), wide)
    )
    ratio = ((diagonal - space.centre) @ space.basis).var(axis=0)
    ratio = ratio / ((plain - space.centre) @ space.basis).var(axis=0)
    # The released directions are as told, the others have the mean of those.
    np.testing.assert_allclose(ratio, [9.0] + [1.0] * 7 + [2.0] * 16, rtol=1e-3)


def test_sub_modes_are_drawn_by_their_weights(world, space):
    means = means_of(world, space)
    replay = replay_at(means, labels=[0, 0, 1, 1], weights=[0.75, 0.25, 0.0, 0.0])
    sampler = Sampler.of(replay, space)
    z, targets = sampler.draw(4000, np.random.default_rng(1))
    np.testing.assert_array_equal(targets.sum(axis=0), [4000, 4000, 0, 0])
    for label, expected in ((0, [0.75, 0.25]), (1, [0.5, 0.5])):  # without weights: evenly
        mixed = expected @ sampler.mean[2 * label : 2 * label + 2]
        found = z[targets[:, label] == 1].mean(axis=0)
        np.testing.assert_allclose(found, mixed, atol=0.05)


def test_a_sample_carries_the_target_of_its_mode(world, space):
    soft = np.random.default_rng(0).dirichlet(np.ones(4), size=4).astype(np.float32)
    replay = replay_at(means_of(world, space), labels=[0, 0, 1, 1], weights=[1.0, 0.0, 0.0, 1.0])
    _, targets = Sampler.of(replace(replay, targets=soft), space).draw(3, np.random.default_rng(0))
    np.testing.assert_array_equal(targets, soft[[0, 0, 0, 3, 3, 3]])


def distances(sampler: Sampler, centre: np.ndarray, space) -> np.ndarray:
    """(K,) of the modes from ``centre`` (K, r), in standard deviations of their samples."""
    away = sampler.mean - space.lift(np.pad(centre, ((0, 0), (0, WIDTH - 8))))
    return np.array(
        [
            np.sqrt(each @ np.linalg.solve(covariance(sampler, mode), each))
            for mode, each in enumerate(away)
        ]
    )


def test_the_modes_of_a_task_stand_at_one_mean_distance_and_keep_their_proportions(world, space):
    means = means_of(world, space) * np.array([[1.0], [2.0], [0.1], [0.3]])
    sampler = Sampler.of(replay_at(means, tasks=[0, 0, 1, 1]), space)
    found = distances(sampler, np.zeros_like(means), space)
    for task in (slice(0, 2), slice(2, 4)):
        assert np.sqrt(np.mean(found[task] ** 2)) == pytest.approx(OVERLAP, rel=1e-3)
        moved = (sampler.mean[task] - space.centre) @ space.basis[:, :8]
        one, two = np.linalg.norm(moved, axis=1) / np.linalg.norm(means[task], axis=1)
        assert one == pytest.approx(two, rel=1e-3)


def test_modes_are_moved_away_from_what_they_are_told_apart_around(world, space):
    # Two tasks with the same two labels: what a task's labels share is the middle, and is kept.
    means = means_of(world, space)
    middle = np.repeat([means[:2].mean(axis=0), means[2:].mean(axis=0)], 2, axis=0)
    replay = replay_at(means, labels=[0, 1, 0, 1], centre=middle, tasks=[0, 0, 1, 1])
    sampler = Sampler.of(replay, space)
    np.testing.assert_allclose(distances(sampler, middle, space), OVERLAP, rtol=1e-3)
    for first in (0, 2):
        kept = space.into(sampler.mean[first : first + 2].mean(axis=0))
        np.testing.assert_allclose(kept, middle[first], atol=1e-5)


def test_the_same_stream_draws_the_same_samples(sampler):
    one, two = (sampler.draw(10, np.random.default_rng(3))[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = sampler.draw(10, np.random.default_rng(4))[0]
    assert not np.allclose(one, other)


# -- the first head --------------------------------------------------------------------------------


def head_of(hidden: int, labels: int = 4):
    return initial_head(WIDTH, labels, HeadSettings(hidden), np.random.default_rng(0))


@pytest.mark.parametrize("targets", [[1.0, 1.0], [0.2, 0.2], [0.5, 0.0]])
def test_targets_of_any_sum_become_distributions(targets):
    found = step5_rehearse._distributions(np.array([targets]))
    np.testing.assert_allclose(found[0], np.array(targets) / sum(targets), rtol=1e-9)


@pytest.mark.parametrize("relative", [1.0, 2.5])
def test_a_head_begins_at_the_bayes_rule_of_the_samples(world, space, relative):
    sampler = Sampler.of(replay_at(means_of(world, space), relative=relative), space)
    head = sampler.linear_start(head_of(16), FOUR)
    z, _ = sampler.draw(50, np.random.default_rng(0))

    def log_density(mean):
        return multivariate_normal(mean, covariance(sampler, 0)).logpdf(z)

    expected = np.stack(
        [log_density(mean) - log_density(space.centre) for mean in sampler.mean], axis=1
    )
    np.testing.assert_allclose(head.scores(z), expected, atol=0.02)
    np.testing.assert_array_equal(head.scores(z).argmax(axis=1), expected.argmax(axis=1))


def test_where_tasks_share_labels_a_head_begins_blind_to_how_tasks_differ(world, space):
    """The Bayes rule of samples that also spread as the middles of the tasks do."""
    means = means_of(world, space)
    middle = np.repeat([means[:2].mean(axis=0), means[2:].mean(axis=0)], 2, axis=0)
    replay = replay_at(means, labels=[0, 1, 0, 1], centre=middle, tasks=[0, 0, 1, 1])
    sampler = Sampler.of(replay, space)
    z, _ = sampler.draw(50, np.random.default_rng(0))
    found = sampler.linear_start(head_of(16), FOUR).scores(z)
    apart = space.basis[:, :8] @ (middle[0] - middle[2]) / 2
    wide = covariance(sampler, 0) + np.outer(apart, apart)
    for label in (0, 1):
        mean = sampler.mean[[label, label + 2]].mean(axis=0)
        ratio = multivariate_normal(mean, wide).logpdf(z)
        ratio -= multivariate_normal(space.centre, wide).logpdf(z)
        np.testing.assert_allclose(found[:, label], ratio, atol=0.02)


def test_the_other_hidden_units_are_silent_at_first_and_keep_their_input(sampler):
    before = head_of(16)
    after = sampler.linear_start(before, FOUR)
    np.testing.assert_array_equal(after.weights1[:, 8:], before.weights1[:, 8:])
    np.testing.assert_array_equal(after.weights2[8:], 0.0)


def test_labels_that_are_not_in_the_replay_score_zero_at_first(world, space):
    five = Family("classification", 5)
    replay = replay_at(means_of(world, space)[:2], labels=[1, 3], family=five)
    scores = Sampler.of(replay, space).linear_start(head_of(16, 5), five).scores(world.test_z)
    np.testing.assert_array_equal(scores[:, [0, 2, 4]], 0.0)
    assert np.all(np.any(scores[:, [1, 3]] != 0, axis=0))


def test_both_tags_of_a_type_begin_with_its_rule(world, space):
    tags = Family("tagging", 4)
    sampler = Sampler.of(replay_at(means_of(world, space), family=tags), space)
    found = sampler.linear_start(head_of(16, tags.outputs), tags).scores(world.test_z)
    labels = sampler.linear_start(head_of(16), FOUR).scores(world.test_z)
    np.testing.assert_allclose(found, labels[:, [0, 1, 1, 2, 2, 3, 3]], atol=1e-6)


def test_a_head_too_narrow_for_the_rule_is_left_alone(sampler):
    narrow, enough = head_of(7), head_of(8)
    assert sampler.linear_start(narrow, FOUR) is narrow
    assert sampler.linear_start(enough, FOUR) is not enough


# -- rehearsal -------------------------------------------------------------------------------------


def rehearsed(replay, space, hidden=16, passes=5, seed=1, family=FOUR, goes_on=False):
    settings = HeadSettings(hidden, learning_rate=3e-3, sigmoid=family.sigmoid)
    start = initial_head(WIDTH, family.outputs, settings, np.random.default_rng(0))
    how = Rehearsal(start, settings, 60, passes, Seeds(seed), goes_on=goes_on)
    return rehearse(replay, space, family, how)


def accuracy(head, world) -> float:
    return float(np.mean(head.scores(world.test_z).argmax(axis=1) == world.test_labels))


def test_a_head_learns_separated_classes_from_replay_alone(world, replay, space):
    assert accuracy(rehearsed(replay, space), world) > 0.95


def test_a_head_too_narrow_for_the_linear_rule_learns_them_too(world, replay, space):
    head = rehearsed(replay, space, hidden=7, passes=200)
    assert accuracy(head, world) > 0.95


def test_rehearsal_is_deterministic(replay, space):
    one, two, other = (rehearsed(replay, space, seed=seed) for seed in (1, 1, 2))
    for name, array in vars(one).items():
        np.testing.assert_array_equal(array, getattr(two, name))
    assert not np.array_equal(one.weights1, other.weights1)


def test_training_moves_the_head_away_from_its_linear_start(replay, space, sampler):
    start = sampler.linear_start(head_of(16), FOUR)
    assert not np.allclose(rehearsed(replay, space).weights2, start.weights2, atol=1e-3)


def answers(scores):
    """(n, c) which labels are predicted: those above ½, and the best one in any case."""
    yes = scores > 0
    yes[np.arange(len(yes)), scores.argmax(axis=1)] = True
    return yes


def test_a_head_learns_intents_that_come_together(world, replay, space):
    """The target of label 0's mode contains label 1: texts of label 0 are predicted as both."""
    intents, soft = Family("intents", 4), np.eye(4)
    soft[0, 1] = 1.0
    head = rehearsed(replace(replay, targets=soft), space, passes=100, family=intents)
    yes = answers(head.scores(world.test_z))
    right = soft[world.test_labels] > 0
    assert np.mean(yes[:, :2] == right[:, :2]) > 0.85


def test_intents_are_answered_in_the_order_in_which_labels_would_be(replay, space, world):
    """One scale and one threshold for all outputs: the best answer is the linear rule's."""
    labels = rehearsed(replay, space, passes=0)
    intents = rehearsed(replay, space, family=Family("intents", 4))
    order = [np.argsort(head.scores(world.test_z), axis=1) for head in (labels, intents)]
    np.testing.assert_array_equal(*order)


def test_where_one_intent_is_right_one_is_answered(replay, space, world):
    head = rehearsed(replay, space, passes=100, family=Family("intents", 4))
    answered = answers(head.scores(world.test_z)).sum(axis=1)
    assert np.mean(answered == 1) > 0.98
    spread = world.test_z - world.test_z.mean(axis=0)  # texts differ more than samples do
    assert np.mean(answers(head.scores(1.5 * spread)).sum(axis=1) == 1) > 0.9


def test_a_head_that_clients_train_further_starts_with_likely_scores(replay, space, world):
    """A strict threshold answers well, and gradients of what it finds unlikely are all alike."""
    right = np.eye(4)[world.test_labels]

    def scores(goes_on: bool):
        head = rehearsed(replay, space, family=Family("intents", 4), goes_on=goes_on)
        return head.scores(world.test_z).astype(np.float64)

    strict, likely = scores(False), scores(True)
    np.testing.assert_array_equal(np.argsort(strict, axis=1), np.argsort(likely, axis=1))
    loss = [np.mean(np.logaddexp(0.0, each) - right * each) for each in (strict, likely)]
    assert loss[1] < 0.8 * loss[0]


def test_a_head_learns_how_often_a_type_begins(world, space):
    tags = Family("tagging", 4)
    soft = tags.usual.copy()
    soft[1, 1:3] = 0.8, 0.2
    replay = replace(replay_at(means_of(world, space), family=tags), targets=soft)
    scores = rehearsed(replay, space, passes=100, family=tags).scores(world.test_z)
    odds = np.diff(scores.reshape(-1, 7)[:, 1:3], axis=1).mean()
    assert odds == pytest.approx(np.log(0.2 / 0.8), abs=0.5)


def untrained(replay, space, family=FOUR):
    """The head of a rehearsal without passes: the linear rule, and how often labels are met."""
    return rehearsed(replay, space, passes=0, family=family)


def test_labels_met_equally_often_add_nothing_to_the_scores(replay, space, sampler):
    np.testing.assert_allclose(untrained(replay, space).bias2, 0.0, atol=1e-6)
    tasks = replace(replay, tasks=np.array([0, 0, 1, 1]), weights=np.array([0.4, 0.4, 0.1, 0.1]))
    np.testing.assert_allclose(untrained(tasks, space).bias2, 0.0, atol=1e-6)


def test_a_label_met_more_often_within_its_task_is_answered_more_readily(replay, space):
    uneven = replace(replay, tasks=np.array([0, 0, 1, 1]), weights=np.array([0.3, 0.1, 0.3, 0.3]))
    bias = untrained(uneven, space).bias2
    assert bias[0] - bias[1] == pytest.approx(np.log(3), abs=1e-5)
    assert bias[2] == pytest.approx(bias[3])


def test_a_label_that_noise_left_without_weight_can_still_be_answered(replay, space):
    none = replace(replay, tasks=np.zeros(4, int), weights=np.array([0.5, 0.5, 0.0, 0.0]))
    bias = untrained(none, space).bias2
    assert np.isfinite(bias).all()
    assert bias[2] < bias[0]


def test_most_words_are_publicly_expected_to_be_part_of_no_name(world, space):
    tags = Family("tagging", 4)
    bias = untrained(replay_at(means_of(world, space), family=tags), space, tags).bias2
    expected = np.log(tags.shares[0] / tags.shares[1])
    np.testing.assert_allclose(bias[0] - bias[1:], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["classification", "intents", "tagging"])
def test_only_tagging_is_rehearsed_with_the_sampler_of_words(world, space, name):
    family = Family(name, 4)
    replay = replay_at(means_of(world, space), family=family, tasks=[0, 0, 1, 1], trust=0.5)
    samplers = {words: Sampler.of(replay, space, of_words=words) for words in (False, True)}
    start = initial_head(WIDTH, family.outputs, HeadSettings(16), np.random.default_rng(0))
    rules = {words: each.linear_start(start, family).weights1 for words, each in samplers.items()}
    assert not np.allclose(rules[True], rules[False], rtol=0.05)
    found = untrained(replay, space, family).weights1
    np.testing.assert_array_equal(found, rules[name == "tagging"])


def test_company_of_a_label_is_what_its_texts_often_have_too():
    replay = replay_at(np.zeros((3, 4)), labels=[0, 0, 1], weights=[0.6, 0.2, 0.2])
    targets = np.array([[1.0, 0.8], [1.0, 0.0], [0.4, 1.0]])
    company = _company(replace(replay, targets=targets))
    np.testing.assert_allclose(company, [[0.0, 0.6], [0.0, 0.0]])  # 0.4 is too rare

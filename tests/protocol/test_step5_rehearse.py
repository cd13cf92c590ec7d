"""Replay samples stand where they should, and a head learns from them alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cslr.protocol.head import HeadSettings, initial_head
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.protocol.step5_rehearse import OVERLAP, Sampler, rehearse
from cslr.seeding import Seeds

WIDTH = 24


def replay_at(means: np.ndarray, labels=None, weights=None, relative=1.0) -> Replay:
    count = len(means)
    return Replay(
        weights=np.full(count, 1 / count) if weights is None else np.array(weights),
        mean=means,
        relative=np.full((count, 1), relative),
        labels=np.arange(count) if labels is None else np.array(labels),
        known=np.ones(count, dtype=bool),
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
def test_every_label_is_drawn_equally_often(sampler, samples):
    z, targets = sampler.draw(samples, 6, np.random.default_rng(0))
    assert z.shape == (4 * samples, WIDTH)
    assert targets.shape == (4 * samples, 6)
    np.testing.assert_array_equal(targets.sum(axis=1), 1)
    np.testing.assert_array_equal(targets.sum(axis=0), [samples] * 4 + [0, 0])


def test_the_mean_of_a_labels_samples_is_its_mode(sampler):
    z, targets = sampler.draw(40, 4, np.random.default_rng(0))
    for label in range(4):
        found = z[targets[:, label] == 1].mean(axis=0)
        np.testing.assert_allclose(found, sampler.mean[label], atol=1e-5)


def test_samples_of_two_labels_differ_exactly_as_their_modes_do(sampler):
    z, _ = sampler.draw(15, 4, np.random.default_rng(0))
    z = z.reshape(4, 15, WIDTH)
    for other in range(1, 4):
        apart = np.broadcast_to(sampler.mean[other] - sampler.mean[0], (15, WIDTH))
        np.testing.assert_allclose(z[other] - z[0], apart, atol=1e-5)


def test_modes_keep_their_direction_and_stand_at_one_distance(sampler, replay, space):
    offset = (sampler.mean - space.centre) @ space.basis
    np.testing.assert_allclose(offset[:, 8:], 0, atol=1e-6)  # nothing is known there
    along = np.sum(offset[:, :8] * replay.mean, axis=1)
    length = np.linalg.norm(offset[:, :8], axis=1) * np.linalg.norm(replay.mean, axis=1)
    np.testing.assert_allclose(along / length, 1, atol=1e-5)
    for label in range(4):
        centred = sampler.mean[label] - space.centre
        distance = np.sqrt(centred @ np.linalg.solve(covariance(sampler, label), centred))
        assert distance == pytest.approx(OVERLAP, rel=1e-3)


def test_samples_spread_as_widely_as_public_sentences(sampler, space):
    z, _ = sampler.draw(4000, 4, np.random.default_rng(0))
    found = z[:4000].var(axis=0).sum()
    assert found == pytest.approx(space.between.sum() + np.trace(space.within), rel=0.05)


def test_a_wider_replay_has_wider_samples(world, space):
    spreads = [
        Sampler.of(replay_at(means_of(world, space), relative=relative), space)
        .draw(400, 4, np.random.default_rng(0))[0][:400]
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
            2000, 4, np.random.default_rng(0)
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
    z, targets = sampler.draw(4000, 2, np.random.default_rng(1))
    np.testing.assert_array_equal(targets.sum(axis=0), [4000, 4000])
    for label, expected in ((0, [0.75, 0.25]), (1, [0.5, 0.5])):  # without weights: evenly
        mixed = expected @ sampler.mean[2 * label : 2 * label + 2]
        found = z[targets[:, label] == 1].mean(axis=0)
        np.testing.assert_allclose(found, mixed, atol=0.05)


def test_the_same_stream_draws_the_same_samples(sampler):
    one, two = (sampler.draw(10, 4, np.random.default_rng(3))[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = sampler.draw(10, 4, np.random.default_rng(4))[0]
    assert not np.allclose(one, other)


# -- the first head --------------------------------------------------------------------------------


def head_of(hidden: int, labels: int = 4):
    return initial_head(WIDTH, labels, HeadSettings(hidden), np.random.default_rng(0))


@pytest.mark.parametrize("relative", [1.0, 2.5])
def test_a_head_begins_at_the_bayes_rule_of_the_samples(world, space, relative):
    sampler = Sampler.of(replay_at(means_of(world, space), relative=relative), space)
    head = sampler.linear_start(head_of(16))
    z, _ = sampler.draw(50, 4, np.random.default_rng(0))

    def log_density(mean):
        return multivariate_normal(mean, covariance(sampler, 0)).logpdf(z)

    expected = np.stack(
        [log_density(mean) - log_density(space.centre) for mean in sampler.mean], axis=1
    )
    np.testing.assert_allclose(head.scores(z), expected, atol=0.02)
    np.testing.assert_array_equal(head.scores(z).argmax(axis=1), expected.argmax(axis=1))


def test_the_other_hidden_units_are_silent_at_first_and_keep_their_input(sampler):
    before = head_of(16)
    after = sampler.linear_start(before)
    np.testing.assert_array_equal(after.weights1[:, 8:], before.weights1[:, 8:])
    np.testing.assert_array_equal(after.weights2[8:], 0.0)


def test_labels_that_are_not_in_the_replay_score_zero_at_first(world, space):
    sampler = Sampler.of(replay_at(means_of(world, space)[:2], labels=[1, 3]), space)
    scores = sampler.linear_start(head_of(16, labels=5)).scores(world.test_z)
    np.testing.assert_array_equal(scores[:, [0, 2, 4]], 0.0)
    assert np.all(np.any(scores[:, [1, 3]] != 0, axis=0))


def test_a_head_too_narrow_for_the_rule_is_left_alone(sampler):
    narrow, enough = head_of(7), head_of(8)
    assert sampler.linear_start(narrow) is narrow
    assert sampler.linear_start(enough) is not enough


# -- rehearsal -------------------------------------------------------------------------------------


def rehearsed(replay, space, hidden=16, passes=5, seed=1):
    settings = HeadSettings(hidden, learning_rate=3e-3)
    start = initial_head(WIDTH, 4, settings, np.random.default_rng(0))
    return rehearse(replay, space, start, settings, 60, passes, Seeds(seed))


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
    start = sampler.linear_start(head_of(16))
    assert not np.allclose(rehearsed(replay, space).weights2, start.weights2, atol=1e-3)

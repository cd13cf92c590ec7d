"""From noisy sums to Q: trust the data as far as they go beyond their noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.protocol.step4_aggregate.contribution import Layout, Statistics
from cslr.protocol.step4_aggregate.estimate import (
    VARIANCE_FLOOR,
    Noise,
    TaskRelease,
    estimate_replay,
)

CLIENTS = 50.0
QUIET = Noise(1e-9, 1e-9, 1e-9)
LOUD = Noise(1e6, 1e6, 1e6)


def released(modes, offsets, noise=QUIET, seconds=0.0, shape=1, weight=CLIENTS) -> TaskRelease:
    """Sums in which ``weight`` clients agree on the offsets (K_t, r) of some modes."""
    k = np.asarray(modes)
    offsets = np.broadcast_to(offsets, (len(k), 8))
    return TaskRelease(
        modes=k,
        sums=Statistics(
            np.full(len(k), weight), weight * offsets, np.full((len(k), shape), weight * seconds)
        ),
        noise=noise,
        expected_weight=CLIENTS,
    )


def offsets_like(space, count, seed=0):
    """(count, r) offsets with the spectrum the estimator expects."""
    rng = np.random.default_rng(seed)
    return np.sqrt(space.between[:8]) * rng.standard_normal((count, 8))


@pytest.fixture(scope="module")
def space(world):
    return world.space()


@pytest.fixture(scope="module", params=["labels", "none"])
def modes(request, world, space):
    return world.modes(space, prior=request.param)


@pytest.fixture(scope="module")
def by_texts(world, space):
    return world.modes(space)


@pytest.fixture(scope="module")
def blank(world, space):
    return world.modes(space, prior="none")


@pytest.mark.parametrize("noise", [QUIET, Noise(0.0, 0.0, 0.0)])
def test_without_noise_the_data_are_believed(space, modes, noise):
    offsets = offsets_like(space, 4)
    replay = estimate_replay([released(range(4), offsets, noise)], modes, space)
    np.testing.assert_allclose(replay.mean, modes.prototypes.mean + offsets, atol=1e-7)
    assert replay.known.all()


def test_drowned_in_noise_the_prior_is_believed(space, modes):
    replay = estimate_replay([released(range(4), offsets_like(space, 4), LOUD)], modes, space)
    np.testing.assert_allclose(replay.mean, modes.prototypes.mean, atol=1e-3)
    np.testing.assert_allclose(replay.relative, 1.0, atol=1e-3)
    np.testing.assert_allclose(replay.weights, 0.25, atol=1e-3)


def test_more_noise_means_less_trust(space, by_texts):
    offsets = offsets_like(space, 4)
    moved = [
        np.linalg.norm(
            estimate_replay(
                [released(range(4), offsets, Noise(1.0, noise, 1.0))], by_texts, space
            ).mean
            - by_texts.prototypes.mean
        )
        for noise in (0.01, 3.0, 10.0, 30.0, 100.0)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.5 * moved[0]


def test_more_clients_mean_more_trust(space, by_texts):
    offsets, noise = offsets_like(space, 4), Noise(0.0, 20.0, 20.0)
    moved = [
        np.linalg.norm(
            estimate_replay(
                [released(range(4), offsets, noise, weight=weight)], by_texts, space
            ).mean
            - by_texts.prototypes.mean
            - offsets
        )
        for weight in (10.0, 100.0, 1e3, 1e6)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.01 * moved[0]


def test_shrunk_means_are_nearer_to_the_truth_than_the_prior_or_the_data(space, by_texts):
    noise, errors = 12.0, []
    for seed in range(20):
        truth = offsets_like(space, 4, seed)
        seen = truth + noise / CLIENTS * np.random.default_rng(99 + seed).standard_normal((4, 8))
        replay = estimate_replay(
            [released(range(4), seen, Noise(1.0, noise, 1.0))], by_texts, space
        )
        found = replay.mean - by_texts.prototypes.mean
        errors.append([np.square(guess - truth).sum() for guess in (found, seen, 0.0)])
    shrunk, data, prior = np.mean(errors, axis=0)
    assert shrunk < min(data, prior)


def test_what_released_tasks_have_in_common_moves_modes_not_released_yet(space, by_texts):
    common = 3 * np.sqrt(space.between[:8])
    replay = estimate_replay([released([0, 1, 2], common)], by_texts, space)
    moved = replay.mean[3] - by_texts.prototypes.mean[3]
    np.testing.assert_allclose(moved, common, rtol=0.05)
    np.testing.assert_array_equal(replay.known, [True, True, True, False])


def test_without_anything_in_common_unreleased_modes_stay_nearly_where_they_are(space, by_texts):
    own = np.array([1.0, -1.0])[:, None] * 2 * np.sqrt(space.between[:8])
    replay = estimate_replay([released([0, 1], own)], by_texts, space)
    moved = np.linalg.norm(replay.mean[3] - by_texts.prototypes.mean[3])
    assert moved < 0.01 * np.linalg.norm(own[0])


def test_without_a_prior_labels_not_released_are_left_out(space, blank):
    replay = estimate_replay([released([1, 3], offsets_like(space, 2))], blank, space)
    np.testing.assert_array_equal(replay.labels, [1, 3])
    assert replay.known.all()
    assert replay.weights.shape == (2,)


def test_before_any_release_the_label_prior_is_all_there_is(space, by_texts):
    replay = estimate_replay([], by_texts, space)
    np.testing.assert_array_equal(replay.mean, by_texts.prototypes.mean)
    np.testing.assert_allclose(replay.weights, 0.25)
    np.testing.assert_array_equal(replay.relative, 1.0)
    assert not replay.known.any()


def test_before_any_release_and_without_a_prior_there_is_nothing(space, blank):
    replay = estimate_replay([], blank, space)
    assert replay.mean.shape == (0, 8)
    assert replay.weights.shape == replay.labels.shape == replay.known.shape == (0,)
    assert replay.gaussians(space).mean.shape == (0, 8)
    assert replay.floored == 0.0


@given(
    st.lists(st.floats(-200, 200), min_size=4, max_size=4),
    st.floats(0, 100),
    st.floats(-5, 5),
    st.sampled_from([1, 8]),
)
@settings(max_examples=30, deadline=None)
def test_whatever_noise_does_the_replay_is_a_proper_mixture(world, weights, noise, second, shape):
    space = world.space()
    release = released(range(4), 0.1, Noise(noise, noise, noise), second, shape)
    sums = replace(release.sums, weight=np.array(weights))
    replay = estimate_replay([replace(release, sums=sums)], world.modes(space), space)
    assert replay.weights.sum() == pytest.approx(1.0)
    assert np.all(replay.weights >= 0)
    assert np.all(replay.relative >= VARIANCE_FLOOR)
    assert np.all(replay.gaussians(space).covariance > 0)
    assert np.isfinite(replay.mean).all()


@pytest.mark.parametrize("shape", [1, 8])
def test_variances_that_noise_made_negative_are_floored_and_reported(space, by_texts, shape):
    narrow = estimate_replay([released(range(4), 0.0, QUIET, -3.0, shape)], by_texts, space)
    np.testing.assert_array_equal(narrow.relative, VARIANCE_FLOOR)
    assert narrow.floored == 1.0
    plain = estimate_replay([released(range(4), 0.0, QUIET, 0.0, shape)], by_texts, space)
    assert plain.floored == 0.0


@pytest.mark.parametrize("shape", [1, 8])
def test_variances_are_second_moments_less_squared_means(space, by_texts, shape):
    # Rows of variance v around p + o have second moment v + (p + o)², so excess ((v + …) − …)/s.
    offset, p = offsets_like(space, 4), by_texts.prototypes.mean
    scale = 0.6
    excess = (scale * space.spread + np.square(p + offset) - space.spread - np.square(p)) / (
        space.spread
    )
    excess = excess if shape == 8 else excess.mean(axis=1, keepdims=True)
    release = released(range(4), offset, shape=shape)
    sums = replace(release.sums, second=CLIENTS * excess)
    replay = estimate_replay([replace(release, sums=sums)], by_texts, space)
    np.testing.assert_allclose(replay.relative, scale, atol=1e-5)


def test_weights_follow_the_sums_when_these_are_clean(space, by_texts):
    release = released(range(4), 0.0)
    sums = replace(release.sums, weight=np.array([10.0, 20.0, 30.0, 40.0]))
    replay = estimate_replay([replace(release, sums=sums)], by_texts, space)
    np.testing.assert_allclose(replay.weights, [0.1, 0.2, 0.3, 0.4], atol=1e-9)


def test_a_mode_nobody_spoke_for_does_not_explode(space, by_texts):
    release = released(range(4), 0.1, Noise(0.0, 0.01, 0.01))
    sums = replace(release.sums, weight=np.array([50.0, 0.0, -3.0, 50.0]))
    replay = estimate_replay([replace(release, sums=sums)], by_texts, space)
    assert np.all(np.abs(replay.mean) < 10)


def test_tasks_released_one_by_one_are_read_as_if_released_together(space, by_texts):
    offsets = offsets_like(space, 4)
    one = estimate_replay([released(range(4), offsets)], by_texts, space)
    parts = [released([0, 1], offsets[:2]), released([2, 3], offsets[2:])]
    for order in (parts, parts[::-1]):
        np.testing.assert_array_equal(estimate_replay(order, by_texts, space).mean, one.mean)


def test_noise_is_told_in_the_units_of_its_block():
    layout = Layout(2, 8, 1, weight_scale=0.05, second_scale=0.5)
    noise = Noise.of(2.0, 0.3, layout)
    assert noise.offset == pytest.approx(0.6)
    assert noise.weight == pytest.approx(12.0)
    assert noise.second == pytest.approx(1.2)
    assert Noise.of(None, 0.3, layout) == Noise(0.0, 0.0, 0.0)


def test_tasks_that_share_labels_each_append_their_own_modes(world):
    """A domain stream: the same labels again are new modes, not a replacement of the old."""
    space = world.space()
    modes = world.modes(space)
    rng = np.random.default_rng(3)
    tasks = [rng.normal(scale=0.3, size=(2, space.dimension)) for _ in range(2)]
    layout = Layout(2, space.dimension, 1, 0.05, 0.5)
    releases = [
        TaskRelease(
            modes=np.array([0, 1]),
            sums=Statistics(np.full(2, 10.0), 10.0 * offsets, np.zeros((2, 1))),
            noise=Noise.of(1e-6, 1.0, layout),
            expected_weight=10.0,
        )
        for offsets in tasks
    ]
    replay = estimate_replay(releases, modes, space)
    np.testing.assert_array_equal(replay.labels, [0, 0, 1, 1, 2, 3])
    np.testing.assert_array_equal(replay.known, [True] * 4 + [False] * 2)
    for label in (0, 1):
        for task in (0, 1):
            np.testing.assert_allclose(
                replay.mean[2 * label + task],
                modes.prototypes.mean[label] + tasks[task][label],
                atol=1e-3,
            )

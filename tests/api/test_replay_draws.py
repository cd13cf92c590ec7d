"""Draws from a released replay: labelled, repeatable, and spread as the modes are."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.api.replay_draws import ReplayDraws

WIDTH = 6  # d, of which four directions are released


def draws(variance: np.ndarray, known: tuple[float, ...] = (1.0, 1.0, 0.0)) -> ReplayDraws:
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((WIDTH, WIDTH)))[0]
    arrays = {
        "weights": np.array([0.6, 0.2, 0.2]),
        "mean": 5.0 * np.eye(4)[:3],
        "variance": variance,
        "labels": np.array([1.0, 0.0, 1.0]),
        "known": np.array(known),
        "centre": np.full(WIDTH, 0.5),
        "basis": basis,
    }
    return ReplayDraws(arrays, np.array(["cold", "warm"]))


def coordinates(found: ReplayDraws, z: np.ndarray) -> np.ndarray:
    return (z - found.arrays["centre"]) @ found.arrays["basis"]


def test_draws_have_the_released_means_variances_and_weights():
    variance = np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0]])
    replay = draws(variance)
    z, labels = replay.sample(40_000, seed=1)
    assert z.shape == (40_000, WIDTH)
    assert z.dtype == np.float32
    assert np.mean(labels == "warm") == pytest.approx(0.75, abs=0.02)  # 0.6 of 0.6 + 0.2
    x = coordinates(replay, z)
    warm = x[labels == "warm"]
    np.testing.assert_allclose(warm[:, :4].mean(axis=0), [5, 0, 0, 0], atol=0.02)
    np.testing.assert_allclose(warm[:, :4].var(axis=0), variance[0], rtol=0.05)
    np.testing.assert_allclose(x[:, 4:], 0.0, atol=1e-5)  # not released


def test_whole_covariances_are_kept():
    covariance = np.stack([np.eye(4)] * 3)
    covariance[0, 0, 1] = covariance[0, 1, 0] = 0.8
    replay = draws(covariance)
    z, labels = replay.sample(40_000, seed=1)
    warm = coordinates(replay, z)[labels == "warm"][:, :4]
    np.testing.assert_allclose(np.cov(warm.T), covariance[0], atol=0.05)


def test_the_same_seed_gives_the_same_draws():
    replay = draws(np.ones((3, 4)))
    one, two, other = (replay.sample(5, seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    rng = np.random.default_rng(1)
    assert not np.array_equal(replay.sample(5, rng)[0], replay.sample(5, rng)[0])


def test_before_any_release_it_draws_what_label_texts_say():
    replay = draws(np.ones((3, 4)), known=(0.0, 0.0, 0.0))
    assert repr(replay) == "ReplayDraws(3 modes of 2 labels)"
    assert set(replay.sample(50)[1]) == {"cold", "warm"}


def test_a_negative_number_of_draws_is_refused():
    with pytest.raises(ValueError, match="n must not be negative"):
        draws(np.ones((3, 4))).sample(-1)
    z, labels = draws(np.ones((3, 4))).sample(0)
    assert (z.shape, labels.shape) == ((0, WIDTH), (0,))


def test_a_learnt_replay_lies_where_the_rows_lie(enforced, arguments):
    model, _ = enforced
    z, labels = model.replay.sample(400, seed=5)
    truth = {name: arguments["X"][arguments["y"] == name].mean(axis=0) for name in set(labels)}
    nearest = [min(truth, key=lambda name: np.linalg.norm(row - truth[name])) for row in z]
    assert np.mean(np.array(nearest) == labels) > 0.8

"""Full second moments: shrunk according to the noise, and never singular."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.numerics.linear_algebra import folded, unfolded
from cslr.numerics.mixture import Gaussians, Mixture
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.round import Session
from cslr.protocol.step1_list import ListLearner, learn_lists, shares_of
from cslr.protocol.step4_aggregate.contribution import full_second_moments
from cslr.protocol.step4_aggregate.estimate import (
    EIGENVALUE_FLOOR,
    estimate_replay,
    full_covariances,
)

R = 8


def symmetric(count: int, seed: int = 0, dimension: int = R) -> np.ndarray:
    square = np.random.default_rng(seed).standard_normal((count, dimension, dimension))
    return square + np.swapaxes(square, 1, 2)


def positive(count: int, scale: float, seed: int = 0) -> np.ndarray:
    """(count, r, r) covariances of about this size."""
    square = np.random.default_rng(seed).standard_normal((count, R, 3 * R))
    return scale * square @ np.swapaxes(square, 1, 2) / (3 * R)


@pytest.fixture(scope="module")
def space(world):
    return world.space()


@pytest.fixture(scope="module")
def size(space):
    """The public variance of an average direction."""
    return float(np.trace(space.shape[:R, :R])) / R


# -- a client's half -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_second_moments_of_a_list_are_those_of_the_clients_rows(size):
    """Weighted by what each candidate holds they add up to the mean of x xᵀ."""
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((2, 30, R)), np.arange(30) < np.array([[30], [12]])
    streams = [np.random.default_rng(i) for i in range(2)]
    lists = learn_lists(x, mask, np.ones(R), ListLearner(size=size), streams)
    second = unfolded(full_second_moments(x, mask, lists), R)
    for i in range(2):
        rows = x[i, mask[i]]
        together = np.einsum("l,lij->ij", lists.weights[i], second[i])
        # A list's weights are EM's of one step before: the same but for what that step moved.
        np.testing.assert_allclose(together, rows.T @ rows / len(rows), atol=0.05)


def test_second_moments_are_the_shares_times_the_rows_by_themselves():
    """By the formula in one expression: Σ_i r_il x_i x_iᵀ / Σ_i r_il."""
    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((3, 20, R)), np.arange(20) < np.array([[20], [7], [1]])
    streams = [np.random.default_rng(i) for i in range(3)]
    lists = learn_lists(x, mask, np.ones(R), ListLearner(size=2), streams)
    shares = shares_of(lists, x, mask)
    whole = np.einsum("bnl,bni,bnj->blij", shares, x, x)
    whole /= np.maximum(shares.sum(axis=1), 1e-12)[..., None, None]
    np.testing.assert_allclose(full_second_moments(x, mask, lists), folded(whole), atol=1e-12)


def test_padding_and_clients_without_rows_say_nothing_about_second_moments():
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((2, 10, R)), np.arange(10) < np.array([[6], [0]])
    lists = Mixture(np.ones((2, 1)), Gaussians(np.zeros((2, 1, R)), np.ones((2, 1, R))))
    found = full_second_moments(x, mask, lists)
    other = np.where(mask[..., None], x, 1e3)
    np.testing.assert_array_equal(full_second_moments(other, mask, lists), found)
    np.testing.assert_array_equal(found[1], 0.0)


# -- the reader's half -----------------------------------------------------------------------------


def test_without_noise_the_empirical_covariance_is_believed(space, size):
    true, mean = positive(3, size), 0.1 * np.random.default_rng(2).standard_normal((3, R))
    second = folded(true + mean[:, :, None] * mean[:, None, :])
    found, below = full_covariances(second, np.zeros(3), mean, space)
    np.testing.assert_allclose(found, true, atol=1e-12)
    assert below == 0.0


@pytest.mark.parametrize("noise", [np.inf, 1e12])
def test_drowned_in_noise_or_unseen_it_is_the_public_shape(space, size, noise):
    second = folded(positive(3, 10 * size))
    found, below = full_covariances(second, np.full(3, noise), np.zeros((3, R)), space)
    np.testing.assert_allclose(found, np.tile(space.shape[:R, :R], (3, 1, 1)), atol=1e-6)
    assert below == 0.0


def test_more_noise_means_less_trust(space, size):
    second, public = folded(positive(1, 3 * size)), space.shape[:R, :R]
    moved = [
        np.linalg.norm(
            full_covariances(second, np.array([noise]), np.zeros((1, R)), space)[0] - public
        )
        for noise in size**2 * np.array([0.0, 1e-2, 1e-1, 1.0, 10.0])
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.1 * moved[0]


@given(st.floats(0.0, 10.0), st.integers(0, 2**31))
@settings(deadline=None, max_examples=25)
def test_whatever_noise_does_no_direction_is_flatter_than_the_floor(world, noise, seed):
    space = world.space()
    average = float(np.trace(space.shape[:R, :R])) / R
    second = folded(symmetric(3, seed))
    found, below = full_covariances(second, np.full(3, noise), np.zeros((3, R)), space)
    values = np.linalg.eigvalsh(found)
    assert np.all(values >= EIGENVALUE_FLOOR * average * (1 - 1e-9))
    np.testing.assert_array_equal(found, np.swapaxes(found, 1, 2))
    assert 0.0 <= below <= 1.0


def test_what_noise_pushed_below_the_floor_is_reported(space, size):
    narrow = -np.eye(R)[None].repeat(2, axis=0) * size
    found, below = full_covariances(folded(narrow), np.zeros(2), np.zeros((2, R)), space)
    assert below == 1.0
    np.testing.assert_allclose(
        found, EIGENVALUE_FLOOR * size * np.eye(R)[None].repeat(2, axis=0), atol=1e-12
    )


# -- in a round ------------------------------------------------------------------------------------


def test_without_clip_and_noise_a_replay_spreads_as_the_rows_of_its_label_do(
    world, make_ledger, drawer
):
    people = world.population
    agreement = world.agreement(second_moments="full", bound=8.0)
    assert agreement.layout(2).seconds == 36
    cohort = people.cohort(0, np.ones(12, dtype=bool), 1)
    plan = calibrate(Budget(np.inf), 1)
    release = Session(agreement, plan, make_ledger(), drawer).release(0, (0, 1), cohort).value
    replay = estimate_replay([release], agreement.modes, agreement.space, agreement.family)
    assert replay.covariance.shape == (4, R, R)
    x = agreement.space.into(people.z)
    for mode in (0, 1):
        true = np.cov(x[people.labels == mode].T)
        apart = np.linalg.norm(replay.covariance[mode] - true) / np.linalg.norm(true)
        assert apart < 0.15  # clients count alike, however many rows they hold
    # What was not released has the public shape.
    public = agreement.space.shape[:R, :R]
    np.testing.assert_allclose(replay.covariance[2:], np.stack([public, public]), atol=1e-12)

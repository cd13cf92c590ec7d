"""Shrinkage of covariances: as scikit-learn does it, and what must hold for any matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf, oas

from cslr.numerics.linear_algebra import oas_intensity, shrunk_covariance


def samples(n: int, d: int, seed: int, decay: float = 0.9) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * decay ** (np.arange(d) / 2)


def covariance(x: np.ndarray) -> np.ndarray:
    return x.T @ x / len(x)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 200),
    d=st.integers(2, 40),
    seed=st.integers(0, 2**20),
    decay=st.floats(0.3, 1.0),
)
def test_it_is_what_scikit_learn_computes(n, d, seed, decay):
    x = samples(n, d, seed, decay)
    expected, intensity = oas(x, assume_centered=True)
    assert oas_intensity(covariance(x), n) == pytest.approx(intensity, rel=1e-9)
    np.testing.assert_allclose(shrunk_covariance(covariance(x), n), expected, atol=1e-12)


@pytest.mark.parametrize(("n", "d"), [(100, 64), (400, 64), (3000, 64)])
def test_on_gaussian_samples_it_is_near_ledoit_and_wolf(n, d):
    x = samples(n, d, seed=n)
    _, theirs = ledoit_wolf(x, assume_centered=True)
    assert oas_intensity(covariance(x), n) == pytest.approx(theirs, rel=0.2, abs=0.005)


def test_it_is_nearer_to_the_truth_than_the_sample_covariance():
    truth = np.diag(0.9 ** np.arange(60))
    for seed in range(5):
        found = covariance(samples(40, 60, seed))
        error = np.linalg.norm(shrunk_covariance(found, 40) - truth)
        assert error < 0.9 * np.linalg.norm(found - truth)


def test_fewer_samples_than_dimensions_leave_no_direction_without_variance():
    found = shrunk_covariance(covariance(samples(30, 60, seed=1)), 30)
    assert np.linalg.eigvalsh(found).min() > 0.05 * np.trace(found) / 60


def test_many_samples_are_left_as_they_are():
    found = covariance(samples(10_000, 40, seed=2))
    assert oas_intensity(found, 10_000) < 0.005
    np.testing.assert_allclose(shrunk_covariance(found, 10_000), found, atol=0.005)


def test_trace_and_eigenvectors_stay():
    found = covariance(samples(50, 20, seed=3))
    shrunk = shrunk_covariance(found, 50)
    assert np.trace(shrunk) == pytest.approx(np.trace(found), rel=1e-12)
    _, vectors = np.linalg.eigh(found)
    rotated = vectors.T @ shrunk @ vectors
    np.testing.assert_allclose(rotated, np.diag(np.diag(rotated)), atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
def test_a_multiple_of_the_identity_stays_as_it_is(scale):
    same = scale * np.eye(5)
    assert oas_intensity(same, 10) == 1.0
    np.testing.assert_allclose(shrunk_covariance(same, 10), same, atol=1e-15)


def test_what_is_given_is_not_written_to():
    found = covariance(samples(10, 4, seed=4))
    before = found.copy()
    shrunk_covariance(found, 10)
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize(
    ("matrix", "count", "message"),
    [
        (np.ones((2, 3)), 5, "covariance must be a square matrix"),
        (np.full((2, 2), np.nan), 5, "covariance must be finite"),
        (np.eye(2), 0, "samples must be greater than 0"),
    ],
)
def test_a_wrong_argument_is_named(matrix, count, message):
    with pytest.raises(ValueError, match=message):
        shrunk_covariance(matrix, count)

"""Stacked Gaussians against SciPy, and moments there and back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal

from cslr.numerics.mixture import (
    Gaussians,
    from_moments,
    log_density,
    log_density_of_moments,
    moments,
    sample,
)

KINDS = pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])


def stacked(leading: tuple[int, ...], modes: int, d: int, full: bool, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(*leading, modes, d))
    if not full:
        return Gaussians(mean, rng.uniform(0.1, 2.0, size=mean.shape))
    factor = rng.normal(size=(*mean.shape, d))
    return Gaussians(mean, factor @ np.swapaxes(factor, -1, -2) + 0.1 * np.eye(d))


def matrix(gaussians: Gaussians, index: tuple[int, ...]) -> np.ndarray:
    covariance = gaussians.covariance[index]
    return covariance if gaussians.is_full else np.diag(covariance)


@KINDS
def test_log_density_agrees_with_scipy(full):
    gaussians = stacked((2, 3), modes=4, d=5, full=full)
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 5)) * 3
    found = log_density(gaussians, x)
    assert found.shape == (2, 3, 6, 4)
    for i, j, k in np.ndindex(2, 3, 4):
        known = multivariate_normal(gaussians.mean[i, j, k], matrix(gaussians, (i, j, k)))
        np.testing.assert_allclose(found[i, j, :, k], known.logpdf(x[i, j]), rtol=1e-10)


@KINDS
def test_leading_axes_broadcast(full):
    gaussians = stacked((2, 3), modes=4, d=5, full=full)
    x = np.random.default_rng(1).normal(size=(3, 6, 5))
    both = log_density(gaussians, np.broadcast_to(x, (2, 3, 6, 5)))
    np.testing.assert_allclose(log_density(gaussians, x), both, rtol=1e-13)
    assert log_density(gaussians, x[0]).shape == (2, 3, 6, 4)


def test_a_diagonal_matrix_is_a_diagonal():
    diagonal = stacked((2,), modes=3, d=4, full=False)
    full = Gaussians(diagonal.mean, diagonal.covariance[..., None] * np.eye(4))
    x = np.random.default_rng(2).normal(size=(2, 7, 4))
    np.testing.assert_allclose(log_density(diagonal, x), log_density(full, x), rtol=1e-12)


@KINDS
def test_moving_everything_does_not_change_the_density(full):
    gaussians = stacked((), modes=3, d=4, full=full)
    x = np.random.default_rng(3).normal(size=(9, 4))
    moved = Gaussians(gaussians.mean + 1e5, gaussians.covariance)
    np.testing.assert_allclose(log_density(moved, x + 1e5), log_density(gaussians, x), rtol=1e-8)


@KINDS
def test_permuting_the_modes_permutes_the_density(full):
    gaussians = stacked((2,), modes=5, d=3, full=full)
    x = np.random.default_rng(4).normal(size=(2, 8, 3))
    order = np.array([3, 0, 4, 1, 2])
    permuted = Gaussians(gaussians.mean[:, order], gaussians.covariance[:, order])
    expected = log_density(gaussians, x)[..., order]
    np.testing.assert_allclose(log_density(permuted, x), expected, rtol=1e-12)


@KINDS
def test_no_examples_no_modes_and_one_example(full):
    gaussians = stacked((2,), modes=3, d=4, full=full)
    assert log_density(gaussians, np.zeros((2, 0, 4))).shape == (2, 0, 3)
    assert log_density(gaussians, np.zeros((2, 1, 4))).shape == (2, 1, 3)
    none = stacked((), modes=0, d=4, full=full)
    assert log_density(none, np.zeros((5, 4))).shape == (5, 0)


def test_single_precision_is_computed_in_double():
    gaussians = stacked((), modes=2, d=3, full=False)
    x = np.random.default_rng(5).normal(size=(4, 3)).astype(np.float32)
    assert log_density(gaussians, x).dtype == np.float64
    assert Gaussians(x, np.ones_like(x)).mean.dtype == np.float64


@KINDS
def test_samples_have_the_moments_of_their_modes(full):
    gaussians = stacked((), modes=3, d=4, full=full)
    count = 60_000
    modes = np.repeat(np.arange(3), count)
    drawn = sample(gaussians, modes, np.random.default_rng(6)).reshape(3, count, 4)
    for k in range(3):
        sd = np.sqrt(np.diag(matrix(gaussians, (k,))))
        off_mean = (drawn[k].mean(axis=0) - gaussians.mean[k]) / sd
        off_covariance = (np.cov(drawn[k].T) - matrix(gaussians, (k,))) / np.outer(sd, sd)
        assert np.abs(off_mean).max() < 5 / np.sqrt(count)
        assert np.abs(off_covariance).max() < 5 * np.sqrt(2 / count)


@KINDS
def test_a_row_takes_its_noise_from_its_place_not_from_the_other_rows(full):
    gaussians = stacked((), modes=3, d=4, full=full)
    one = sample(gaussians, np.array([0, 1, 2, 1]), np.random.default_rng(7))
    other = sample(gaussians, np.array([2, 1, 0, 1]), np.random.default_rng(7))
    np.testing.assert_allclose(one[[1, 3]], other[[1, 3]], rtol=1e-13)


@KINDS
def test_the_same_stream_gives_the_same_samples(full):
    gaussians = stacked((), modes=3, d=4, full=full)
    modes = np.array([2, 0, 0, 1])
    one = sample(gaussians, modes, np.random.default_rng(8))
    np.testing.assert_array_equal(one, sample(gaussians, modes, np.random.default_rng(8)))
    assert sample(gaussians, np.array([], int), np.random.default_rng(8)).shape == (0, 4)


@KINDS
def test_moments_there_and_back(full):
    gaussians = stacked((2, 3), modes=4, d=5, full=full)
    back = from_moments(*moments(gaussians), floor=1e-9)
    assert back.is_full == full
    np.testing.assert_array_equal(back.mean, gaussians.mean)
    np.testing.assert_allclose(back.covariance, gaussians.covariance, atol=1e-12)


def test_second_moments_are_those_of_the_samples():
    gaussians = stacked((), modes=1, d=3, full=True)
    drawn = sample(gaussians, np.zeros(200_000, int), np.random.default_rng(9))
    _, second = moments(gaussians)
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), second[0], atol=0.06)


@given(
    arrays(np.float64, (3, 2), elements=st.floats(-5, 5)),
    arrays(np.float64, (3, 2, 2), elements=st.floats(-5, 5)),
)
def test_any_moments_give_a_proper_density(mean, second):
    full = from_moments(mean, second, floor=0.05)
    assert np.linalg.eigvalsh(full.covariance).min() >= 0.05 - 1e-12
    diagonal = from_moments(mean, second[..., 0], floor=0.05)
    assert diagonal.covariance.min() >= 0.05
    assert np.isfinite(log_density(full, mean)).all()


@pytest.mark.parametrize("noise", [0.0, 0.1, 5.0])
def test_the_density_of_moments_is_that_of_the_gaussian_they_give(noise):
    """With much noise half of the eigenvalues lie under the floor."""
    rng = np.random.default_rng(6)
    factor, mean = rng.standard_normal((2, 3, 7, 7)), rng.standard_normal((2, 3, 7))
    second = factor @ np.swapaxes(factor, -1, -2) + mean[..., :, None] * mean[..., None, :]
    second += noise * rng.standard_normal(second.shape)
    x = rng.standard_normal((5, 7))
    expected = log_density(from_moments(mean, second, 1e-2), x)
    found = log_density_of_moments(mean, second, 1e-2, x)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_density_of_moments_refuses_what_gives_no_density():
    mean, second, x = np.zeros((2, 3)), np.ones((2, 3, 3)), np.zeros((1, 3))
    with pytest.raises(ValueError, match="second"):
        log_density_of_moments(mean, second[..., 0], 0.1, x)
    with pytest.raises(ValueError, match="floor"):
        log_density_of_moments(mean, second, 0.0, x)
    with pytest.raises(ValueError, match="finite"):
        log_density_of_moments(mean, second * np.nan, 0.1, x)


def test_gaussians_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'mean'"):
        stacked((), 1, 1, full=False).mean = np.zeros((1, 1))


def test_wrong_shapes_are_refused_by_name():
    with pytest.raises(ValueError, match="mean must"):
        Gaussians(np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="covariance must"):
        Gaussians(np.zeros((2, 3)), np.ones((2, 3, 2)))
    with pytest.raises(ValueError, match="second must"):
        from_moments(np.zeros((2, 3)), np.ones((3, 3)), 0.1)
    with pytest.raises(ValueError, match="floor"):
        from_moments(np.zeros((2, 3)), np.ones((2, 3)), -1.0)
    with pytest.raises(ValueError, match="x must have shape"):
        log_density(stacked((), 2, 3, full=False), np.zeros((5, 4)))
    with pytest.raises(ValueError, match="x must be finite"):
        log_density(stacked((), 2, 3, full=False), np.full((5, 3), np.nan))


def test_improper_covariances_are_refused_by_name():
    x = np.zeros((1, 2))
    with pytest.raises(ValueError, match=r"covariance must be positive$"):
        log_density(Gaussians(x, np.array([[1.0, 0.0]])), x)
    with pytest.raises(ValueError, match="covariance must be positive definite"):
        log_density(Gaussians(x, -np.eye(2)[None]), x)
    with pytest.raises(ValueError, match="covariance must not be negative"):
        sample(Gaussians(x, np.array([[1.0, -1.0]])), np.array([0]), np.random.default_rng(0))


@pytest.mark.parametrize("modes", [[-1], [2], [[0]], [0.5]])
def test_wrong_modes_are_refused(modes):
    with pytest.raises(ValueError, match="modes must"):
        sample(stacked((), 2, 3, full=False), np.array(modes), np.random.default_rng(0))


def test_sampling_needs_one_stack_of_modes():
    with pytest.raises(ValueError, match=r"gaussians\.mean"):
        sample(stacked((2,), 2, 3, full=False), np.array([0]), np.random.default_rng(0))

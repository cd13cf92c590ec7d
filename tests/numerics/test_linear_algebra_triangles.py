"""Symmetric matrices as triangles: nothing is lost, and norms stay."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.numerics.linear_algebra import SquareRoots, folded, unfolded

R = 8


def symmetric(count: int, seed: int, dimension: int) -> np.ndarray:
    square = np.random.default_rng(seed).standard_normal((count, dimension, dimension))
    return square + np.swapaxes(square, 1, 2)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
@settings(deadline=None)
def test_unfolding_undoes_folding_and_folding_keeps_the_norm(dimension, count, seed):
    matrices = symmetric(count, seed, dimension)
    triangles = folded(matrices)
    assert triangles.shape == (count, dimension * (dimension + 1) // 2)
    np.testing.assert_allclose(unfolded(triangles, dimension), matrices, atol=1e-12)
    np.testing.assert_allclose(
        np.linalg.norm(triangles, axis=1), np.linalg.norm(matrices, axis=(1, 2))
    )


def test_folding_undoes_unfolding():
    triangles = np.random.default_rng(1).standard_normal((3, R * (R + 1) // 2))
    np.testing.assert_allclose(folded(unfolded(triangles, R)), triangles, atol=1e-12)


def test_what_is_unfolded_is_symmetric_whatever_noise_does():
    whole = unfolded(np.random.default_rng(1).standard_normal((3, R * (R + 1) // 2)), R)
    np.testing.assert_array_equal(whole, np.swapaxes(whole, 1, 2))


def test_square_roots_make_and_undo_a_covariance():
    wide = np.random.default_rng(1).normal(size=(9, 9))
    covariance = wide @ wide.T + np.eye(9)
    roots = SquareRoots(covariance)
    assert roots.factor.dtype == np.float32
    np.testing.assert_allclose(roots.factor @ roots.factor, covariance, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(roots.whitening @ covariance @ roots.whitening, np.eye(9), atol=1e-9)

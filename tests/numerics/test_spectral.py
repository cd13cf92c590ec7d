"""Quadratic forms without eigenvectors, against eigenvectors."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.numerics.spectral import floored_forms


def by_eigenvectors(matrix: np.ndarray, floor: float, y: np.ndarray) -> tuple[np.ndarray, float]:
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, floor)
    return np.square(y @ vectors) @ (1.0 / values), float(np.log(values).sum())


def symmetric(d: int, seed: int = 1) -> np.ndarray:
    wide = np.random.default_rng(seed).normal(size=(d, d))
    return (wide + wide.T) / 2


@pytest.mark.parametrize("d", [1, 2, 3, 17, 130])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_forms_are_those_of_eigenvectors(d, n):
    matrix, y = symmetric(d), np.random.default_rng(2).normal(size=(n, d))
    forms, log_determinant = floored_forms(matrix, 1e-3, y)
    known, known_determinant = by_eigenvectors(matrix, 1e-3, y)
    assert forms.shape == (n,)
    np.testing.assert_allclose(forms, known, rtol=1e-9)
    assert log_determinant == pytest.approx(known_determinant, rel=1e-9)


def test_a_matrix_above_the_floor_is_inverted():
    matrix = symmetric(20) @ symmetric(20) + np.eye(20)
    y = np.random.default_rng(3).normal(size=(5, 20))
    forms, log_determinant = floored_forms(matrix, 1e-6, y)
    np.testing.assert_allclose(forms, np.einsum("nd,nd->n", y, np.linalg.solve(matrix, y.T).T))
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1])


def test_forms_of_a_large_negative_direction_are_accurate():
    far = np.random.default_rng(4).normal(size=60)
    matrix, y = (
        symmetric(60) - 1e4 * np.outer(far, far),
        np.random.default_rng(5).normal(size=(9, 60)),
    )
    forms, log_determinant = floored_forms(matrix, 1e-4, y)
    known, known_determinant = by_eigenvectors(matrix, 1e-4, y)
    np.testing.assert_allclose(forms, known, rtol=1e-9)
    assert log_determinant == pytest.approx(known_determinant, rel=1e-9)


def test_diagonal_and_zero_matrices_need_no_special_care():
    y = np.arange(12.0).reshape(2, 6)
    forms, log_determinant = floored_forms(np.zeros((6, 6)), 0.5, y)
    np.testing.assert_allclose(forms, 2 * np.square(y).sum(axis=1))
    assert log_determinant == pytest.approx(6 * np.log(0.5))
    diagonal = np.diag([3.0, 0.1, 2.0, -1.0, 5.0, 1.0])
    forms, _ = floored_forms(diagonal, 0.5, y)
    np.testing.assert_allclose(forms, np.square(y) @ (1 / np.maximum(np.diag(diagonal), 0.5)))


def test_arguments_are_not_changed():
    matrix, y = symmetric(8), np.ones((3, 8))
    before = matrix.copy()
    floored_forms(matrix, 0.1, y)
    np.testing.assert_array_equal(matrix, before)
    np.testing.assert_array_equal(y, 1.0)

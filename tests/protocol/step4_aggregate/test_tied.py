"""One matrix for all modes: what a unit sends, and how far the reader trusts it."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.protocol.step4_aggregate.contribution import unfolded
from cslr.protocol.step4_aggregate.tied import (
    FLOOR,
    pooled_covariance,
    row_weights,
    tied_moments,
)

R = 12


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def public(rng):
    basis = np.linalg.qr(rng.normal(size=(R, R)))[0]
    return (basis * np.geomspace(1.0, 0.05, R)) @ basis.T


def noisy(matrix, variance, rng):
    """As released: entries off the diagonal have half the variance of those on it."""
    noise = np.triu(rng.normal(size=matrix.shape))
    noise = (noise + np.triu(noise, 1).T) * np.sqrt(variance)
    return matrix + np.where(np.eye(len(matrix)) > 0, noise, noise / np.sqrt(2))


def test_the_rows_of_a_label_share_its_weight():
    labels = np.array([[0, 0, 1, 1, 1], [1, 0, 0, 0, 0]])
    mask = np.array([[True] * 5, [True, False, False, False, False]])
    places, weights = row_weights(labels, mask, (0, 1), full=2)
    np.testing.assert_allclose(weights[0], [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(weights[1], [1 / 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(places[0], labels[0])


def test_moments_are_about_the_prototypes_and_keep_the_norm_of_the_matrix(rng):
    x, prototypes = rng.normal(size=(3, 4, R)), rng.normal(size=(2, R))
    labels, weights = rng.integers(2, size=(3, 4)), rng.random((3, 4))
    found = tied_moments(x, labels, weights, prototypes, 5)
    away = (x - prototypes[labels])[..., :5]
    expected = np.einsum("bn,bni,bnj->bij", weights, away, away)
    np.testing.assert_allclose(unfolded(found, 5), expected, atol=1e-12)
    np.testing.assert_allclose(
        np.linalg.norm(found, axis=1), np.linalg.norm(expected, axis=(1, 2)), atol=1e-12
    )


def test_a_row_of_one_unit_does_not_move_the_moments_of_another(rng):
    x, labels, weights = rng.normal(size=(2, 3, R)), np.zeros((2, 3), int), np.ones((2, 3))
    before = tied_moments(x, labels, weights, np.zeros((1, R)), R)
    x[1] = 0.0
    np.testing.assert_array_equal(
        tied_moments(x, labels, weights, np.zeros((1, R)), R)[0], before[0]
    )


def test_without_noise_the_matrix_is_known(public, rng):
    truth = public * 0.7 + 0.1 * np.diag(rng.random(R))
    found = pooled_covariance(truth, 0.0, public, public)
    assert found.trust == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(found.covariance, truth, rtol=1e-3, atol=1e-4)


def test_heavy_noise_leaves_the_public_shape(public, rng):
    found = pooled_covariance(noisy(public, 100.0, rng), 100.0, public, public)
    assert found.trust < 0.05
    values = np.linalg.eigvalsh(found.covariance)
    assert values.min() > 0


def test_trust_falls_as_noise_grows(public, rng):
    truth = public * (1 + 0.2 * np.outer(rng.normal(size=R), rng.normal(size=R)))
    truth = (truth + truth.T) / 2
    trusts = [
        pooled_covariance(noisy(truth, v, rng), v, public, public).trust for v in (1e-8, 1e-3, 1.0)
    ]
    assert trusts[0] > trusts[1] > trusts[2]


def test_no_direction_falls_below_its_floor(public):
    """Noise can make an observed matrix indefinite; the result stays well conditioned."""
    indefinite = public - 0.5 * np.eye(R)
    found = pooled_covariance(indefinite, 1e-6, public, public)
    assert np.linalg.eigvalsh(found.covariance).min() > 0
    assert 0 < FLOOR < 1


def test_directions_beyond_the_matrix_have_the_public_shape(public):
    found = pooled_covariance(public[:8, :8], 0.0, public, public)
    np.testing.assert_allclose(found.covariance[:8, :8], public[:8, :8], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.covariance[8:, 8:], public[8:, 8:], rtol=1e-2)
    np.testing.assert_array_equal(found.covariance[:8, 8:], 0.0)

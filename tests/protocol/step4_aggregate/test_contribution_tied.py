"""One matrix for all modes: what a unit sends, and how far the reader trusts it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cslr.privacy.values import joint_norms
from cslr.protocol.step4_aggregate.contribution import row_weights, tied_factors
from cslr.protocol.step4_aggregate.estimate import TIED_FLOOR, pooled_covariance, symmetric

R = 12


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def public(rng):
    basis = np.linalg.qr(rng.normal(size=(R, R)))[0]
    return (basis * np.geomspace(1.0, 0.05, R)) @ basis.T


def noisy(matrix, variance, rng):
    """As released: the triangle has noise, so that the matrix stays symmetric."""
    noise = np.triu(rng.normal(size=matrix.shape))
    return matrix + (noise + np.triu(noise, 1).T) * np.sqrt(variance)


def test_the_rows_of_a_label_share_its_weight():
    labels = np.array([[0, 0, 1, 1, 1], [1, 0, 0, 0, 0]])
    mask = np.array([[True] * 5, [True, False, False, False, False]])
    places, weights = row_weights(labels, mask, (0, 1), full=2)
    np.testing.assert_allclose(weights[0], [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(weights[1], [1 / 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(places[0], labels[0])


def request_of(labels, prototypes, directions, scale=1.0):
    """What ``tied_factors`` reads of a request."""
    return SimpleNamespace(
        layout=SimpleNamespace(tied=directions, tied_scale=scale),
        groups=tuple((label,) for label in range(labels)),
        resolution=SimpleNamespace(full_weight=2),
        prototypes=SimpleNamespace(mean=prototypes),
    )


def test_products_of_factors_are_the_weighted_moments_about_the_prototypes(rng):
    x, prototypes = rng.normal(size=(3, 4, R)), rng.normal(size=(2, R))
    labels, mask = rng.integers(2, size=(3, 4)), rng.random((3, 4)) < 0.8
    examples = SimpleNamespace(labels=labels, mask=mask)
    found = tied_factors(x, examples, request_of(2, prototypes, 5, np.sqrt(2)))
    away = (x - prototypes[labels])[..., :5]
    _, weights = row_weights(labels, mask, (0, 1), full=2)
    expected = np.einsum("bn,bni,bnj->bij", weights, away, away)
    products = np.swapaxes(found, -1, -2) @ found
    np.testing.assert_allclose(products, np.sqrt(2) * expected, atol=1e-12)


def test_a_triangle_at_its_scale_is_nearly_as_long_as_the_matrix(rng):
    factors = rng.normal(size=(1, 1, 200))
    matrix = factors[0].T @ factors[0]
    long = joint_norms(np.zeros((1, 0)), factors * 2**0.25)
    assert long == pytest.approx(np.linalg.norm(matrix), rel=0.02)


def test_a_row_of_one_unit_does_not_move_the_factors_of_another(rng):
    x, examples = (
        rng.normal(size=(2, 3, R)),
        SimpleNamespace(labels=np.zeros((2, 3), int), mask=np.ones((2, 3), bool)),
    )
    request = request_of(1, np.zeros((1, R)), R)
    before = tied_factors(x, examples, request)
    x[1] = 0.0
    np.testing.assert_array_equal(tied_factors(x, examples, request)[0], before[0])


def test_a_triangle_becomes_the_matrix_it_was_taken_from(rng):
    matrix = rng.normal(size=(R, R))
    matrix += matrix.T
    np.testing.assert_array_equal(symmetric(matrix[np.triu_indices(R)], R), matrix)


def test_without_noise_the_matrix_is_known(public, rng):
    truth = public * 0.7 + 0.1 * np.diag(rng.random(R))
    found = pooled_covariance(truth, 0.0, public)
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-8)


def test_heavy_noise_leaves_no_direction_without_variance(public, rng):
    values = np.linalg.eigvalsh(pooled_covariance(noisy(public, 100.0, rng), 100.0, public))
    assert values.min() > 0


@pytest.mark.parametrize("deviation", [0.02, 0.05])
def test_it_is_nearer_to_the_truth_than_the_release_and_than_linear_shrinkage(deviation, rng):
    size = 150
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    truth = (basis * np.geomspace(1.0, 0.01, size)) @ basis.T
    seen, mean = noisy(truth, deviation**2, rng), np.trace(truth) / size * np.eye(size)
    away = np.square(truth - mean).sum()
    share = away / (away + size**2 * deviation**2)
    linear = mean + share * (seen - mean)  # the best of its kind, which needs the truth

    def missed(found):
        return np.linalg.norm(found - truth)

    found = pooled_covariance(seen, deviation**2, truth)
    assert missed(found) < 0.9 * missed(seen)
    assert missed(found) < missed(linear)


def test_no_direction_falls_below_its_floor(public):
    """Noise can make an observed matrix indefinite; the result stays well conditioned."""
    indefinite = public - 0.1 * np.eye(R)
    values = np.linalg.eigvalsh(indefinite)
    found = np.linalg.eigvalsh(pooled_covariance(indefinite, 0.0, public))
    assert values.min() < 0
    assert found.min() == pytest.approx(TIED_FLOOR * values.mean())


def test_directions_beyond_the_matrix_have_the_public_shape(public):
    found = pooled_covariance(public[:8, :8], 0.0, public)
    np.testing.assert_allclose(found[:8, :8], public[:8, :8], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[8:, 8:], public[8:, 8:], rtol=1e-2)
    np.testing.assert_array_equal(found[:8, 8:], 0.0)

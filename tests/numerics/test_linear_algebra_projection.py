"""Ball, simplex and PSD cone: inside, nearest, unchanged where nothing is to be done."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.optimize import minimize

from cslr.numerics.linear_algebra import onto_ball, onto_psd, onto_simplex

ANY = st.floats(-1e300, 1e300, allow_subnormal=False)
SMALL = st.floats(-10, 10)
ROWS = arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=ANY)


@given(ROWS, st.floats(1e-6, 1e6))
def test_nothing_is_outside_the_ball_after_projection(x, radius):
    norm = np.linalg.norm(onto_ball(x, radius), axis=-1)
    assert np.all(norm <= radius * (1 + np.finfo(float).eps))


@pytest.mark.parametrize("size", [1, 3, 100, 5_000])
def test_long_rows_end_on_the_sphere_and_never_beyond(size):
    x = np.random.default_rng(0).normal(size=(300, size)) * 1e4
    norm = np.linalg.norm(onto_ball(x, 0.3), axis=-1)
    assert norm.max() <= np.nextafter(0.3, 1)
    assert norm.min() >= 0.3 * (1 - 1e-14)


@given(ROWS, st.just(0.0) | st.floats(1e-300, 1e6))
def test_projecting_onto_the_ball_twice_is_projecting_once(x, radius):
    once = onto_ball(x, radius)
    np.testing.assert_array_equal(onto_ball(once, radius), once)


def test_rows_inside_the_ball_are_returned_bit_for_bit():
    x = np.random.default_rng(1).normal(size=(4, 50, 7)) * 0.1
    np.testing.assert_array_equal(onto_ball(x, 10.0), x)
    x[0, 0, 0] = 0.0
    np.testing.assert_array_equal(onto_ball(1e300 * x, np.inf), 1e300 * x)


def test_the_ball_keeps_directions():
    x = np.array([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(onto_ball(x, 1.0), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-14)


def test_a_ball_of_radius_zero_is_the_origin():
    np.testing.assert_array_equal(onto_ball(np.array([[1.0, -2.0], [0.0, 0.0]]), 0.0), 0.0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_the_ball_takes_empty_inputs(shape):
    assert onto_ball(np.zeros(shape), 1.0).shape == shape


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_never_passes_the_ball(bad):
    with pytest.raises(ValueError, match="x must be finite"):
        onto_ball(np.array([1.0, bad]), 1.0)


@pytest.mark.parametrize("radius", [-1.0, np.nan])
def test_a_wrong_radius_is_refused(radius):
    with pytest.raises(ValueError, match="radius"):
        onto_ball(np.zeros(3), radius)


@given(arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=ANY))
def test_projected_weights_are_weights(v):
    weights = onto_simplex(v)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-14)


@given(arrays(np.float64, st.integers(1, 8), elements=SMALL))
def test_projection_onto_the_simplex_satisfies_the_optimality_conditions(v):
    weights = onto_simplex(v)
    gradient = weights - v  # equal on the support, and no smaller off it
    on = gradient[weights > 0]
    np.testing.assert_allclose(on, on[0], atol=1e-12)
    assert np.all(gradient >= on[0] - 1e-12)


def test_the_simplex_agrees_with_a_general_solver():
    for v in np.random.default_rng(2).normal(size=(5, 4)):
        solved = minimize(
            lambda w, v=v: np.sum((w - v) ** 2),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(onto_simplex(v), solved.x, atol=1e-6)


@given(arrays(np.float64, st.integers(1, 6), elements=SMALL), SMALL)
def test_adding_a_constant_does_not_move_the_projected_weights(v, constant):
    np.testing.assert_allclose(onto_simplex(v + constant), onto_simplex(v), atol=1e-12)


def test_batched_weights_are_the_single_ones():
    v = np.random.default_rng(3).normal(size=(3, 4, 5))
    single = [[onto_simplex(row) for row in block] for block in v]
    np.testing.assert_array_equal(onto_simplex(v), single)


def test_weights_stay_weights():
    weights = np.array([0.5, 0.25, 0.25, 0.0])
    np.testing.assert_allclose(onto_simplex(weights), weights, atol=1e-16)
    assert onto_simplex(np.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(onto_simplex(np.array([-7.0])), [1.0])


def test_a_simplex_without_corners_is_refused():
    with pytest.raises(ValueError, match="v must"):
        onto_simplex(np.zeros((2, 0)))


@given(arrays(np.float64, (2, 4, 4), elements=SMALL), st.floats(0, 2))
def test_projected_matrices_are_symmetric_and_reach_the_floor(matrix, floor):
    projected = onto_psd(matrix, floor)
    np.testing.assert_array_equal(projected, np.swapaxes(projected, -1, -2))
    assert np.linalg.eigvalsh(projected).min() >= floor - 1e-12


def test_matrices_that_reach_the_floor_are_only_symmetrised():
    factor = np.random.default_rng(4).normal(size=(3, 5, 5))
    matrix = factor @ np.swapaxes(factor, -1, -2) + np.eye(5)
    symmetric = 0.5 * (matrix + np.swapaxes(matrix, -1, -2))
    np.testing.assert_array_equal(onto_psd(matrix, 0.5), symmetric)


def test_no_other_matrix_above_the_floor_is_nearer():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(4, 4))
    matrix = matrix + matrix.T
    distance = np.linalg.norm(onto_psd(matrix, 0.1) - matrix)
    for factor in rng.normal(size=(500, 4, 4)):
        assert np.linalg.norm(factor @ factor.T + 0.1 * np.eye(4) - matrix) >= distance


def test_a_diagonal_matrix_has_its_entries_floored():
    projected = onto_psd(np.diag([3.0, -1.0, 0.2]), 0.5)
    np.testing.assert_allclose(projected, np.diag([3.0, 0.5, 0.5]), atol=1e-15)


def test_wrong_matrices_and_floors_are_refused():
    with pytest.raises(ValueError, match="covariance must be square"):
        onto_psd(np.zeros((2, 3)), 0.1)
    with pytest.raises(ValueError, match="covariance must be finite"):
        onto_psd(np.full((2, 2), np.nan), 0.1)
    with pytest.raises(ValueError, match="floor"):
        onto_psd(np.eye(2), -0.1)

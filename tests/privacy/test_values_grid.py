"""Clipping in integers: the bound holds whatever a client sends."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cslr.privacy.values import _SEAL, STEPS, Grid, _clip_integers, bound, plain_sum

HUGE, TINY, LARGEST = 1e308, 5e-324, np.finfo(float).max
RNG = np.random.default_rng(5)
HOSTILE = {
    "all 1e308": np.full((3, 50), HUGE),
    "the largest float, both signs": np.array([[LARGEST, -LARGEST], [-LARGEST, -LARGEST]]),
    "denormals": np.full((3, 9), TINY),
    "denormals beside 1e308": np.array([[HUGE, TINY, -TINY], [TINY, -HUGE, TINY]]),
    "zeros and minus zeros": np.array([[0.0, -0.0], [-0.0, 0.0]]),
    "zeros beside 1e308": np.array([[0.0] * 4, [HUGE] * 4, [0.0, 0.0, 0.0, -HUGE]]),
    "exactly on the sphere": np.array([[0.6, 0.8], [1.0, 0.0], [0.28, -0.96]]),
    "a hair over the sphere": np.array([[np.nextafter(1, 2), 0.0], [0.6, np.nextafter(0.8, 1)]]),
    "very many coordinates": np.stack([np.full(60_000, 1.0), RNG.normal(size=60_000)]),
    "very many tiny coordinates": np.full((2, 60_000), 1e-6),
    "every order of magnitude": 10.0 ** RNG.uniform(-300, 300, size=(6, 40)),
    "gaussian": RNG.normal(size=(7, 13)),
    "no coordinate": np.zeros((2, 0)),
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
STACKS = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=FINITE)
BOUNDS = st.floats(1e-300, 1e308)


def rows_of(vectors: np.ndarray, grid: Grid) -> np.ndarray:
    return bound(vectors, grid).rows(_SEAL)


def squared_norm(row: np.ndarray) -> int:
    """In Python's integers, which cannot wrap around."""
    return sum(value * value for value in row.tolist())


@pytest.mark.parametrize("case", HOSTILE)
def test_no_client_moves_the_sum_by_more_than_the_bound(case):
    vectors = HOSTILE[case]
    for size, steps in product((1.0, 1e-300, 1e308), (1, 7, STEPS, 2**24)):
        grid = Grid(size, steps)
        total = plain_sum([bound(vectors, grid)]).total(_SEAL)
        for client in range(len(vectors)):
            zeroed = vectors.copy()
            zeroed[client] = 0.0
            without = np.delete(vectors, client, axis=0)
            for neighbour in (zeroed, without):
                moved = total - plain_sum([bound(neighbour, grid)]).total(_SEAL)
                assert squared_norm(moved) <= steps**2, grid


@settings(deadline=None)
@given(STACKS, BOUNDS, st.integers(1, 2**24))
def test_the_integer_norm_never_exceeds_the_steps(vectors, size, steps):
    for row in rows_of(vectors, Grid(size, steps)):
        assert squared_norm(row) <= steps**2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int64])
def test_the_bound_holds_for_every_type_of_number(dtype):
    """In half precision 2^20 steps are infinite, and infinity as an integer squares to zero."""
    vectors = np.array([[3, 4], [0, 60_000], [0, 0], [-1, 0]], dtype=dtype)
    expected = STEPS * np.array([[0.6, 0.8], [0, 1], [0, 0], [-1, 0]])
    rows = rows_of(vectors, Grid(1.0))
    assert [squared_norm(row) <= STEPS**2 for row in rows] == [True] * 4
    np.testing.assert_allclose(rows, expected, atol=1)


def test_a_number_too_long_for_double_precision_is_refused():
    if np.finfo(np.longdouble).max <= LARGEST:
        pytest.skip("long doubles are doubles here")
    with pytest.raises(ValueError, match="client 0 is not finite"):
        bound(np.array([[np.finfo(np.longdouble).max]]), Grid(1.0))


def test_numbers_that_are_not_real_are_refused():
    with pytest.raises(TypeError, match="complex"):
        bound(np.array([[1j]]), Grid(1.0))


@settings(deadline=None)
@given(STACKS, BOUNDS)
def test_truncation_never_enlarges_a_coordinate(vectors, size):
    grid = Grid(size)
    steps = np.abs(rows_of(vectors, grid)).astype(float)
    # In steps, where nothing underflows; the last bits are the division's.
    exact = np.minimum(np.abs(vectors), size) / size * grid.steps
    assert np.all(steps <= exact * (1 + 1e-14))


@settings(deadline=None)
@given(STACKS, BOUNDS)
def test_signs_survive(vectors, size):
    signs = np.sign(rows_of(vectors, Grid(size)))
    assert np.all((signs == 0) | (signs == np.sign(vectors)))


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1, 1)),
    st.floats(1e-6, 1e6),
)
def test_a_vector_inside_is_kept_up_to_one_step(directions, size):
    grid = Grid(size)
    vectors = directions * (0.999 * size / math.sqrt(directions.shape[1]))
    kept = grid.decode(rows_of(vectors, grid))
    np.testing.assert_allclose(kept, vectors, rtol=0, atol=size / grid.steps * (1 + 1e-9))


def test_a_vector_outside_keeps_its_direction_and_ends_at_the_bound():
    grid = Grid(0.5)
    kept = grid.decode(rows_of(np.array([[30.0, -40.0], [3e307, -4e307]]), grid))
    np.testing.assert_allclose(kept, [[0.3, -0.4]] * 2, atol=0.5 / grid.steps)


def test_all_modes_and_blocks_are_clipped_as_one_vector():
    """Clipping four blocks one by one would let a client move the sum by twice the bound."""
    row = rows_of(np.ones((1, 4)), Grid(1.0))
    np.testing.assert_allclose(row, STEPS / 2, atol=1)


def test_the_integers_decide_even_if_rounding_went_outward(monkeypatch):
    monkeypatch.setattr(np, "trunc", lambda x: np.sign(x) * np.ceil(np.abs(x)))
    for row in rows_of(HOSTILE["gaussian"], Grid(1.0, 7)):
        assert squared_norm(row) <= 49


@settings(deadline=None)
@given(
    arrays(np.int64, st.tuples(st.just(3), st.integers(1, 6)), elements=st.integers(-30, 30)),
    st.integers(1, 60),
)
def test_whatever_rounding_left_over_the_bound_is_shrunk_in_integers(rows, steps):
    clipped = _clip_integers(rows.copy(), np.square(rows).sum(axis=1).astype(float), steps)
    for before, after in zip(rows, clipped, strict=True):
        assert squared_norm(after) <= steps**2
        assert np.all(np.abs(after) <= np.abs(before))
        assert after.tolist() == before.tolist() or squared_norm(before) > steps**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("client", [0, 2])
def test_a_contribution_that_is_not_finite_is_refused_with_its_client(bad, client):
    vectors = np.ones((3, 4))
    vectors[client, 1] = bad
    with pytest.raises(ValueError, match=f"client {client} is not finite"):
        bound(vectors, Grid(1.0))


def test_a_wide_bound_without_noise_gives_the_plain_mean_to_grid_precision():
    vectors = np.random.default_rng(1).normal(size=(25, 30))
    grid = Grid(1e4)
    mean = grid.decode(plain_sum([bound(vectors, grid)]).total(_SEAL)) / len(vectors)
    np.testing.assert_allclose(mean, vectors.mean(axis=0), rtol=0, atol=grid.bound / grid.steps)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_only_one_row_per_client_is_taken(shape):
    with pytest.raises(ValueError, match="clients, coordinates"):
        bound(np.zeros(shape), Grid(1.0))


def test_no_clients_are_no_rows():
    assert rows_of(np.zeros((0, 5)), Grid(1.0)).shape == (0, 5)


def test_the_input_is_left_alone():
    vectors = np.full((2, 3), 7.0)
    bound(vectors, Grid(1.0))
    np.testing.assert_array_equal(vectors, 7.0)


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf])
def test_a_wrong_bound_is_refused(size):
    with pytest.raises(ValueError, match="bound must be positive and finite"):
        Grid(size)


@pytest.mark.parametrize("steps", [0, -1, 2**24 + 1])
def test_a_wrong_number_of_steps_is_refused(steps):
    with pytest.raises(ValueError, match="steps must lie in"):
        Grid(1.0, steps)


def test_a_masked_array_hides_nothing():
    vectors = np.ma.masked_invalid(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="client 0 is not finite"):
        bound(vectors, Grid(1.0))

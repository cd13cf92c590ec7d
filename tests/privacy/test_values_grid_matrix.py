"""Vectors that go on with a matrix: bounded together, summed without being formed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.privacy.values import _SEAL, Grid, bound, bound_with_matrix, joint_norms, plain_sum


def squares(rows):
    """Squared norms in Python's own integers."""
    return [sum(int(each) ** 2 for each in row) for row in rows]


def people(seed, count=5, rows=3, directions=7, coordinates=4, size=1.0):
    rng = np.random.default_rng(seed)
    vectors = size * rng.standard_normal((count, coordinates))
    factors = np.sqrt(size) * rng.standard_normal((count, rows, directions))
    return vectors, factors


@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1e-9, 1e-3, 0.3, 1.0, 40.0, 1e30]),
    rows=st.integers(1, 6),
    share=st.sampled_from([1, 3]),
    steps=st.sampled_from([1, 50, 2**20, 2**24]),
)
def test_no_vector_with_its_matrix_is_longer_than_the_bound(seed, size, rows, share, steps):
    grid = Grid(0.7, steps=max(steps, share), share=share)
    bounded = bound_with_matrix(*people(seed, rows=rows, size=size), grid)
    assert max(squares(bounded.rows(_SEAL))) <= grid.most**2


def test_a_vector_whose_share_is_no_whole_number_of_steps_is_clipped_too():
    """It is a fraction of a step too long, and no factor is left that could be made shorter."""
    grid = Grid(1.0, steps=7, share=2)  # 3 steps at most, and 3.5 are asked for: (3, 1) is too long
    vectors = np.array([[3.31, 1.1], [0.1, 0.2]])
    (clipped, _) = bound_with_matrix(vectors, np.zeros((2, 1, 4)), grid).rows(_SEAL)
    assert squares([clipped])[0] <= 9
    assert clipped[0] == 2


def test_rows_of_opposite_sign_cannot_round_beyond_the_bound():
    """Rounding may lengthen the sum of several products: then all of them shrink."""
    rng = np.random.default_rng(2)
    first = rng.standard_normal((4000, 1, 6))
    factors = np.concatenate([first, -first + 0.02 * rng.standard_normal(first.shape)], axis=1)
    grid = Grid(1.0, steps=200)
    bounded = bound_with_matrix(np.zeros((4000, 1)), factors, grid)
    lengths = np.sqrt(squares(bounded.rows(_SEAL)))
    assert lengths.max() <= 200
    assert lengths.mean() > 150


def test_the_sum_is_that_of_the_rows_whatever_the_batches():
    vectors, factors = people(3, count=40, rows=2)
    grid = Grid(1.0)
    whole = bound_with_matrix(vectors, factors, grid)
    rows = whole.rows(_SEAL)
    assert rows.shape == (40, 4 + 28)
    parts = [
        bound_with_matrix(vectors[i : i + 7], factors[i : i + 7], grid) for i in range(0, 40, 7)
    ]
    np.testing.assert_array_equal(plain_sum([whole]).total(_SEAL), rows.sum(axis=0))
    np.testing.assert_array_equal(plain_sum(parts).total(_SEAL), rows.sum(axis=0))


@pytest.mark.parametrize("batch", [1, 700, 4000])
def test_sums_of_many_matrices_are_exact_however_many_are_multiplied_together(batch):
    vectors, factors = people(9, count=4000, rows=1)
    grid = Grid(1.0, steps=2**24)
    parts = [
        bound_with_matrix(vectors[i : i + batch], factors[i : i + batch], grid)
        for i in range(0, 4000, batch)
    ]
    rows = np.concatenate([part.rows(_SEAL) for part in parts])
    np.testing.assert_array_equal(plain_sum(parts).total(_SEAL), rows.sum(axis=0))


@pytest.mark.parametrize("directions", [None, 6])
def test_matrices_of_different_sizes_are_not_added_up(directions):
    first = bound_with_matrix(*people(10), Grid(1.0))
    vectors, factors = people(10, directions=directions or 7)
    other = (
        bound_with_matrix(vectors, factors, Grid(1.0)) if directions else bound(vectors, Grid(1.0))
    )
    for pair in ([first, other], [other, first]):
        with pytest.raises(ValueError, match="same number of coordinates"):
            plain_sum(pair)


def test_what_is_within_the_bound_is_only_rounded():
    vectors, factors = people(4, size=1e-2)
    grid = Grid(1.0)
    rows = grid.decode(bound_with_matrix(vectors, factors, grid).rows(_SEAL))
    up, across = np.triu_indices(7)
    products = (np.swapaxes(factors, -1, -2) @ factors)[:, up, across]
    np.testing.assert_allclose(rows[:, :4], vectors, atol=1e-5)
    np.testing.assert_allclose(rows[:, 4:], products, rtol=0.01, atol=2e-3)


def test_what_is_longer_keeps_its_direction():
    vectors, factors = people(5, size=30.0)
    grid = Grid(1.0)
    rows = grid.decode(bound_with_matrix(vectors, factors, grid).rows(_SEAL))
    kept = 1.0 / joint_norms(vectors, factors)
    np.testing.assert_allclose(rows[:, :4], vectors * kept[:, None], atol=1e-5)
    assert np.linalg.norm(rows, axis=1).min() > 0.99


def test_many_small_entries_are_not_all_rounded_down():
    """Factors are rounded to the nearest step: their squares are right on average."""
    rng = np.random.default_rng(6)
    factors = rng.standard_normal((2000, 1, 300)) / np.sqrt(300)
    grid = Grid(1.0)
    total = grid.decode(
        plain_sum([bound_with_matrix(np.zeros((2000, 1)), factors, grid)]).total(_SEAL)
    )
    diagonal = total[1:][np.flatnonzero(np.equal(*np.triu_indices(300)))] / 2000
    clipped = np.minimum(1.0, 1.0 / joint_norms(np.zeros((2000, 1)), factors))
    expected = np.mean(clipped[:, None] * np.square(factors[:, 0]), axis=0)
    assert diagonal.sum() == pytest.approx(expected.sum(), rel=0.005)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_a_vector_or_factor_that_is_not_finite_is_refused(bad):
    for which in (0, 1):
        given_ = people(7)
        given_[which][2].flat[1] = bad
        with pytest.raises(ValueError, match="client 2 is not finite"):
            bound_with_matrix(*given_, Grid(1.0))


def test_shapes_that_do_not_fit_are_refused():
    vectors, factors = people(8)
    with pytest.raises(ValueError, match="shapes"):
        bound_with_matrix(vectors[:2], factors, Grid(1.0))
    with pytest.raises(ValueError, match="at most"):
        bound_with_matrix(np.zeros((2**28 + 1, 0)), np.zeros((2**28 + 1, 0, 0)), Grid(1.0, 2**24))


def test_nobody_has_a_sum_of_zeros():
    bounded = bound_with_matrix(np.zeros((1, 3)), np.zeros((1, 1, 4)), Grid(1.0))
    np.testing.assert_array_equal(plain_sum([bounded]).total(_SEAL), np.zeros(3 + 10))

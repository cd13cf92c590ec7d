"""The sum: exact, whatever the order and the batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.privacy.values import _SEAL, Grid, bound, plain_sum

GRID = Grid(1.0)
VECTORS = np.random.default_rng(3).normal(size=(9, 6))


def total(*stacks: np.ndarray) -> np.ndarray:
    return plain_sum([bound(stack, GRID) for stack in stacks]).total(_SEAL)


def test_the_sum_is_the_sum_of_the_integer_rows():
    expected = bound(VECTORS, GRID).rows(_SEAL).sum(axis=0)
    assert total(VECTORS).tolist() == expected.tolist()
    assert np.any(expected != 0)


@settings(deadline=None)
@given(st.permutations(range(9)), st.lists(st.integers(0, 9), max_size=4))
def test_neither_order_nor_batching_matters(order, cuts):
    batches = np.split(VECTORS[order], sorted(cuts))
    assert total(*batches).tolist() == total(VECTORS).tolist()


def test_a_client_that_sends_zeros_is_a_client_that_is_not_there():
    with_zeros = np.vstack([VECTORS, np.zeros((1, 6))])
    assert total(with_zeros).tolist() == total(VECTORS).tolist()


def test_ten_thousand_clients_at_the_bound_do_not_overflow():
    assert total(np.full((10_000, 1), 1e9)).tolist() == [10_000 * GRID.steps]


def test_a_sum_of_nothing_is_refused():
    with pytest.raises(ValueError, match="contributions must not be empty"):
        plain_sum([])


@pytest.mark.parametrize("other", [Grid(2.0), Grid(1.0, 1000)])
def test_two_grids_are_not_added_up(other):
    with pytest.raises(ValueError, match="the same grid"):
        plain_sum([bound(VECTORS, GRID), bound(VECTORS, other)])


@pytest.mark.parametrize("width", [1, 5])
def test_a_short_contribution_is_not_spread_over_all_coordinates(width):
    """NumPy would broadcast a row of width one: √D times the bound."""
    with pytest.raises(ValueError, match="same number of coordinates"):
        plain_sum([bound(VECTORS, GRID), bound(VECTORS[:, :width], GRID)])

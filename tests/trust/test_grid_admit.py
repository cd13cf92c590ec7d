"""Rows that somebody else clipped: whoever sees a single one refuses what is not bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cslr.privacy.values import _SEAL, STEPS, Grid, NotAdmitted, admit, bound

LARGEST = np.finfo(float).max
CLIPPED = {
    "all 1e308": np.full((3, 50), 1e308),
    "the largest float, both signs": np.array([[LARGEST, -LARGEST], [-LARGEST, -LARGEST]]),
    "denormals beside 1e308": np.array([[1e308, 5e-324], [-5e-324, -1e308]]),
    "on the sphere": np.array([[0.6, 0.8], [1.0, 0.0], [0.28, -0.96]]),
    "very many coordinates": np.full((1, 60_000), 1.0),
    "gaussian": np.random.default_rng(5).normal(size=(7, 13)),
    "no coordinate": np.zeros((2, 0)),
    "nobody": np.zeros((0, 4)),
}


def squared_norm(row: np.ndarray) -> int:
    """In Python's integers, which cannot wrap around."""
    return sum(value * value for value in row.tolist())


@pytest.mark.parametrize("steps", [1, 7, STEPS, 2**24])
@pytest.mark.parametrize("case", CLIPPED)
def test_whatever_a_client_clipped_is_admitted_unchanged(case, steps):
    grid = Grid(1.0, steps)
    rows = bound(CLIPPED[case], grid).rows(_SEAL)
    admitted = admit(rows, grid)
    assert admitted.grid == grid
    assert admitted.rows(_SEAL).tolist() == rows.tolist()


@pytest.mark.parametrize("steps", [1, 5, STEPS, 2**24])
def test_a_row_is_admitted_up_to_the_bound_and_not_one_step_further(steps):
    exact = [[steps, 0], [-steps, 0], [0, 0]]
    if steps % 5 == 0:
        exact.append([3 * steps // 5, -4 * steps // 5])
    grid = Grid(1.0, steps)
    assert admit(np.array(exact), grid).rows(_SEAL).tolist() == exact
    for over in ([steps, 1], [-steps - 1, 0], [steps, steps]):
        with pytest.raises(NotAdmitted, match=rf"client {len(exact)} exceeds the clip"):
            admit(np.array([*exact, over]), grid)


@settings(deadline=None)
@given(
    arrays(
        np.int64,
        array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1)),
    ),
    st.integers(1, 20),
)
def test_rows_are_admitted_exactly_if_their_norm_in_python_integers_is_within(rows, steps):
    within = all(squared_norm(row) <= steps**2 for row in rows)
    try:
        taken = admit(rows, Grid(1.0, steps)).rows(_SEAL)
    except NotAdmitted:
        assert not within
    else:
        assert within
        assert taken.tolist() == rows.tolist()


@pytest.mark.parametrize(
    "row",
    [
        [2**32, 0],  # its square is 2⁶⁴, which 64 bits read as 0
        [2**31] * 4,  # and so is the sum of these
        [-(2**63), 0],  # its absolute value is itself
        [2**24] * 2**16,  # each within the bound; 2¹⁶ squares of 2⁴⁸ are 2⁶⁴
        [2**63 - 1] * 3,
    ],
    ids=["2^32", "four 2^31", "the least integer", "many at the bound", "three of the largest"],
)
def test_a_row_whose_squares_wrap_around_is_not_admitted(row):
    with pytest.raises(NotAdmitted, match="exceeds the clip"):
        admit(np.array([row]), Grid(1.0, 2**24))


@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", "i4", "u8", "u1", "?", "c16", "O", ">i8", "M8[s]", "S1"]
)
def test_rows_of_another_type_are_not_admitted_even_if_they_would_fit(dtype):
    with pytest.raises(NotAdmitted, match="64-bit integers"):
        admit(np.ones((1, 2), dtype="i8").astype(dtype), Grid(1.0))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_rows_of_another_rank_are_not_admitted(shape):
    with pytest.raises(NotAdmitted, match="clients, coordinates"):
        admit(np.zeros(shape, dtype=np.int64), Grid(1.0))


def test_an_admitted_row_cannot_be_changed_by_its_sender_any_more():
    rows = np.ones((1, 3), dtype=np.int64)
    admitted = admit(rows, Grid(1.0))
    rows[0, 0] = 2**40
    assert admitted.rows(_SEAL).tolist() == [[1, 1, 1]]


def test_a_row_that_is_not_admitted_is_not_shortened_either():
    """Whoever sends too much is no client of ours; there is nothing to mend."""
    rows = np.array([[STEPS, STEPS]])
    with pytest.raises(NotAdmitted, match="exceeds the clip"):
        admit(rows, Grid(1.0))
    assert rows.tolist() == [[STEPS, STEPS]]


# -- how much can be added up ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 1000, STEPS, 2**24])
def test_the_sum_of_the_most_clients_is_exact_as_an_integer_and_as_a_double(steps):
    most = Grid(1.0, steps).most_clients
    noise = 46 * 2**40  # beyond what the noise can be
    assert most * steps + noise < 2**53
    assert (most + 1) * steps > 2**52
    assert most >= 2**28


@pytest.mark.parametrize("lift", [bound, admit])
def test_more_clients_than_can_be_added_exactly_are_refused(lift):
    grid = Grid(1.0, 2**24)
    nobody = np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype=np.int64), (grid.most_clients + 1, 0), (0, 0)
    )
    with pytest.raises(ValueError, match=f"clients .*{grid.most_clients} "):
        lift(nobody, grid)

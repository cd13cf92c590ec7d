"""Batches of fixed shapes: which rows they have, and the test that a model has to pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.arrays import FloatArray
from cslr.text.fixed_shapes import ROWS, filled_batches, rows_are_independent, rows_of


@given(st.lists(st.integers(1, 99), max_size=60), st.booleans())
def test_every_item_stands_once_in_a_batch_of_its_length(lengths: list[int], batched: bool) -> None:
    batches = list(filled_batches(range(len(lengths)), lengths, batched))
    assert sorted(index for batch, _ in batches for index in batch) == list(range(len(lengths)))
    for batch, filled in batches:
        length = lengths[batch[0]]
        assert {lengths[index] for index in filled} == {length}
        assert len(filled) == (rows_of(length) if batched else 1)
        assert filled[: len(batch)] == batch


def test_free_rows_repeat_the_first() -> None:
    assert list(filled_batches("ab", [50, 50], batched=True)) == [([0, 1], ["a", "b", "a", "a"])]


def test_longer_texts_stand_in_smaller_batches() -> None:
    assert [rows_of(length) for length in (1, 32, 33, 64, 65, 512)] == [8, 8, 4, 4, 2, 2]


def _values(items: list[float]) -> FloatArray:
    return np.array([[item, 1.0] for item in items])


def test_rows_that_depend_on_themselves_alone_are_accepted() -> None:
    assert rows_are_independent(_values, 1.0, 2.0)


@pytest.mark.parametrize(
    "fault",
    [
        lambda items: _values(items) + np.arange(ROWS)[:, None] * 1e-12,  # by place
        lambda items: _values(items) + np.sum(items) * 1e-12,  # by neighbours
        lambda items: _values(items) + np.eye(ROWS, 2) * 1e-12,  # the first place alone
    ],
)
def test_rows_that_depend_on_their_place_or_neighbours_are_not(fault) -> None:  # type: ignore[no-untyped-def]
    assert not rows_are_independent(fault, 1.0, 2.0)

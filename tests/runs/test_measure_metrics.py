"""AA, BWT and FWT on a matrix made by hand, and what must stay undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.runs.measure import average_accuracy, backward_transfer, closed_share, forward_transfer

# a[r, j] of three tasks; row 0 is before any training.
MATRIX = np.array(
    [
        [0.10, 0.20, 0.30],
        [0.90, 0.40, 0.35],
        [0.70, 0.80, 0.50],
        [0.60, 0.70, 0.95],
    ]
)
ZERO_SHOT = np.array([0.10, 0.25, 0.30])


def test_average_accuracy_is_the_mean_of_the_last_row():
    assert average_accuracy(MATRIX) == pytest.approx((0.60 + 0.70 + 0.95) / 3)


def test_backward_transfer_compares_the_end_with_the_moment_of_learning():
    assert backward_transfer(MATRIX) == pytest.approx(((0.60 - 0.90) + (0.70 - 0.80)) / 2)


def test_forward_transfer_compares_the_task_before_with_zero_shot():
    expected = ((0.40 - 0.25) + (0.50 - 0.30)) / 2
    assert forward_transfer(MATRIX, ZERO_SHOT) == pytest.approx(expected)


def test_row_zero_changes_none_of_them():
    other = MATRIX.copy()
    other[0] = np.nan
    assert average_accuracy(other) == average_accuracy(MATRIX)
    assert backward_transfer(other) == backward_transfer(MATRIX)
    assert forward_transfer(other, ZERO_SHOT) == forward_transfer(MATRIX, ZERO_SHOT)


def test_forward_transfer_is_undefined_where_an_unseen_label_has_no_score():
    unseen = np.where(np.triu(np.ones((4, 3)), k=0) > 0, np.nan, MATRIX)  # NaN above a[j, j]
    assert math.isnan(forward_transfer(unseen, ZERO_SHOT))
    assert average_accuracy(unseen) == average_accuracy(MATRIX)
    assert backward_transfer(unseen) == backward_transfer(MATRIX)


def test_a_hole_in_the_last_row_is_never_averaged_away():
    holed = MATRIX.copy()
    holed[-1, 0] = np.nan
    assert math.isnan(average_accuracy(holed))
    assert math.isnan(backward_transfer(holed))


def test_with_one_task_nothing_is_transferred():
    single = np.array([[0.1], [0.9]])
    assert average_accuracy(single) == pytest.approx(0.9)
    assert math.isnan(backward_transfer(single))
    assert math.isnan(forward_transfer(single, np.array([0.1])))


@pytest.mark.parametrize(
    ("score", "share"), [(0.7, 0.0), (0.9, 1.0), (0.8, 0.5), (0.6, -0.5), (1.0, 1.5)]
)
def test_the_closed_share_is_the_way_from_floor_to_ceiling(score, share):
    assert closed_share(score, floor=0.7, ceiling=0.9) == pytest.approx(share)


@pytest.mark.parametrize(("floor", "ceiling"), [(0.9, 0.9), (0.9, 0.8), (math.nan, 0.9)])
def test_where_there_is_no_way_to_go_no_share_was_closed(floor, ceiling):
    assert math.isnan(closed_share(0.85, floor, ceiling))

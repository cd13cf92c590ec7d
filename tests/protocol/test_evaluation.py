"""A charged evaluation: one bounded vector per unit, and the accuracy from its noisy sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL, plain_sum
from cslr.protocol.evaluation import (
    GRID,
    LABEL,
    Exam,
    Graded,
    answers_of,
    measured,
    read,
    shares_of,
)
from cslr.protocol.messages import answer
from cslr.protocol.ports import Ask

TASKS = 4
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, TASKS - 1)), max_size=30)


def arrays(rows: list[tuple[bool, int]]) -> tuple[np.ndarray, np.ndarray]:
    right = np.array([hit for hit, _ in rows], dtype=bool)
    return right, np.array([task for _, task in rows], dtype=np.int64)


def total(right, tasks, units) -> np.ndarray:
    graded = Graded(np.array(right), np.array(tasks), np.array(units))
    summed = plain_sum([answers_of(graded, Ask(LABEL, "evaluation", Exam(TASKS), GRID))])
    return GRID.decode(summed.total(_SEAL))


def plan_of(epsilon: float = 8.0, tasks: int = TASKS):
    return calibrate(Budget(epsilon), tasks, schedule=Schedule(evaluation=1))


@given(ROWS)
def test_no_unit_says_more_than_its_bound_and_none_is_shortened(rows):
    right, tasks = arrays(rows)
    vector = shares_of(right, tasks, TASKS)
    assert np.linalg.norm(vector) <= 1 + 1e-12
    held = len(set(tasks.tolist()))
    assert vector.sum() == pytest.approx(math.sqrt(held))
    if rows:
        said = total(right, tasks, [7] * len(rows))
        np.testing.assert_allclose(said, vector, atol=2 / GRID.steps)


def test_a_unit_says_which_share_of_its_rows_is_right():
    right, tasks = np.array([True, True, False, True]), np.array([0, 0, 0, 2])
    wanted = np.array([2 / 3, 1 / 3, 0, 0, 1, 0, 0, 0]) / math.sqrt(2)
    np.testing.assert_allclose(shares_of(right, tasks, TASKS), wanted)


def test_a_unit_adds_the_same_whoever_else_is_there():
    with_all = total([True, False, True], [0, 1, 1], [3, 5, 5])
    without = total([True], [0], [3])
    np.testing.assert_array_equal(with_all - without, total([False, True], [1, 1], [5, 5]))


def test_without_any_test_row_a_sum_of_zeros_is_released():
    none = np.zeros(0, dtype=np.int64)
    np.testing.assert_array_equal(total(none.astype(bool), none, none), np.zeros(2 * TASKS))


def test_the_accuracy_is_the_mean_over_units_of_their_shares():
    right = [True, True, True, False, False]
    found = read(total(right, [0] * 5, [1, 1, 1, 1, 2])[:2], sigma=0.0)
    assert found.accuracy[0] == pytest.approx((3 / 4 + 0) / 2, abs=1e-5)
    assert found.error[0] == 0.0


@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
def test_the_standard_error_is_that_of_the_noise(share):
    sigma, weight = 1.3, 60.0
    noise = sigma * np.random.default_rng(5).standard_normal((4000, 2))
    told = read(weight * np.array([share, 1 - share]), sigma)
    drawn = [read(row, sigma).accuracy[0] for row in weight * np.array([share, 1 - share]) + noise]
    assert np.mean(drawn) == pytest.approx(share, abs=2e-3)
    clipped = share + 2 * told.error[0] > 1  # where 100 % cuts the noise off it spreads less
    assert np.std(drawn) == pytest.approx(told.error[0], rel=0.3 if clipped else 0.06)


def test_a_weight_within_its_noise_tells_no_accuracy():
    found = read(np.array([3.0, 1.0, 30.0, 10.0, -2.0, 1.0]), sigma=1.0)
    assert np.isnan(found.accuracy).tolist() == [True, False, True]
    assert np.isnan(found.error).tolist() == [True, False, True]


def test_a_kept_evaluation_is_not_paid_for_again(make_ledger, drawer):
    plan, ledger = plan_of(), make_ledger(8.0)
    ledger.fix_plan(plan, {})
    asked = []

    class OneUnit:
        def total(self, ask):
            asked.append(ask.label)
            return plain_sum([answer(Graded(np.array([True]), np.array([0]), np.array([0])), ask)])

    first = measured(OneUnit, Exam(TASKS), plan, ledger, drawer).value
    again = measured(OneUnit, Exam(TASKS), plan, ledger, drawer).value
    np.testing.assert_array_equal(first.accuracy, again.accuracy)
    assert [charge.label for charge in ledger.charges] == [LABEL]
    assert asked == [LABEL]
    assert not ledger.unsettled


def test_a_plan_without_an_evaluation_pays_for_none(make_ledger, drawer):
    plan = calibrate(Budget(8.0), 2)
    with pytest.raises(ValueError, match="contains no charge for an evaluation"):
        measured(lambda: pytest.fail("asked"), Exam(TASKS), plan, make_ledger(8.0), drawer)

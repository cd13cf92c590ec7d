"""Model updates: clipped once, noised once, charged once, and divided by a public number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from cslr.errors import BudgetExceeded, LedgerCorrupted
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import plain_sum
from cslr.protocol.messages import answer
from cslr.protocol.updates import UpdateId, release_update, update_ask
from tests.protocol.crashes import Crash

HEAD = Schedule(replay=0, head=2)
WHERE = UpdateId(task=1, round=0, clients=50)
NORM = 0.5


def planned(epsilon: float = math.inf, head_q: float = 1.0, cap: int = 2):
    return calibrate(Budget(epsilon), 2, cap=cap, schedule=HEAD, head_q=head_q)


def some_updates(b: int = 6, size: int = 30, length: float = 0.1, seed: int = 0) -> np.ndarray:
    """(b, D) updates of one length."""
    rows = np.random.default_rng(seed).standard_normal((b, size))
    return length * rows / np.linalg.norm(rows, axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Trained:
    """Training whose outcome is known."""

    vectors: np.ndarray

    def updates(self, examples):
        return self.vectors


class Everybody:
    """All clients at once, who need no rows."""

    def total(self, ask):
        return plain_sum([answer(None, ask)])


def released_update(updates, norm, update, *rest):
    """(D,) the average of updates that clients would send now."""
    ask = update_ask(update, Trained(updates), norm)
    return release_update(ask, update, Everybody, *rest)


class Broken:
    """A disk that fails when a result should be made safe."""

    def load(self, label):
        return None

    def save(self, label, vector):
        raise Crash


# -- clip ------------------------------------------------------------------------------------------


def test_with_room_and_without_noise_it_is_the_plain_sum_over_the_expected_cohort(
    make_ledger, drawer
):
    updates, plan = some_updates(), planned()
    found = released_update(updates, NORM, WHERE, plan, make_ledger(), drawer)
    np.testing.assert_allclose(found, updates.sum(axis=0) / 50, atol=6 * NORM / 2**20 / 50)


def test_an_update_is_clipped_once_and_as_a_whole(make_ledger, drawer):
    """A long one keeps its direction, a short one is left as it is."""
    updates = np.concatenate([some_updates(1, length=40.0), some_updates(1, length=0.2, seed=1)])
    found = released_update(updates, NORM, WHERE, planned(), make_ledger(), drawer) * 50
    expected = updates[0] * (NORM / 40.0) + updates[1]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("length", [0.4, 1.0, 1e6])
def test_no_client_moves_the_sum_by_more_than_the_norm(make_ledger, drawer, length):
    updates, plan = some_updates(length=length), planned()
    with_all = released_update(updates, NORM, WHERE, plan, make_ledger(), drawer)
    for client in range(len(updates)):
        zeroed = updates.copy()
        zeroed[client] = 0.0
        drawer.kept.clear()
        without = released_update(zeroed, NORM, WHERE, plan, make_ledger(), drawer)
        moved = np.linalg.norm(with_all - without) * 50
        assert moved <= NORM * (1 + 1e-9)
        assert moved > min(length, NORM) * 0.999  # and the bound is used


def test_an_update_that_is_not_finite_is_refused_before_anything_is_paid(make_ledger, drawer):
    updates, ledger = some_updates(), make_ledger()
    updates[3, 4] = np.nan
    with pytest.raises(ValueError, match="client 3 is not finite"):
        released_update(updates, NORM, WHERE, planned(), ledger, drawer)
    assert ledger.charges == ()


# -- noise -----------------------------------------------------------------------------------------


def test_the_noise_has_the_scale_of_the_plan_times_the_norm(make_ledger, drawer):
    """σ of the head times the norm, before the division; 2 % either way is noticed."""
    plan, size = planned(4.0), 60_000
    updates = np.zeros((6, size))
    found = released_update(updates, NORM, WHERE, plan, make_ledger(4.0), drawer)
    z = found * 50 / (plan.head_sigma * NORM)
    for factor, honest in ((1.0, True), (0.98, False), (1.02, False)):
        lower = float(stats.chi2.cdf(np.sum((z / factor) ** 2), size))
        assert (1e-3 < lower < 1 - 1e-3) is honest
    assert abs(z.mean()) < 4 / math.sqrt(size)


def test_another_round_of_the_same_task_has_other_noise(make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    one, two = (
        released_update(np.zeros((6, 100)), NORM, UpdateId(1, number, 50), plan, ledger, drawer)
        for number in (0, 1)
    )
    assert np.all(one != two)


# -- the divisor -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head_q", "cap", "clients", "expected"),
    [(1.0, 2, 50, 50.0), (0.3, 2, 50, 15.0), (1.0, 1, 50, 25.0), (0.5, 1, 200, 50.0)],
)
def test_an_update_is_divided_by_the_cohort_that_is_expected(
    make_ledger, drawer, head_q, cap, clients, expected
):
    updates, plan = some_updates(), planned(head_q=head_q, cap=cap)
    where = UpdateId(0, 0, clients)
    assert where.expected(plan) == pytest.approx(expected)
    found = released_update(updates, NORM, where, plan, make_ledger(), drawer)
    np.testing.assert_allclose(found * expected, updates.sum(axis=0), atol=1e-5)


def test_how_many_came_does_not_change_the_divisor(make_ledger, drawer):
    one = released_update(some_updates(1), NORM, WHERE, planned(), make_ledger(), drawer)
    drawer.kept.clear()
    thrice = np.repeat(some_updates(1), 3, axis=0)
    three = released_update(thrice, NORM, WHERE, planned(), make_ledger(), drawer)
    np.testing.assert_allclose(three, 3 * one, atol=1e-6)


# -- cost ------------------------------------------------------------------------------------------


def test_an_update_is_charged_as_one_of_the_head_behind_its_own_coin(make_ledger, drawer):
    plan, ledger = planned(4.0, head_q=0.5), make_ledger(4.0)
    for number in (0, 1):
        released_update(some_updates(), NORM, UpdateId(1, number, 50), plan, ledger, drawer)
    first, second = ledger.charges
    assert (first.label, first.part, first.task) == ("task 1 update 0", "head", 1)
    assert (first.sigma, first.q) == (plan.head_sigma, 0.5)
    assert first.round != second.round
    assert ledger.epsilon("replay", "roster") == 0.0


def test_all_updates_of_a_plan_spend_its_budget(make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    for task, number in np.ndindex(2, 2):
        released_update(some_updates(), NORM, UpdateId(task, number, 50), plan, ledger, drawer)
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)
    with pytest.raises(BudgetExceeded, match="beyond its budget of 4"):
        released_update(some_updates(), NORM, UpdateId(1, 2, 50), plan, ledger, drawer)


def test_an_update_without_noise_needs_an_infinite_budget(make_ledger, drawer):
    ledger = make_ledger(4.0)
    with pytest.raises(BudgetExceeded, match="task 1 update 0"):
        released_update(some_updates(), NORM, WHERE, planned(), ledger, drawer)
    assert not drawer.kept
    assert ledger.charges == ()


# -- interruptions ---------------------------------------------------------------------------------


def test_a_kept_update_is_read_again_and_not_paid_again(make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    first = released_update(some_updates(), NORM, WHERE, plan, ledger, drawer)
    other = some_updates(seed=5)  # whatever clients would say now
    again = released_update(other, NORM, WHERE, plan, ledger, drawer)
    np.testing.assert_array_equal(again, first)
    assert len(ledger.charges) == 1


def test_an_update_that_was_not_yet_safe_gets_the_same_noise_at_no_cost(
    make_ledger, drawer, make_drawer
):
    plan, ledger = planned(4.0), make_ledger(4.0)
    with pytest.raises(Crash):
        released_update(some_updates(), NORM, WHERE, plan, ledger, Broken())
    again = released_update(some_updates(), NORM, WHERE, plan, ledger, drawer)
    assert len(ledger.charges) == 1
    straight = released_update(some_updates(), NORM, WHERE, plan, make_ledger(4.0), make_drawer())
    np.testing.assert_array_equal(again, straight)


def test_after_a_crash_nobody_is_asked_again(enforced_ledger, drawer):
    plan, ledger = planned(4.0), enforced_ledger(4.0)
    with pytest.raises(Crash):
        released_update(some_updates(), NORM, WHERE, plan, ledger, Broken())

    def cohort():
        raise AssertionError("clients were asked for an update that was charged already")

    ask = update_ask(WHERE, Trained(some_updates()), NORM)
    release_update(ask, WHERE, cohort, plan, ledger, drawer)
    assert list(drawer.kept) == [WHERE.label]
    assert len(ledger.charges) == 1


def test_a_kept_update_the_ledger_did_not_pay_for_is_refused(make_ledger, drawer):
    drawer.kept[WHERE.label] = np.zeros(30)
    with pytest.raises(LedgerCorrupted, match="task 1 update 0"):
        released_update(some_updates(), NORM, WHERE, planned(4.0), make_ledger(4.0), drawer)

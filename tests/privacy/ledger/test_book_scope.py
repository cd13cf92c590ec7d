"""A budget for the replay alone: it is enforced, and never shown as one for everything."""

from __future__ import annotations

import math

import pytest

from cslr.errors import BudgetExceeded, PlanChanged
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.plan import Budget, Schedule, calibrate

OPEN_UPDATE = Charge("task 0 update 0", 5, "head", None, task=0)


def tag(key: bytes) -> str:
    return "the same sum"


@pytest.mark.parametrize("scope", ["replay", "end_to_end"])
@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_a_budget_is_read_back_as_it_was_written(scope, epsilon):
    budget = Budget(epsilon, scope=scope)
    assert Budget.from_dict(budget.as_dict()) == budget


def test_a_budget_of_everything_is_written_as_before_there_were_scopes():
    assert Budget(4.0).as_dict() == {"epsilon": 4.0, "delta": 1e-5, "adversary": "roster"}
    assert Budget(4.0, scope="replay").as_dict()["scope"] == "replay"


def test_within_a_promise_about_the_replay_a_head_may_be_trained_openly(make_ledger):
    ledger, plan = make_ledger(4.0, scope="replay"), calibrate(Budget(4.0), 1)
    ledger.charge(OPEN_UPDATE, tag)
    ledger.charge(plan.charge("task 0", 0), tag)
    assert ledger.epsilon("replay", "roster") == pytest.approx(4.0, abs=1e-6)
    assert ledger.epsilon("end_to_end", "roster") == math.inf


def test_within_a_promise_about_everything_it_may_not(make_ledger):
    ledger = make_ledger(4.0)
    with pytest.raises(BudgetExceeded, match="update 0"):
        ledger.charge(OPEN_UPDATE, tag)
    assert ledger.charges == ()


@pytest.mark.parametrize("scope", ["replay", "end_to_end"])
def test_a_replay_beyond_the_budget_is_refused_in_either_scope(make_ledger, scope):
    ledger, plan = make_ledger(1.0, scope=scope), calibrate(Budget(4.0), 1)
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        ledger.charge(plan.charge("task 0", 0), tag)
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        ledger.charge(Charge("task 0", 0, "replay", None), tag)


def test_noised_updates_count_in_a_promise_about_everything(make_ledger):
    plan, ledger = calibrate(Budget(4.0), 1, schedule=Schedule(1, 0, 2)), make_ledger(4.0)
    ledger.charge(plan.charge("task 0", 0), tag)
    for update in range(2):
        before = ledger.epsilon("end_to_end", "roster")
        ledger.charge(plan.head_charge(f"task 0 update {update}", 0, update), tag)
        assert ledger.epsilon("end_to_end", "roster") > before
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)
    assert ledger.epsilon("replay", "roster") < 3.0
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        ledger.charge(plan.head_charge("task 0 update 2", 0, 2), tag)


def test_a_cap_also_holds_for_the_updates_of_a_plan(make_ledger):
    """Two tasks, of which a client contributes to one: as much noise as one task needs."""
    plan = calibrate(Budget(4.0), 2, cap=1, schedule=Schedule(1, 0, 2))
    ledger = make_ledger(4.0)
    ledger.fix_plan(plan, {})
    for task in (0, 1):
        ledger.charge(plan.charge(f"task {task}", task), tag)
        for update in range(2):
            label = f"task {task} update {update}"
            ledger.charge(plan.head_charge(label, task, update), tag)
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)


def test_a_ledger_of_another_scope_belongs_to_another_federation(path, keys):
    whole = Federation("clinics", Budget(4.0), "enforced")
    Ledger.at(path, whole, keys).close()
    replay = Federation("clinics", Budget(4.0, scope="replay"), "enforced")
    with pytest.raises(PlanChanged, match="scope"):
        Ledger.at(path, replay, keys)
    assert Ledger.read(path).federation == whole

"""Many spenders, one budget: threads of a process that share a ledger."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cslr.errors import BudgetExceeded
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Budget, calibrate

RIVALS, ADMITTED = 24, 3


@pytest.fixture
def hurried():
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("where", ["memory", "file"])
def test_threads_that_race_for_a_budget_never_overspend_it(opened, path, keys, hurried, where):
    plan = calibrate(Budget(8.0), ADMITTED)
    ledger = opened()
    if where == "memory":
        ledger = Ledger.in_memory(ledger.federation, keys)

    def spend(number: int) -> bool:
        charge = Charge(f"release {number}", number, "replay", plan.sigma)
        try:
            ledger.charge(charge, lambda key: str(number))
        except BudgetExceeded:
            return False
        ledger.settle(f"release {number}", "digest")
        return True

    with ThreadPoolExecutor(8) as pool:
        won = sum(pool.map(spend, range(RIVALS)))
    assert won == ADMITTED == len(ledger.charges)
    assert ledger.epsilon("end_to_end", "roster") <= 8.0
    assert ledger.unsettled == []
    if where == "file":
        assert Ledger.read(path).charges == ledger.charges


def test_threads_that_simulate_the_same_sum_pay_for_it_once(make_ledger, hurried):
    ledger = make_ledger(100.0)
    charge = Charge("task 0", 0, "replay", 3.0)
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: ledger.charge(charge, lambda key: "the sum"), range(16)))
    assert len(set(keys)) == 1
    assert len(ledger.charges) == 1

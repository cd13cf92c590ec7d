"""A long ledger is as fast as a short one, and the fast check never allows too much."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import BudgetExceeded
from cslr.privacy.accounting import Charge, epsilon_of, gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget
from cslr.seeding import Seeds

CHARGES = st.builds(
    Charge,
    label=st.sampled_from(["a", "b", "c", "d"]),
    round=st.integers(0, 5),
    part=st.sampled_from(["replay", "head"]),
    sigma=st.one_of(st.none(), st.floats(0.3, 20.0)),
    q=st.just(1.0),
    task=st.one_of(st.none(), st.integers(0, 3)),
)


def ledger_of(budget: Budget) -> Ledger:
    return Ledger.in_memory(Federation("test", budget, "simulated"), SeededKeys(Seeds(13)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(CHARGES, max_size=8),
    st.floats(0.5, 30.0),
    st.sampled_from(["replay", "end_to_end"]),
    st.sampled_from(["public", "roster"]),
)
def test_a_charge_is_admitted_exactly_if_the_accountant_says_so(charges, epsilon, scope, adversary):
    budget = Budget(epsilon, adversary=adversary, scope=scope)
    ledger = ledger_of(budget)
    for number, charge in enumerate(charges):
        before = ledger.charges
        cost = epsilon_of([*before, charge], budget.delta, adversary, scope)
        try:
            ledger.charge(charge, lambda key, number=number: str(number))
        except BudgetExceeded:
            assert cost > epsilon - 1e-6
            assert ledger.charges == before
        else:
            assert cost <= epsilon + 1e-6


def test_two_rates_in_one_round_are_refused_before_they_are_written():
    """Written down, they would make every later ε impossible to compute."""
    ledger = ledger_of(Budget(math.inf))
    ledger.charge(Charge("a", 0, "replay", 3.0, 1.0), lambda key: "")
    with pytest.raises(ValueError, match="two different participation rates"):
        ledger.charge(Charge("b", 0, "replay", 3.0, 0.5), lambda key: "")
    assert len(ledger.charges) == 1


def test_the_two_thousandth_charge_is_as_much_work_as_the_first(steps_of):
    """A walk over all earlier charges would make it some hundred times as much."""
    ledger = ledger_of(Budget(8.0))

    def charge(numbers: range) -> None:
        for number in numbers:
            label = f"round {number}"
            ledger.charge(Charge(label, number, "replay", 100.0), lambda key: "")
            ledger.settle(label, "digest")

    charge(range(10))
    early = steps_of(lambda: charge(range(10, 30)))
    charge(range(30, 1980))
    late = steps_of(lambda: charge(range(1980, 2000)))
    assert late < 1.2 * early
    assert len(ledger.charges) == 2000
    expected = gaussian_epsilon(math.sqrt(2000) / 100, 1e-5)
    assert ledger.epsilon("replay", "roster") == pytest.approx(expected, rel=1e-9)

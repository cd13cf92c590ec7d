"""Zero-out adjacency: what is charged for, what the libraries are asked, and how to translate."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from scipy.optimize import brentq

from cslr.privacy.accounting import (
    Charge,
    epsilon_of,
    gaussian_epsilon,
    pld_epsilon,
    rdp_epsilon,
    replace_one_epsilon,
    total_mu,
)
from cslr.privacy.plan import Budget, Schedule, calibrate

DELTA = 1e-5
FAST = 1e-3  # interval of the privacy losses: ε is still good to five digits


def replay(*sigmas: float | None, q: float = 1.0) -> list[Charge]:
    """One release per round."""
    return [Charge(f"task {t}", t, "replay", sigma, q) for t, sigma in enumerate(sigmas)]


def test_one_client_zeroed_moves_the_sum_once_not_twice():
    """Zero-out adjacency: sensitivity S, so μ = 1/σ. Replacing a client would be 2S."""
    assert epsilon_of(replay(2.0), DELTA, "roster") == gaussian_epsilon(0.5, DELTA)


# -- translation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "replaced"), [(1.0, 2.2), (4.0, 9.1), (8.0, 19.1)])
@pytest.mark.parametrize("releases", [1, 4])
def test_what_zero_out_means_under_replace_one(epsilon, replaced, releases):
    """The figures the documents translate with, whatever the number of releases."""
    plan = calibrate(Budget(epsilon), releases)
    assert round(replace_one_epsilon(plan.charges(), DELTA), 1) == replaced
    mu = brentq(lambda m: gaussian_epsilon(m, DELTA) - epsilon, 1e-3, 10)
    assert total_mu(plan.charges()) == pytest.approx(mu, rel=1e-6)


def test_the_translation_agrees_with_the_pld_of_a_sum_that_moves_twice_as_far():
    """By the library's own replace-one relation, which its PLD (unlike its RDP) respects."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = pld.PLDAccountant(relation, value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(2.0), 3)
    translated = replace_one_epsilon(replay(2.0, 2.0, 2.0), DELTA)
    assert accountant.get_epsilon(DELTA) == pytest.approx(translated, rel=1e-6)


def test_the_translation_follows_scope_and_cap():
    charges = [*replay(2.0, 4.0), Charge("update", 7, "head", 1.0)]
    for scope, cap, sigmas in (
        ("replay", None, (2.0, 4.0)),
        ("replay", 1, (2.0,)),
        ("end_to_end", None, (2.0, 4.0, 1.0)),
        ("end_to_end", 1, (1.0,)),
    ):
        mu = math.sqrt(sum(sigma**-2 for sigma in sigmas))
        assert total_mu(charges, scope, cap) == pytest.approx(mu)
        found = replace_one_epsilon(charges, DELTA, scope, cap)
        assert found == pytest.approx(gaussian_epsilon(2 * mu, DELTA))


def test_nothing_translates_to_nothing_and_infinity_to_infinity():
    assert replace_one_epsilon([], DELTA) == 0.0
    assert replace_one_epsilon(replay(2.0, None), DELTA) == math.inf
    head = Charge("pooled training", 0, "head", None)
    assert replace_one_epsilon([*replay(2.0), head], DELTA, "replay") < math.inf


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(replay=4, lists=1), Schedule(head=3)])
def test_replacing_costs_more_than_zeroing_and_less_than_zeroing_two(schedule):
    """Replace is zero-out twice: δ grows by 1 + e^ε in the group bound, so compare at such a δ."""
    plan = calibrate(Budget(2.0), 3, schedule=schedule)
    one = epsilon_of(plan.charges(), DELTA, "roster")
    replaced = replace_one_epsilon(plan.charges(), DELTA)
    stricter = brentq(
        lambda e: e - epsilon_of(plan.charges(), DELTA / (1 + math.exp(e)), "roster"), 0.1, 50
    )
    assert 2 * one < replaced < 2 * stricter


# -- what the libraries are asked ------------------------------------------------------------------


def test_the_library_is_asked_for_add_or_remove_and_never_for_its_renyi_accountant(monkeypatch):
    asked = []
    original = pld.PLDAccountant

    def watched(*args: object, **kwargs: object):
        accountant = original(*args, **kwargs)
        asked.append(accountant.neighboring_relation)
        return accountant

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the Rényi accountant of the library was asked")

    monkeypatch.setattr(pld, "PLDAccountant", watched)
    monkeypatch.setattr(rdp, "RdpAccountant", refused)
    pld_epsilon([(2.0, 0.3)], DELTA, FAST)
    rdp_epsilon([(2.0, 0.3)], DELTA, [4.0])
    replace_one_epsilon(replay(2.0), DELTA)
    assert asked == [dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE]


def test_renyi_of_the_library_cannot_be_relied_on_for_replace_one():
    """google/differential-privacy#378: it forgets that replacing moves a sum by twice the bound.

    When this fails the library was mended: nothing here depends on it, but the documents say so.
    """
    replace_one = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.GaussianDpEvent(2.0)
    renyi = rdp.RdpAccountant(neighboring_relation=replace_one).compose(event).get_epsilon(DELTA)
    assert renyi < 0.6 * replace_one_epsilon(replay(2.0), DELTA)
    assert renyi == pytest.approx(rdp_epsilon([(2.0, 1.0)], DELTA), rel=0.02)

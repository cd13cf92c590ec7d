"""Theorem 4 as a program: the formula, any schedule, and that the ledger never says more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.cli.show.schedule import priced_schedule, schedule_text
from cslr.errors import ConfigError
from cslr.privacy.accounting import rdp_epsilon
from cslr.privacy.plan import Budget, Schedule, calibrate, with_noise
from cslr.privacy.theorem4 import ORDERS, ReplayRound, replay_costs, theorem4_epsilon


def test_without_sampling_it_is_the_papers_sum():
    sigmas = (1.0, 2.0, 3.0, 4.0)
    found = replay_costs(ReplayRound(sigmas, lists=(5.0,)))
    alpha = np.array(ORDERS)
    np.testing.assert_allclose(found, sum(alpha / (2 * s**2) for s in (*sigmas, 5.0)))


@pytest.mark.parametrize("q", [0.3, 1.0])
def test_four_statistics_in_two_hundred_rounds_are_what_the_accountant_says(q):
    found = theorem4_epsilon([(ReplayRound((1.45,) * 4, q=q), 200)], 1e-5)
    expected = rdp_epsilon([(1.45 / 2, q)] * 200, 1e-5, ORDERS, classic=True)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("lists", [0, 1])
@pytest.mark.parametrize("statistics", [1, 4])
@pytest.mark.parametrize("times", [4, 200])
def test_the_ledger_never_says_more_than_the_theorem(lists, statistics, times):
    schedule = Schedule(replay=statistics, lists=lists)
    plan = with_noise(calibrate(Budget(math.inf), times, schedule=schedule), 1.45)
    each = ReplayRound((1.45,) * statistics, (1.45,) * lists)
    assert plan.epsilon("roster") <= theorem4_epsilon([(each, times)], 1e-5)


def test_lists_are_not_amplified():
    alone = theorem4_epsilon([(ReplayRound((), (1.45,)), 4)], 1e-5)
    beside = theorem4_epsilon([(ReplayRound((1.45,), (1.45,), q=1e-6), 4)], 1e-5)
    assert beside == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize(
    "arguments", [{"statistics": ()}, {"statistics": (0.0,)}, {"statistics": (1.0,), "q": 0.0}]
)
def test_what_is_no_round_is_refused(arguments):
    with pytest.raises(ValueError, match=r"round|multipliers|q must"):
        ReplayRound(**arguments)


def test_a_schedule_is_priced_both_ways():
    priced = priced_schedule("1,4,1", Budget(4.0), 4, 0.3)
    plan = calibrate(Budget(4.0), 4, 0.3, schedule=Schedule(replay=4, lists=1))
    assert priced["sigma"] == plan.sigma
    assert priced["epsilon"] == pytest.approx(4.0, rel=1e-6)
    assert priced["theorem4_epsilon"] > 4.0
    assert "1 lists and 4 separate statistics in each of 4 rounds" in schedule_text(priced)


@pytest.mark.parametrize("text", ["1,4", "a,b,c", "0,0,1", "1,4,0"])
def test_another_schedule_is_refused(text):
    with pytest.raises(ConfigError, match="--schedule"):
        priced_schedule(text, Budget(4.0), 4, 1.0)

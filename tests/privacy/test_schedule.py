"""A plan of several releases a task: it spends its budget, shares it fairly and names its coins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import ConfigError
from cslr.privacy.accounting import epsilon_of
from cslr.privacy.plan import Budget, Schedule, calibrate

SCHEDULES = [
    Schedule(),
    Schedule(replay=4),
    Schedule(replay=4, lists=1),
    Schedule(replay=0, head=3),
    Schedule(replay=1, head=50),
    Schedule(replay=4, lists=1, head=10),
]
NAMED = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=lambda s: f"{s.replay}-{s.lists}-{s.head}"
)


def precision(charges) -> float:
    """Σ σ⁻²: what charges cost together where nothing amplifies."""
    return sum(charge.sigma**-2 for charge in charges)


def of(plan, task=None, part=None, ending="") -> list:
    """Some of the plan's charges."""
    return [
        charge
        for charge in plan.charges()
        if task in (None, charge.task)
        and part in (None, charge.part)
        and f" {ending}" in charge.label
    ]


@given(
    st.builds(Schedule, st.integers(0, 5), st.integers(0, 2), st.integers(0, 6)),
    st.sampled_from([0.5, 1.0, 4.0, 8.0]),
    st.integers(1, 6),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_every_schedule_spends_its_budget_and_no_more(schedule, epsilon, tasks, data):
    if not schedule.coins:
        return
    cap = data.draw(st.integers(1, tasks))
    plan = calibrate(Budget(epsilon), tasks, cap=cap, schedule=schedule)
    assert epsilon * (1 - 1e-6) <= plan.epsilon("roster") <= epsilon


@pytest.mark.parametrize(
    ("schedule", "cap"),
    [
        (Schedule(4), 1),
        pytest.param(Schedule(1, 0, 3), 1, marks=pytest.mark.slow),
        (Schedule(4, 1, 10), 2),
    ],
)
def test_a_cohort_that_nobody_knows_spends_the_budget_and_no_more(schedule, cap):
    budget = Budget(4.0, adversary="public")
    plan = calibrate(budget, 3, q=0.3, cap=cap, schedule=schedule, head_q=0.3)
    assert 0.995 * 4.0 <= plan.epsilon("public") <= 4.0
    assert plan.unit < calibrate(budget, 3, cap=cap, schedule=schedule).unit


@NAMED
def test_the_charges_of_a_plan_are_what_its_epsilon_is_made_of(schedule):
    plan = calibrate(Budget(4.0), 3, cap=2, schedule=schedule)
    spent = epsilon_of(plan.charges(), 1e-5, "roster", cap=2)
    assert spent == plan.epsilon("roster") == pytest.approx(4.0, abs=1e-5)
    assert len(plan.charges()) == 3 * (schedule.replay + schedule.lists + schedule.head)
    assert len({charge.label for charge in plan.charges()}) == len(plan.charges())


def test_a_cap_buys_the_noise_of_fewer_tasks():
    schedule = Schedule(replay=4, lists=1, head=10)
    capped = calibrate(Budget(4.0), 6, cap=2, schedule=schedule)
    fewer = calibrate(Budget(4.0), 2, schedule=schedule)
    assert capped.sigma == pytest.approx(fewer.sigma)
    assert capped.head_sigma == pytest.approx(fewer.head_sigma)


# -- how it is shared ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule", [Schedule(1, 0, 1), Schedule(1, 0, 50), Schedule(4, 1, 10), Schedule(2, 0, 1)]
)
def test_replay_and_updates_get_half_of_the_budget_each(schedule):
    plan = calibrate(Budget(4.0), 3, schedule=schedule)
    replay, head = precision(of(plan, part="replay")), precision(of(plan, part="head"))
    assert replay == pytest.approx(head)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(4, 1, 0), Schedule(0, 0, 9)])
def test_what_has_no_other_half_gets_the_whole_budget(schedule):
    plan = calibrate(Budget(4.0), 3, schedule=schedule)
    whole = calibrate(Budget(4.0), 3)
    assert precision(plan.charges()) == pytest.approx(precision(whole.charges()))
    assert plan.unit == pytest.approx(whole.sigma)


def test_within_a_half_all_releases_have_the_same_noise():
    plan = calibrate(Budget(4.0), 3, schedule=Schedule(replay=4, lists=1, head=10))
    assert {charge.sigma for charge in of(plan, part="replay")} == {plan.sigma}
    assert {charge.sigma for charge in of(plan, part="head")} == {plan.head_sigma}
    assert plan.sigma == pytest.approx(plan.unit * math.sqrt(5))
    assert plan.head_sigma == pytest.approx(plan.unit * math.sqrt(10))


def test_what_is_not_scheduled_has_no_noise_to_offer():
    assert calibrate(Budget(4.0), 3, schedule=Schedule(replay=1)).head_sigma is None
    assert calibrate(Budget(4.0), 3, schedule=Schedule(replay=0, head=2)).sigma is None


def test_without_a_budget_nothing_is_noised():
    plan = calibrate(Budget(math.inf), 3, schedule=Schedule(1, 1, 1))
    assert plan.sigma is plan.head_sigma is plan.unit is None
    assert plan.epsilon("roster") == math.inf


# -- coins -----------------------------------------------------------------------------------------


def test_the_sums_of_a_task_share_one_coin_and_everything_else_has_its_own():
    plan = calibrate(Budget(4.0), 2, schedule=Schedule(replay=4, lists=1, head=3))
    for task in (0, 1):
        sums = {charge.round for charge in of(plan, task, ending="sum")}
        others = [charge.round for charge in of(plan, task) if charge.round not in sums]
        assert len(sums) == 1
        assert len(others) == len(set(others)) == 4  # a list and three updates
    first, second = ({charge.round for charge in of(plan, task)} for task in (0, 1))
    assert not first & second


@pytest.mark.parametrize(("lists", "rate"), [(0, 0.5), (1, 1.0)])
def test_a_cohort_that_names_show_claims_no_amplification(lists, rate):
    """Neither for its lists nor for the sum of the same clients; updates flip their own coins."""
    plan = calibrate(Budget(4.0), 2, q=0.5, schedule=Schedule(4, lists, 3), head_q=0.25)
    rates = {ending: {c.q for c in of(plan, ending=ending)} for ending in ("sum", "list", "update")}
    assert rates == {"sum": {rate}, "list": {1.0} if lists else set(), "update": {0.25}}


def test_lists_take_all_that_a_hidden_cohort_earns():
    budget = Budget(4.0, adversary="public")
    lists = calibrate(budget, 2, q=0.3, schedule=Schedule(replay=1, lists=1))
    assert lists.unit == pytest.approx(calibrate(budget, 2).unit)
    assert lists.epsilon("public") == lists.epsilon("roster")
    assert calibrate(budget, 2, q=0.3).unit < lists.unit / 1.1


@NAMED
def test_every_charge_says_which_task_it_is_about(schedule):
    plan = calibrate(Budget(4.0), 3, schedule=schedule)
    assert {charge.task for charge in plan.charges()} == {0, 1, 2}


@pytest.mark.parametrize("replay", [0, 1, 4])
@pytest.mark.parametrize("lists", [0, 1])
def test_no_two_coins_of_different_rates_are_ever_one(replay, lists):
    schedule = Schedule(replay=replay, lists=lists, head=2)
    plan = calibrate(Budget(4.0), 2, q=0.5, schedule=schedule, head_q=0.25)
    rates: dict[int, float] = {}
    for charge in plan.charges():
        assert rates.setdefault(charge.round, charge.q) == charge.q


# -- what is refused, and what is written ----------------------------------------------------------


def test_a_plan_that_releases_nothing_is_refused():
    with pytest.raises(ConfigError, match="must release at least one sum"):
        calibrate(Budget(4.0), 2, schedule=Schedule(replay=0))


@pytest.mark.parametrize("head_q", [0.0, -0.5, 1.5])
def test_a_wrong_rate_of_updates_is_refused(head_q):
    with pytest.raises(ConfigError, match="participation rate"):
        calibrate(Budget(4.0), 2, schedule=Schedule(head=2), head_q=head_q)


def test_another_schedule_is_another_plan_in_the_ledger():
    plan = calibrate(Budget(4.0), 2, schedule=Schedule(1, 0, 2))
    assert plan.as_dict()["schedule"] == {"replay": 1, "lists": 0, "head": 2}
    assert plan.as_dict()["head_sigma"] == plan.head_sigma
    assert replace(plan, schedule=Schedule(1, 0, 3)).as_dict() != plan.as_dict()

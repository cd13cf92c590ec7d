"""What an evaluation costs: planned before the first release, counted whatever the cap."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import BudgetExceeded, PlanChanged
from cslr.privacy.accounting import Charge, epsilon_of, gaussian_epsilon, total_mu
from cslr.privacy.ledger.accountants import recount
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate

EVALUATED = Schedule(evaluation=1)


def tag(key: bytes) -> str:
    return "the same sum"


def pay(ledger, plan: Plan) -> None:
    """Everything the plan releases, under the names of a run."""
    for task in range(plan.releases):
        if plan.schedule.replay:
            ledger.charge(plan.charge(f"task {task}", task), tag)
        for update in range(plan.schedule.head):
            label = f"task {task} update {update}"
            ledger.charge(plan.head_charge(label, task, update), tag)
    ledger.charge(plan.evaluation_charge("evaluation"), tag)


@pytest.mark.parametrize(
    ("epsilon", "tasks", "cap", "sigma"),
    # σ = √(cap + 1) / μ, where a μ-Gaussian mechanism costs ε at δ = 1e-5.
    [(8.0, 2, None, 1.0396), (8.0, 4, 1, 0.8489), (4.0, 6, 2, 1.8726), (1.0, 1, None, 5.2759)],
)
def test_the_noise_of_a_plan_with_an_evaluation(epsilon, tasks, cap, sigma):
    plan = calibrate(Budget(epsilon), tasks, cap=cap, schedule=EVALUATED)
    assert plan.sigma == plan.evaluation_sigma == pytest.approx(sigma, abs=1e-4)
    mu = math.sqrt(plan.cap + 1) / plan.sigma
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("cap", [1, 2, 4])
@pytest.mark.parametrize("schedule", [EVALUATED, Schedule(0, 0, 3, 1), Schedule(1, 0, 2, 1)])
def test_the_ledger_counts_what_the_plan_promised(make_ledger, cap, schedule):
    plan, ledger = calibrate(Budget(8.0), 4, cap=cap, schedule=schedule), make_ledger(8.0)
    ledger.fix_plan(plan, {})
    pay(ledger, plan)
    assert ledger.effective_cap == cap
    spent = ledger.epsilon("end_to_end", "roster")
    assert spent == pytest.approx(plan.epsilon("roster"), rel=1e-12)
    assert 8.0 * (1 - 1e-6) <= spent <= 8.0
    with pytest.raises(BudgetExceeded, match="'evaluation' would bring"):
        ledger.charge(plan.evaluation_charge("evaluation"), lambda key: "another sum")


@given(
    st.builds(Schedule, st.integers(0, 4), st.integers(0, 1), st.integers(0, 4), st.just(1)),
    st.integers(1, 6),
    st.data(),
)
@settings(deadline=None, max_examples=40)
def test_every_schedule_with_an_evaluation_spends_its_budget_and_no_more(schedule, tasks, data):
    if not schedule.coins:
        return
    cap = data.draw(st.integers(1, tasks))
    plan = calibrate(Budget(4.0), tasks, cap=cap, schedule=schedule)
    assert 4.0 * (1 - 1e-6) <= plan.epsilon("roster") <= 4.0


def test_a_hidden_cohort_amplifies_the_tasks_and_not_the_evaluation():
    budget = Budget(4.0, adversary="public")
    plan = calibrate(budget, 3, q=0.3, cap=2, schedule=EVALUATED)
    assert 0.995 * 4.0 <= plan.epsilon("public") <= 4.0
    assert {charge.q for charge in plan.charges() if charge.part == "evaluation"} == {1.0}
    tasks = [charge for charge in plan.charges() if charge.part == "replay"]
    assert epsilon_of(tasks, 1e-5, "public", cap=2, interval=1e-2) < 0.995 * 4.0


def test_an_evaluation_counts_however_small_the_cap_is():
    tasks = [Charge(f"task {n}", n, "replay", 1.0, task=n) for n in range(3)]
    evaluation = Charge("evaluation", 3, "evaluation", 5.0)
    assert total_mu([*tasks, evaluation], cap=1) == pytest.approx(math.sqrt(1 + 1 / 25))
    again = replace(evaluation, sigma=0.5)
    assert total_mu([*tasks, again], cap=1) == pytest.approx(math.sqrt(1 + 4))


def test_an_evaluation_is_no_part_of_the_replay():
    plan = calibrate(Budget(8.0), 2, schedule=EVALUATED)
    replay = epsilon_of(plan.charges(), 1e-5, "roster", "replay")
    assert replay == pytest.approx(gaussian_epsilon(math.sqrt(2) / plan.sigma, 1e-5))
    assert replay < plan.epsilon("roster")


def test_a_second_evaluation_is_charged_and_leaves_the_cap_to_the_others(make_ledger):
    plan, ledger = calibrate(Budget(4.0), 4, cap=1, schedule=EVALUATED), make_ledger(8.0)
    ledger.fix_plan(plan, {})
    pay(ledger, plan)
    ledger.charge(plan.evaluation_charge("evaluation"), lambda key: "another sum")
    assert len(ledger.charges) == 6
    assert ledger.effective_cap == 1
    mu = math.sqrt(1 + 2) / plan.sigma
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(gaussian_epsilon(mu, 1e-5))


@pytest.mark.parametrize("sampled", [False, True])
def test_others_count_an_evaluation_alike(sampled):
    plan = calibrate(Budget(4.0), 3, q=0.5, cap=1, schedule=EVALUATED)
    rounds = recount(plan.charges(), sampled, cap=1)
    assert rounds.total() == 2
    assert {q for _, q in rounds} == ({0.5, 1.0} if sampled else {1.0})


def test_a_plan_without_an_evaluation_is_written_as_before_there_were_any(make_ledger):
    plain, bought = calibrate(Budget(4.0), 2), calibrate(Budget(4.0), 2, schedule=EVALUATED)
    assert plain.as_dict()["schedule"] == {"replay": 1, "lists": 0, "head": 0}
    assert "evaluation_sigma" not in plain.as_dict()
    assert bought.as_dict()["evaluation_sigma"] == bought.evaluation_sigma
    ledger = make_ledger(4.0)
    ledger.fix_plan(plain, {})
    with pytest.raises(PlanChanged, match="evaluation"):
        ledger.fix_plan(bought, {})

"""σ is an output: it lands just within the promise; what cannot be promised is refused."""

from __future__ import annotations

import doctest
import math
from itertools import pairwise

import pytest

from cslr.errors import ConfigError
from cslr.privacy import plan as plan_module
from cslr.privacy.accounting import epsilon_of, gaussian_epsilon
from cslr.privacy.plan import Budget, Plan, calibrate, forecast, promise_warnings

EPSILONS = [0.1, 0.5, 1.0, 4.0, 8.0, 20.0]


@pytest.mark.parametrize("releases", [1, 4, 7, 200])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_everybody_taking_part_the_noise_spends_the_budget_and_no_more(epsilon, releases):
    spent = calibrate(Budget(epsilon), releases).epsilon("roster")
    assert epsilon * (1 - 1e-6) <= spent <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "releases"),
    [
        (0.1, 50),
        pytest.param(1.0, 1, marks=pytest.mark.slow),
        pytest.param(8.0, 50, marks=pytest.mark.slow),
        (20.0, 1),
    ],
)
def test_sampled_clients_need_less_noise_and_still_spend_the_budget(epsilon, releases):
    budget = Budget(epsilon, adversary="public")
    sampled, full = calibrate(budget, releases, q=0.3), calibrate(budget, releases)
    assert 0.995 * epsilon <= sampled.epsilon("public") <= epsilon
    assert sampled.sigma < full.sigma


@pytest.mark.parametrize("q", [0.01, 0.999])
def test_the_budget_is_met_at_any_rate(q):
    plan = calibrate(Budget(8.0, adversary="public"), releases=2, q=q)
    assert 7.96 <= plan.epsilon("public") <= 8.0


def test_calibration_asks_the_exact_accountant_once(monkeypatch):
    """It takes half a second an answer; the search is left to one a hundred times as fast."""
    intervals = []

    def counted(*args, interval=None, **others):
        intervals.append(interval)
        return epsilon_of(*args, interval=interval, **others)

    monkeypatch.setattr(plan_module, "epsilon_of", counted)
    calibrate(Budget(4.0, adversary="public"), releases=4, q=0.3)
    assert intervals.count(None) == 1
    assert len(intervals) < 20
    assert all(interval is None or interval >= 1e-2 for interval in intervals)


def test_a_rate_near_delta_still_gets_noise():
    """At q ≤ δ every σ satisfies (ε, δ), which is the definition's fault, not our excuse."""
    plan = calibrate(Budget(1.0, adversary="public"), releases=1, q=1e-6)
    assert plan.sigma == 0.05


def test_who_knows_the_roster_pays_for_sampling_with_full_noise():
    assert calibrate(Budget(4.0), 4, q=0.3).sigma == calibrate(Budget(4.0), 4).sigma


def test_a_cap_on_tasks_per_client_is_all_that_counts():
    capped, single = calibrate(Budget(4.0), 6, cap=1), calibrate(Budget(4.0), 1)
    assert capped.sigma == single.sigma
    assert capped.epsilon("roster") == single.epsilon("roster")


def test_the_figures_of_the_design():
    """NER by domain: six tasks, one per client."""
    assert round(calibrate(Budget(4.0), 6).sigma, 2) == 2.65
    assert round(calibrate(Budget(4.0), 6, cap=1).sigma, 2) == 1.08


def test_the_example_of_the_module_runs():
    assert doctest.testmod(plan_module) == (0, 2)


def test_an_infinite_budget_is_a_plan_without_noise():
    plan = calibrate(Budget(math.inf), 3)
    assert plan.sigma is None
    assert plan.epsilon("roster") == math.inf


def test_the_plan_charges_what_it_says():
    plan = calibrate(Budget(4.0, adversary="public"), 1, q=0.5)
    charge = plan.charge("task 3", 3)
    assert (charge.label, charge.round, charge.part) == ("task 3", 3, "replay")
    assert (charge.sigma, charge.q) == (plan.sigma, 0.5)


def test_a_plan_is_written_down_with_all_its_fields():
    assert calibrate(Budget(4.0), 4, cap=2).as_dict() == {
        "budget": {"epsilon": 4.0, "delta": 1e-5, "adversary": "roster"},
        "releases": 4,
        "q": 1.0,
        "cap": 2,
        "unit": pytest.approx(math.sqrt(2) / mu_of(4.0), rel=1e-6),
        "sigma": pytest.approx(math.sqrt(2) / mu_of(4.0), rel=1e-6),
        "schedule": {"replay": 1, "lists": 0, "head": 0},
        "head_q": 1.0,
        "head_sigma": None,
    }


def mu_of(epsilon: float) -> float:
    """Bisection, by another hand."""
    low, high = 1e-3, 100.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, 1e-5) <= epsilon else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, -math.inf])
def test_a_wrong_epsilon_is_refused_by_name(epsilon):
    with pytest.raises(ConfigError, match="epsilon must be greater than 0"):
        Budget(epsilon)


@pytest.mark.parametrize("epsilon", [1e-9, 1e6])
def test_an_epsilon_beyond_any_use_is_refused_by_name(epsilon):
    with pytest.raises(ConfigError, match="epsilon"):
        calibrate(Budget(epsilon, delta=1e-9), 1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_a_wrong_delta_is_refused_by_name(delta):
    with pytest.raises(ConfigError, match="delta must lie strictly between 0 and 1"):
        Budget(1.0, delta)


@pytest.mark.parametrize("adversary", ["server", "nobody", ""])
def test_a_budget_against_the_server_is_refused_with_the_reason(adversary):
    with pytest.raises(ConfigError, match=r"must be 'public' or 'roster'.*the aggregator"):
        Budget(1.0, adversary=adversary)


@pytest.mark.parametrize("q", [0.0, -0.1, 1.5, math.nan])
def test_a_wrong_rate_is_refused_by_name(q):
    with pytest.raises(ConfigError, match="the participation rate q"):
        calibrate(Budget(1.0), 4, q=q)


@pytest.mark.parametrize("cap", [0, -1, 5])
def test_a_wrong_cap_is_refused_by_name_and_range(cap):
    with pytest.raises(ConfigError, match=r"cap, .* must lie in 1\.\.4"):
        calibrate(Budget(1.0), 4, cap=cap)


@pytest.mark.parametrize("releases", [0, -2])
def test_a_plan_without_a_release_is_refused(releases):
    with pytest.raises(ConfigError, match="releases must be at least 1"):
        calibrate(Budget(1.0), releases)


# -- the forecast --------------------------------------------------------------------------------


def test_more_clients_or_budget_help_and_more_coordinates_or_releases_hurt():
    def ratio(clients: int = 100, dimension: int = 64, epsilon: float = 4, n: int = 4) -> float:
        return forecast(calibrate(Budget(epsilon), n), clients, dimension).signal_to_noise

    for ratios in (
        [ratio(clients=n) for n in (20, 100, 1000)],
        [ratio(epsilon=e) for e in (1, 4, 8)],
        [ratio(dimension=d) for d in (384, 64, 8)],
        [ratio(n=n) for n in (50, 4, 1)],
    ):
        assert all(worse < better for worse, better in pairwise(ratios))


def test_signal_to_noise_is_that_of_agreeing_clients():
    plan = Plan(Budget(4.0), 4, 0.5, 4, 2.0)
    assert forecast(plan, clients=80, dimension=100).signal_to_noise == 0.5 * 80 / (2.0 * 10)


@pytest.mark.parametrize(
    ("clients", "advice"),
    [
        (300, "Strong signal"),
        (299, "Workable"),
        (50, "Workable"),
        (49, "Weak"),
        (10, "Weak"),
        (9, "Not use"),
    ],
)
def test_the_advice_follows_the_signal_to_noise(clients, advice):
    plan = Plan(Budget(4.0), 4, 1.0, 4, 10.0)
    assert forecast(plan, clients, dimension=100).advice.startswith(advice)


def test_hopeless_advice_names_a_number_of_clients_that_is_workable():
    plan = Plan(Budget(0.1), 4, 0.3, 4, 50.0)
    advice = forecast(plan, 5, 300).advice
    named = int(advice.split("About ")[1].split()[0])
    assert forecast(plan, named, 300).advice.startswith("Workable")
    assert forecast(plan, named - 1, 300).advice.startswith("Weak")


def test_without_noise_the_forecast_says_that_nothing_is_protected():
    result = forecast(calibrate(Budget(math.inf), 4), 10, 10)
    assert result.signal_to_noise == math.inf
    assert "nothing is protected" in result.advice


def test_promises_that_protect_little_are_warned_about():
    assert promise_warnings(8.0, 1e-5, 100) == []
    assert promise_warnings(20.0, 1e-5, 100) == []
    assert promise_warnings(math.inf, 1e-5, 100) == []  # says itself that it is not private
    weak, delta = promise_warnings(21.0, 0.01, 100, "person")
    assert "epsilon = 21 is above 20" in weak
    assert "not below 1/100" in delta

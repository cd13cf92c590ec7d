"""The planner page computes with the numbers of `cslr plan`."""

from __future__ import annotations

import json
import math

import pytest

from cslr.privacy.forecast import forecast
from cslr.privacy.plan import Budget, calibrate
from cslr.report.planner import planner_data, planner_page


@pytest.fixture(scope="module")
def data():
    return json.loads(json.dumps(planner_data()))


@pytest.mark.parametrize(("epsilon", "delta", "cap"), [(6, 1, 1), (0, 4, 3), (13, 0, 7)])
def test_noise_is_that_of_calibrate(data, epsilon, delta, cap):
    budget = Budget(data["epsilons"][epsilon], data["deltas"][delta])
    plan = calibrate(budget, releases=8, cap=cap)
    assert data["sigmas"][epsilon][delta] * math.sqrt(cap) == pytest.approx(plan.sigma, rel=1e-12)


@pytest.mark.parametrize("unit", ["client", "person"])
@pytest.mark.parametrize("count", [10, 50, 100, 500, 2000, 100_000])
def test_advice_is_that_of_forecast(data, unit, count):
    plan = calibrate(Budget(1.0, unit=unit), releases=4)
    size = 2 * data["directions"]
    found = forecast(plan, count, size)
    ratio = count / (plan.sigma * math.sqrt(size))
    assert ratio == pytest.approx(found.signal_to_noise)
    advice = next(text for least, text in data["advice"][unit] if ratio >= least)
    need = math.ceil(0.5 * plan.sigma * math.sqrt(size))
    assert advice.replace("#", str(need)) == found.advice


def test_the_page_needs_nothing_else():
    page = planner_page()
    assert "http" not in page
    assert page.count("<script>") == page.count("</script>") == 1

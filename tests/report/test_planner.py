"""The planner page computes with the numbers of `cslr plan`."""

from __future__ import annotations

import json
import math

import pytest

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


def test_words_are_those_of_the_outlook(data):
    assert data["released"]["plain"].endswith("one number for the spread; one message a task")
    assert "a tied matrix in #;" in data["released"]["tied"]
    for unit, texts in data["advice"].items():
        assert [least for least, _ in texts] == [0.6, 0.3, 0.15, 0.0], unit
        assert all(text.count("#") == 1 for _, text in texts)
        # The page puts the share of the gap here, and the number of units elsewhere.
        assert ["# % of the gap" in text for _, text in texts] == [True, True, True, False]


def test_the_page_needs_nothing_else():
    page = planner_page()
    assert "http" not in page
    assert page.count("<script>") == page.count("</script>") == 1

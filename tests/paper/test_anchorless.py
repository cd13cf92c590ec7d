"""Proposition 3 by Monte Carlo: the interval covers c (1 − 1/K!); with anchors it is beaten."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "anchorless.py"
# By its path: another package that is installed may be called ``examples``, too.
NAMES = runpy.run_path(str(EXAMPLE), run_name="anchorless")
SERVERS, barrier, bound = NAMES["SERVERS"], NAMES["barrier"], NAMES["bound"]


@pytest.mark.parametrize(("modes", "value"), [(2, 0.5), (3, 5 / 6), (4, 23 / 24)])
def test_the_bound_is_the_propositions(modes, value):
    assert bound(modes) == pytest.approx(value)
    assert bound(modes, cost=3.0) == pytest.approx(3 * value)


@pytest.mark.parametrize("modes", [2, 3, 4])
def test_without_anchors_the_interval_covers_the_bound(modes):
    found = barrier(modes, 3000, 30, np.random.default_rng(modes))
    for name in ("symbols", "blind"):
        share = found.servers[name]
        assert share.covers(found.bound), name
        assert share.high - share.low < 0.05


def test_intervals_cover_the_bound_as_often_as_they_say():
    rng = np.random.default_rng(0)
    covered = [barrier(3, 100, 2, rng).servers["symbols"].covers(5 / 6) for _ in range(100)]
    # Clopper–Pearson covers at least 95 %; 0.88 is three standard deviations below.
    assert np.mean(covered) >= 0.88


@pytest.mark.parametrize("modes", [2, 3, 4])
def test_anchors_escape_the_bound(modes):
    found = barrier(modes, 1000, 30, np.random.default_rng(modes))
    assert found.servers["anchors"].high < 0.01
    assert not found.servers["anchors"].covers(found.bound)


def test_means_in_coordinates_of_their_own_are_of_little_use():
    found = barrier(3, 3000, 30, np.random.default_rng(1))
    assert found.servers["means"].low > 0.7


def test_the_error_is_counted_in_what_a_mistake_costs():
    cheap = barrier(3, 500, 10, np.random.default_rng(5))
    dear = barrier(3, 500, 10, np.random.default_rng(5), cost=2.0)
    for name in SERVERS:
        assert dear.servers[name].error == pytest.approx(2 * cheap.servers[name].error)
        assert dear.servers[name].high == pytest.approx(2 * cheap.servers[name].high)
    assert dear.bound == 2 * cheap.bound


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((1, 10, 10), "modes"), ((2, 0, 10), "trials"), ((2, 10, 1), "anchors")],
)
def test_what_cannot_be_asked_is_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=name):
        barrier(*arguments, np.random.default_rng(0))


def test_the_example_runs_and_shows_both_sides(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    for modes in (2, 3, 4):
        assert f"1 - 1/K! = {1 - 1 / math.factorial(modes):.4f}" in shown
    errors = [float(line.split()[0]) for line in shown.splitlines() if "public" in line]
    assert errors == [0.0, 0.0, 0.0]

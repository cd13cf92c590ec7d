"""What ``cslr plan`` refuses, and what it prints of gradient rounds and caps."""

from __future__ import annotations

import json

import pytest


def test_a_plan_without_tasks_or_cap_is_refused(cslr):
    for option in ("--tasks", "--cap"):
        code, _, err = cslr("plan", option, "0")
        assert code == 2
        assert option in err
        assert "None" not in err


def test_a_plan_refuses_more_clients_per_person_than_clients(cslr):
    people = ["--unit", "person", "--people", "100", "--clients-per-person", "3"]
    assert cslr("plan", *people)[0] == cslr("plan", *people, "--clients", "3")[0] == 0
    code, _, err = cslr("plan", *people, "--clients", "2")
    assert code == 2
    assert "--clients-per-person 3 is more than --clients 2" in err
    code, _, err = cslr("plan", "--clients", "20", "--clients-per-person", "3")
    assert code == 2
    assert "--clients-per-person requires --unit person" in err


def test_a_plan_of_gradient_rounds_shows_their_cost_and_signal(cslr):
    names = ["--family", "tagging", "--unit", "person", "--people", "150"]
    names += ["--tasks", "2", "--labels", "2", "--epsilon", "8"]
    plan = json.loads(cslr("plan", *names, "--json")[1])
    assert plan["head"] == "rounds"
    assert plan["epsilon"]["replay"] == {"public": 0, "roster": 0, "server": 0}
    assert plan["epsilon"]["end_to_end"]["roster"] == pytest.approx(8.0, rel=1e-6)
    s = plan["signal_to_noise"]
    assert plan["share_of_gap"] == pytest.approx(0.95 * s / (s + 3))
    out = " ".join(cslr("plan", *names)[1].split())
    assert f"Signal-to-noise ratio of the forecast: {s:.2g}" in out
    assert "released replay" not in out
    assert "inf" not in out


def test_a_plan_without_noise_says_that_the_cap_does_not_matter(cslr):
    out = cslr("plan", "--epsilon", "inf")[1]
    assert "Suggested" not in out
    assert "The cap does not change this forecast." in out

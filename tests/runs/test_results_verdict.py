"""The first line of every result."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from cslr.config import load_config
from cslr.runs.results import StoredRun, verdict_of


def result(aa: float | None = 80.6, zero: float | None = 75.4, joint: float | None = 86.0, **more):
    yardsticks = {"zero-shot": {"aa": zero}, "joint": {"aa": joint}}
    epsilon = more.pop("epsilon", 8.0)
    return {
        "method": "cslr",
        "aa": aa,
        "unit": "person",
        "privacy": "enforced",
        "evaluate": "stored",
        "evaluated": True,
        "epsilon": {"end_to_end": {"roster": epsilon}},
        "yardsticks": {name: value for name, value in yardsticks.items() if value["aa"]},
        **more,
    }


@pytest.mark.parametrize(
    ("facts", "level", "text"),
    [
        (
            result(),
            "above",
            "+5.2 over zero-shot, 49 % of the gap to pooled, ε = 8 for a person",
        ),
        (
            result(aa=75.0, unit="client"),
            "below",
            "0.4 below zero-shot, ε = 8 for a client; below zero-shot: keep the free head "
            "(--method zero-shot, ε = 0)",
        ),
        (
            result(aa=75.4),
            "below",
            "no better than zero-shot, ε = 8 for a person; the free head does as well",
        ),
        (
            result(aa=87.0, privacy="simulated"),
            "above",
            "+11.6 over zero-shot, no worse than pooled training, ε = 8 for a person (simulated)",
        ),
        (result(joint=None), "above", "+5.2 over zero-shot, ε = 8 for a person"),
        (
            result(joint=70.0),
            "above",
            "+5.2 over zero-shot, zero-shot is already no worse than pooled training, "
            "ε = 8 for a person",
        ),
        (
            result(aa=None, evaluate="shown", evaluated=None),
            "unknown",
            "scores were shown and not stored; ε = 8 for a person",
        ),
        (
            result(aa=None, evaluate="shown", evaluated=["cslr"]),
            "unknown",
            "trained, no scores to compare; ε = 8 for a person",
        ),
        (result(aa=None, evaluate="none"), "unknown", "trained, not evaluated; ε = 8 for a person"),
        (
            result(aa=None, private_evaluation={"aa": 71.25}),
            "unknown",
            "noisy accuracy 71.2 %, nothing to compare it with; ε = 8 for a person",
        ),
        (
            result(epsilon=None, joint=None),
            "above",
            "+5.2 over zero-shot, ε = ∞ for a person: not private",
        ),
        (
            result(method="zero-shot", aa=75.4, epsilon=0.0),
            "unknown",
            "zero-shot itself, 75.4 %; ε = 0: no private row was read",
        ),
    ],
)
def test_a_verdict_says_what_private_data_added_and_for_which_epsilon(facts, level, text):
    verdict = verdict_of(facts)
    assert (verdict.text, verdict.level) == (text, level)


def test_a_gain_that_rounds_to_nothing_is_no_gain():
    assert verdict_of(result(aa=75.44)).level == "below"


def test_a_stored_run_as_plain_values_has_its_score_and_the_rosters_epsilon():
    config = load_config(None, {"stream.name": "desk", "privacy.unit": "person"})
    stored = StoredRun(Path("runs/a"), config, result(), datetime(2030, 1, 2, 3, 4, 5))
    assert stored.as_json() == {
        "run": "runs/a",
        "state": "finished",
        "started": "2030-01-02T03:04:05",
        "stream": "desk",
        "method": "cslr",
        "privacy": "simulated",
        "unit": "person",
        "aa": 80.6,
        "epsilon": 8.0,
        "verdict": "+5.2 over zero-shot, 49 % of the gap to pooled, ε = 8 for a person",
    }


def test_a_run_that_is_not_finished_has_neither_score_nor_epsilon():
    stored = StoredRun(Path("runs/a"), load_config(None, {}), None, datetime(2030, 1, 2))
    found = stored.as_json()
    assert (found["state"], found["aa"], found["epsilon"]) == ("unfinished", None, None)
    assert found["verdict"] == "not finished; repeat its command with --run-dir runs/a"

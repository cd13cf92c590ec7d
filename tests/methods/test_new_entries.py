"""A new method or matcher is one entry of a dictionary, and is run like any other."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from cslr.config import load_config
from cslr.methods.method import Fitted, Method, MethodContext
from cslr.methods.registry import METHODS
from cslr.privacy.accounting import Charge
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.round import Session, replay_of
from cslr.protocol.step3_match import MATCHERS
from cslr.runs.directory import RunDirectory
from cslr.runs.learn import run


def nearest_mean(context: MethodContext):
    """A method as a contributor would write it: class means of the pooled rows, read openly."""
    context.ledger.charge(Charge("class means", 0, "head", None), lambda key: "")

    def after(tasks: int) -> Fitted:
        people, seen = context.open_rows(), context.seen(tasks)
        means = np.stack(
            [people.z[people.labels == label].mean(axis=0) for label in range(context.labels)]
        )
        return Fitted(lambda z: np.where(seen, z @ means.T, -np.inf))

    for tasks in range(len(context.tasks) + 1):
        yield partial(after, tasks)


def test_a_new_method_is_one_entry_and_can_be_run(monkeypatch, embedded, tmp_path):
    monkeypatch.setitem(METHODS, "mine", Method(nearest_mean, reads="openly", meaning="mine"))
    config = load_config(None, {"method": "mine", "yardsticks": False})
    run(config, embedded, RunDirectory(tmp_path / "run", config), lambda *_: None)
    rows = RunDirectory(tmp_path / "run", config).trace
    last = [row for row in rows if row["kind"] == "row" and row["method"] == "mine"][-1]
    assert min(last["scores"]) > 0.9  # the small world is easy
    cost = next(row for row in rows if row["kind"] == "cost")
    assert cost["epsilon"]["end_to_end"]["roster"] is None  # ∞


def test_a_new_matcher_is_one_entry_and_can_be_run(monkeypatch, world, make_ledger, drawer):
    def all_to_the_last(lists, prototypes, anchors, rngs):
        return np.full(lists.weights.shape, len(prototypes.mean) - 1)

    monkeypatch.setitem(MATCHERS, "all to the last", all_to_the_last)
    agreement = world.agreement(sub_modes=2, list_size=4, matcher="all to the last", bound=8.0)
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), 1)
    plan = calibrate(Budget(math.inf), 1)
    released = Session(agreement, plan, make_ledger(), drawer).release(0, (0, 1), cohort)
    weights = replay_of([released], agreement).value.released().weights.reshape(2, 2)
    assert np.all(weights[:, 1] > 10 * weights[:, 0])


def test_a_new_matcher_can_be_asked_for_by_its_name(monkeypatch):
    monkeypatch.setitem(MATCHERS, "all to the last", MATCHERS["random"])
    config = load_config(None, {"replay.matcher": "all to the last"})
    assert config.replay.matcher == "all to the last"

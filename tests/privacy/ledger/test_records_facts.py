"""Public facts of a plan are compared exactly, and sketches within a tolerance."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import PlanChanged
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys, Sketch, agree, differences, plain
from cslr.privacy.plan import Budget, calibrate
from cslr.seeding import Seeds

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6)


def ledger_at(path) -> Ledger:
    federation = Federation("clinics", Budget(8.0), "simulated")
    return Ledger.at(path / "ledger.jsonl", federation, SeededKeys(Seeds(1)))


@given(NUMBERS, st.floats(0, 1))
def test_a_sketch_is_read_back_to_the_last_bit(values, within):
    sketch = Sketch.of(values, within)
    assert plain(sketch) == sketch
    assert json.loads(json.dumps(sketch)) == sketch


@settings(max_examples=200)
@given(NUMBERS, st.floats(1e-6, 1e-1), st.floats(0, 3), st.integers(0, 2**20))
def test_sketches_agree_exactly_up_to_the_distance_they_state(values, within, factor, seed):
    step = np.random.default_rng(seed).standard_normal(len(values))
    moved = np.array(values) + step * (factor * within / np.linalg.norm(step))
    distance = math.dist(values, moved.tolist())
    one, two = Sketch.of(values, within), Sketch.of(moved, within)
    assert agree(one, two) == agree(two, one) == (distance <= within)


def test_a_sketch_of_an_array_has_all_of_its_numbers():
    assert Sketch.of(np.arange(6.0).reshape(2, 3), 0.1)["values"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "other",
    [
        {"values": [1.0, 2.0], "within": 0.2},
        {"values": [1.0, 2.0, 0.0], "within": 0.1},
        {"values": [1.0, 2.0]},
        [1.0, 2.0],
        "8f14e45fceea167a",
        None,
    ],
)
def test_another_tolerance_length_or_kind_does_not_agree(other):
    assert not agree({"values": [1.0, 2.0], "within": 0.1}, other)
    assert not agree(other, {"values": [1.0, 2.0], "within": 0.1})


@pytest.mark.parametrize("value", [1, 0.1 + 0.2, "text", None, True, [1, [2.0]], {"a": {"b": 1}}])
def test_everything_else_is_compared_exactly(value):
    assert agree({"x": value}, {"x": value})
    assert not agree({"x": value}, {"x": 0.3})
    assert not agree({"x": value}, {})


@pytest.mark.parametrize(
    ("values", "within", "message"),
    [([math.nan], 0.1, "values must be finite"), ([1.0], -1.0, "within must be")],
)
def test_a_sketch_of_what_is_no_number_is_refused(values, within, message):
    with pytest.raises(ValueError, match=message):
        Sketch.of(values, within)


def test_differences_name_the_sketch_and_say_how_far_it_is():
    before = {"space": {"centre": Sketch.of([0.0], 0.5), "encoder": "a"}, "texts": [{"a": 1}]}
    after = {"space": {"centre": Sketch.of([1.0], 0.5), "encoder": "a"}, "texts": [{"a": 2}]}
    assert differences(before, after) == ("space.centre (1 apart, 0.5 allowed), texts.0.a (1 -> 2)")
    assert differences(before, before) == ""


def test_a_plan_within_tolerance_is_the_same_and_changes_nothing(tmp_path):
    plan = calibrate(Budget(8.0), 4)
    facts = {"space": {"centre": Sketch.of([0.1, 0.2], 1e-3)}, "seed": 13}
    near = {"space": {"centre": Sketch.of([0.1, 0.2005], 1e-3)}, "seed": 13}
    now = {**near, "upgraded after": 2, "before": facts}
    with ledger_at(tmp_path) as ledger:
        ledger.fix_plan(plan, facts)
        before = (tmp_path / "ledger.jsonl").read_bytes()
        ledger.fix_plan(plan, near)
        assert ledger.has_fixed(plan, near)
        assert (tmp_path / "ledger.jsonl").read_bytes() == before
        ledger.upgrade_plan(plan, near, now)
        after = (tmp_path / "ledger.jsonl").read_bytes()
        ledger.upgrade_plan(plan, near, {**now, "before": near})
        assert (tmp_path / "ledger.jsonl").read_bytes() == after


def test_a_plan_beyond_tolerance_is_refused_with_the_distance(tmp_path):
    plan = calibrate(Budget(8.0), 4)
    far = {"space": {"centre": Sketch.of([0.1, 0.3], 1e-3)}}
    with ledger_at(tmp_path) as ledger:
        ledger.fix_plan(plan, {"space": {"centre": Sketch.of([0.1, 0.2], 1e-3)}})
        assert not ledger.has_fixed(plan, far)
        with pytest.raises(PlanChanged, match=r"space\.centre \(0\.1 apart, 0\.001 allowed\)"):
            ledger.fix_plan(plan, far)
        with pytest.raises(PlanChanged, match=r"space\.centre \(0\.1 apart, 0\.001 allowed\)"):
            ledger.upgrade_plan(plan, far, {})

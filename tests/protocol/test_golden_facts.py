"""The facts of a plan in the small world: a run that was begun goes on only if they agree.

They have every public constant of the protocol in them. Where a change is meant to move them, so
that runs of earlier versions cannot be resumed, ``CSLR_GOLDEN=write pytest
tests/protocol/test_golden_facts.py`` writes them again.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cslr.methods.cslr import agree as agreed
from cslr.privacy.ledger.records import agree, differences, plain
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.step4_aggregate import contribution
from cslr.protocol.step4_aggregate.contribution import Units

FILE = Path(__file__).with_name("golden_facts.json")
CASES = {
    "clients": {},
    "clients, lists": {"release": "list", "sub_modes": 2, "list_size": 2},
    "clients, synthetic anchors": {"matcher": "signature-synthetic", "prior": "none"},
    "paper": {"method": "cslr-paper", "list_size": 2, "head": {"rounds": 1}},
    "people": {},
    "people, several clients each": {},
}


def facts_of(make_context_with, make_drawer, name: str) -> dict:
    """The public facts that a run records in the ledger."""
    context = make_context_with(make_drawer(), **{"epsilon": 8.0, "method": "cslr", **CASES[name]})
    if name.startswith("people"):
        plan = calibrate(Budget(8.0, unit="person"), 2, cap=1)
        units = Units(50_000, 3, 2 if "several" in name else 1)
        context = replace(context, units=units, plan=plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "LEAST_TIED", 4)  # the small world has eight directions
        agreement = agreed(context)
    kept = {"kept": agreement.kept, "expected weight": agreement.expected_weight}
    return plain({**agreement.public_facts(), **kept})


def of_digits(value: object) -> object:
    """The same with eight digits, which is closer than any tolerance."""
    if isinstance(value, dict):
        return {key: of_digits(each) for key, each in value.items()}
    if isinstance(value, list):
        return [of_digits(each) for each in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", CASES)
def test_a_run_of_an_earlier_version_can_be_resumed(make_context_with, make_drawer, name):
    found = of_digits(facts_of(make_context_with, make_drawer, name))
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("CSLR_GOLDEN") == "write":
        golden[name] = dict(found)
        lines = [f"{json.dumps(each)}: {json.dumps(golden[each])}" for each in sorted(golden)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    before = dict(golden[name])
    for number in ("kept", "expected weight"):
        assert found.pop(number) == pytest.approx(before.pop(number), rel=1e-3)
    assert agree(before, found), differences(before, found)


def test_facts_tell_apart_what_a_resumed_run_must_not_mix():
    """Every case is another plan: none of them could be resumed as another."""
    golden = [json.loads(FILE.read_text())[name] for name in CASES]
    for number, one in enumerate(golden):
        assert all(not agree(one, other) for other in golden[:number])


def test_every_golden_fact_is_of_a_case():
    assert json.loads(FILE.read_text()).keys() == CASES.keys()


def test_the_smallest_change_of_a_constant_is_another_plan():
    before = json.loads(FILE.read_text())["clients"]
    model = {**before["model"], "contrast": np.nextafter(before["model"]["contrast"], 1.0)}
    assert differences(before, {**before, "model": model}).startswith("model.contrast")

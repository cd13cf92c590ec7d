"""Whole runs in the small world: what is released and what the head answers stay what they are.

Every step, constant and option of the protocol has a part in these numbers. Where a change is meant
to move them, ``CSLR_GOLDEN=write pytest tests/protocol/test_golden.py`` writes them again; the diff
of ``golden.json`` shows which runs it moves.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cslr.methods.registry import METHODS
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.step3_match import MATCHERS
from cslr.protocol.step4_aggregate import contribution
from cslr.protocol.step4_aggregate.contribution import Units

FILE = Path(__file__).with_name("golden.json")
CLOSE = 2e-4
"""Of a vector's length: machines round differently, and training carries that on."""

SLOW = ("optimal-transport",)
LISTS = {"sub_modes": 2, "list_size": 2}
PAPER = {"method": "cslr-paper", "list_size": 2, "head": {"rounds": 1}}
CASES = {
    "sum": {},
    "sum, no noise": {"epsilon": np.inf},
    "sum, sampled and capped": {"q": 0.7, "cap": 1},
    "sum, two modes": LISTS,
    "no prior": {"prior": "none"},
    "no prior, two modes": {"prior": "none", **LISTS},
    "lists": {"release": "list", **LISTS},
    "pooled": {"release": "pooled", "sub_modes": 4, "list_size": 3},
    "select": {"release": "select", "sub_modes": 2},
    "intents": {"family": "intents"},
    "intents, two modes": {"family": "intents", **LISTS},
    "tagging": {"family": "tagging"},
    "tagging, two modes": {"family": "tagging", **LISTS},
    "tagging, gradient rounds": {"family": "tagging", "head": {"kind": "rounds", "rounds": 3}},
    "synthetic anchors": {"matcher": "signature-synthetic", **LISTS},
    "random anchors": {"matcher": "signature-random", **LISTS},
    **{f"matcher {name}": {"matcher": name, **LISTS} for name in MATCHERS if name not in SLOW},
    "federated": {"epsilon": np.inf, "head": {"kind": "federated", "rounds": 2}},
    "federated, targets": {
        "epsilon": np.inf,
        "head": {"kind": "federated", "rounds": 1},
        "replay_loss": "targets",
    },
    "federated, contrastive": {
        "epsilon": np.inf,
        "head": {"kind": "federated", "rounds": 1},
        "replay_loss": "contrastive",
    },
    "federated, intents": {
        "epsilon": np.inf,
        "family": "intents",
        "head": {"kind": "federated", "rounds": 1},
    },
    "noised updates": {"head": {"kind": "dp-fedavg", "rounds": 1}},
    "gradient rounds": {"head": {"kind": "rounds", "rounds": 2}},
    "gradient rounds, intents": {"family": "intents", "head": {"kind": "rounds", "rounds": 2}},
    "paper": PAPER,
    "paper, intents": {**PAPER, "family": "intents"},
    "paper, tagging": {**PAPER, "family": "tagging"},
    "paper, assigned": {**PAPER, "canonicalise": "assign", "standardise": True},
    "paper, selected": {**PAPER, "aggregate": "select", "division": "weights"},
    "paper, from label texts": {**PAPER, "start": "labels", "logit_scale": 4.0},
    "paper, unit length": {**PAPER, "unit_length": True},
}
PEOPLE = {
    "people, tied": {},
    "people, intents": {"family": "intents"},
    "people, two modes": LISTS,
}
"""With so many units declared that a matrix is released."""


def summary(vector: np.ndarray) -> list[float]:
    """Its length, and what it has of three fixed directions."""
    flat = np.where(np.isfinite(vector), vector, 0.0).ravel()
    waves = np.cos(np.outer([0.7, 1.9, 3.1], np.arange(1, flat.size + 1)))
    numbers = [np.linalg.norm(flat), *(waves @ flat * np.sqrt(2 / max(flat.size, 1)))]
    return [float(f"{number:.6g}") for number in numbers]


def course(make, drawer, world, name: str) -> dict[str, list[float]]:
    """All releases of a run, and the scores of each of its stages."""
    given = {"epsilon": 8.0, "method": "cslr", **CASES.get(name, PEOPLE.get(name, {}))}
    context = make(drawer, **given)
    if name in PEOPLE:
        plan = calibrate(Budget(8.0, unit="person"), len(world.tasks), cap=1)
        context = replace(context, units=Units(50_000, 1), plan=plan)
    if "gradient" in name:  # they learn tasks that share their labels
        context = replace(context, tasks=((0, 1, 2, 3),) * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "LEAST_TIED", 4)  # the small world has eight directions
        heads = [stage() for stage in METHODS[given["method"]].stages(context)]
    found = {label: summary(vector) for label, vector in drawer.kept.items()}
    answers = {f"stage {n}": summary(head.scores(world.test_z)) for n, head in enumerate(heads)}
    return {**found, **answers}


@pytest.mark.parametrize("name", [*CASES, *PEOPLE])
def test_a_run_gives_the_numbers_it_gave(make_context_with, make_drawer, world, name):
    found = course(make_context_with, make_drawer(), world, name)
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("CSLR_GOLDEN") == "write":
        golden[name] = found
        lines = [f"{json.dumps(each)}: {json.dumps(golden[each])}" for each in sorted(golden)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert found.keys() == golden[name].keys()
    for part, numbers in golden[name].items():
        limit = CLOSE * max(numbers[0], 1e-9)
        np.testing.assert_allclose(found[part], numbers, rtol=0, atol=limit, err_msg=part)


def test_people_release_a_matrix_beside_their_means(make_context_with, drawer, world):
    """For each of two labels a weight and a mean; for both one triangle of second moments."""
    course(make_context_with, drawer, world, "people, tied")
    assert drawer.kept["task 0"].size == 2 * (1 + 8) + 8 * 9 // 2


def test_every_golden_run_is_run():
    assert json.loads(FILE.read_text()).keys() == {*CASES, *PEOPLE}

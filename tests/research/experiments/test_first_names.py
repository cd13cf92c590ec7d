"""Cells keep the names that they had before settings were renamed."""

from __future__ import annotations

import hashlib
import json

import pytest

from cslr.config import dotted, load_config
from cslr.research.experiments.first_names import first_names
from cslr.research.experiments.grid import Cell

FIRST = [
    ({"replay.anchors": 24}, {"paper.m": 24}),
    ({"replay.list_size": 3}, {"paper.list_size": 3}),
    ({"head.samples": 7}, {"paper.n_r": 7}),
    ({"head.replay_weight": 0.0}, {"paper.replay_weight": 0.0}),
    ({"head.replay_loss": "targets"}, {"paper.replay_loss": "targets"}),
    ({"replay.aggregate": "select"}, {"replay.release": "select"}),
    ({"replay.anchor_kind": "synthetic"}, {"replay.matcher": "signature-synthetic"}),
    ({"replay.anchor_kind": "random"}, {"replay.matcher": "signature-random"}),
    ({"stream.hostile": 0.1}, {"stream.poisoning": "oppose-0.1"}),
    ({"stream.hostile": 0.2, "stream.attack": "mislead"}, {"stream.poisoning": "mislead-0.2"}),
    ({"stream.attack": "mislead"}, {"stream.poisoning": "mislead-0"}),
    (
        {"replay.coordinates": "mapped", "replay.shared_sentences": 400},
        {"replay.coordinates": "mapped-400"},
    ),
    (
        {"upgrade.encoder": "minilm", "upgrade.after": 2, "upgrade.carry": "raw"},
        {"encoders": ["minilm"], "upgrade": 2, "replay.coordinates": "raw"},
    ),
    ({"upgrade.encoder": "minilm", "upgrade.after": 2}, {"encoders": ["minilm"], "upgrade": 2}),
]


@pytest.mark.parametrize(("first", "today"), FIRST)
def test_a_cell_is_named_by_the_first_names_of_its_settings(first, today):
    config = load_config(None, today)
    text = json.dumps(first, sort_keys=True)
    assert Cell.of(config).name == hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("first", "today"), FIRST)
def test_all_settings_of_a_run_have_first_names_that_stay(first, today):
    config = load_config(None, today)
    named = first_names(dotted(config.model_dump(mode="json")))
    assert named.items() >= first.items()
    assert first_names(named) == named

"""Whole runs in worlds that differ in one unit."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from .world import Case, Transcript, World


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """Where the worlds of ``play`` are, one after the other."""
    return tmp_path_factory.mktemp("worlds") / "world"


@pytest.fixture(scope="session")
def play(place):
    """``play(case, rows)``: the transcript of one run; the same world is run once."""

    @cache
    def played(case: Case, rows: str) -> Transcript:
        world = World(place, case, json.loads(rows))
        if case.upgrade:
            world.run("--until", "1")
            world.call("upgrade", "run", "--encoder", "other", "--run-dir", "upgraded")
        else:
            world.run()
        return world.end()

    def go(case: Case, rows) -> Transcript:
        transcript = played(case, json.dumps(rows))
        assert [code for code, _, _ in transcript.exits] == [0] * len(transcript.exits), (
            transcript.exits
        )
        return transcript

    return go

"""Whole runs in worlds that differ in one unit."""

from __future__ import annotations

import pytest

from .world import Case, Transcript, World


@pytest.fixture
def play(tmp_path):
    """``play(case, rows)``: the transcript of one run."""

    def go(case: Case, rows) -> Transcript:
        world = World(tmp_path / "world", case, rows)
        if case.upgrade:
            world.run("--until", "1")
            world.call("upgrade", "run", "--encoder", "other", "--run-dir", "upgraded")
        else:
            world.run()
        transcript = world.end()
        assert [code for code, _, _ in transcript.exits] == [0] * len(transcript.exits), (
            transcript.exits
        )
        return transcript

    return go

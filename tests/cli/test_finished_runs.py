"""`cslr runs` on directories that real runs would leave."""

from __future__ import annotations

import json

import pytest

from cslr.config import load_config
from cslr.runs.directory import RunDirectory


@pytest.fixture
def runs(tmp_path):
    """Two unfinished runs in ``runs``."""
    for name, epsilon in (("a", 4.0), ("b", 1.0)):
        config = load_config(None, {"privacy.epsilon": epsilon})
        (tmp_path / "runs").mkdir(exist_ok=True)
        RunDirectory(tmp_path / "runs" / name, config).begin()
    return tmp_path / "runs"


def test_runs_are_listed_without_any_argument(cslr, runs):
    code, out, _ = cslr("runs")
    assert code == 0
    assert "runs/a" in out
    assert "not finished; repeat its command with --run-dir runs/b" in out
    code, out, _ = cslr("runs", "list", "runs", "--json")
    assert [run["run"] for run in json.loads(out)] == ["runs/a", "runs/b"]


def test_an_empty_folder_and_a_missing_one_say_how_to_begin(cslr, tmp_path):
    assert cslr("runs")[0] == 2
    (tmp_path / "runs").mkdir()
    assert cslr("runs")[1] == "No runs in runs. Start one: cslr run\n"


def test_two_runs_are_compared_by_what_differs(cslr, runs):
    code, out, _ = cslr("runs", "compare", "runs/a", "runs/b", "--json")
    assert code == 0
    assert json.loads(out)["privacy.epsilon"] == [4.0, 1.0]
    assert "privacy.epsilon" in cslr("runs", "compare", "runs/a", "runs/b")[1]
    code, _, err = cslr("runs", "compare", "runs/a")
    assert code == 2
    assert "at least two" in err


def test_deleting_asks_first(cslr, runs, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert cslr("runs", "delete", "runs/a")[0] == 130
    assert (runs / "a").exists()
    assert cslr("runs", "delete", "runs/a", "--yes")[:2] == (0, "deleted runs/a\n")
    assert not (runs / "a").exists()
    assert cslr("runs", "delete", "runs", "--yes")[0] == 2
    assert (runs / "b").exists()

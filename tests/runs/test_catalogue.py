"""Runs are found, compared and deleted by their own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cslr.config import load_config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.runs.catalogue import compared, delete_run, find_runs
from cslr.runs.directory import RunDirectory
from cslr.runs.results import read_run

RESULT = {
    "method": "cslr",
    "aa": 80.0,
    "bwt": -3.0,
    "unit": "client",
    "privacy": "simulated",
    "evaluate": "stored",
    "epsilon": {"end_to_end": {"roster": 4.0}},
    "yardsticks": {"zero-shot": {"aa": 75.0}, "joint": {"aa": 85.0}},
}


def make(path: Path, result: dict | None = RESULT, **settings: object) -> Path:
    RunDirectory(path, load_config(None, settings)).begin()
    if result is not None:
        (path / "result.json").write_text(json.dumps(result))
    return path


def test_finished_and_unfinished_runs_are_found_and_others_are_not(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", None)
    (tmp_path / "notes").mkdir()
    found, wrong = find_runs(tmp_path)
    assert {run.path.name: run.state for run in found} == {"a": "finished", "b": "unfinished"}
    assert wrong == []
    said = {run.path.name: run.verdict for run in found}
    assert (
        said["a"]
        == "+5.0 over zero-shot, 50 % of the gap to pooled, ε = 4 for a client (simulated)"
    )
    assert said["b"] == f"not finished; repeat its command with --run-dir {tmp_path / 'b'}"


def test_a_damaged_run_is_named_and_hides_no_other(tmp_path):
    make(tmp_path / "a")
    (make(tmp_path / "b") / "result.json").write_text("{")
    (make(tmp_path / "c") / "config.json").write_text("{")
    found, wrong = find_runs(tmp_path)
    assert [run.path.name for run in found] == ["a"]
    assert len(wrong) == 2
    assert "result.json is damaged" in wrong[0]


def test_a_folder_that_is_not_there_says_how_to_start(tmp_path):
    with pytest.raises(ConfigError, match="start one: cslr run"):
        find_runs(tmp_path / "runs")


def test_a_comparison_has_the_differing_settings_and_the_figures(tmp_path):
    runs = [
        read_run(make(tmp_path / "a", **{"privacy.epsilon": 4.0})),
        read_run(make(tmp_path / "b", {**RESULT, "aa": 70.0}, **{"privacy.epsilon": 1.0})),
    ]
    table = compared(runs)
    assert table["privacy.epsilon"] == [4.0, 1.0]
    assert table["AA"] == [80.0, 70.0]
    assert "method" not in table
    assert table["verdict"][1].startswith("5.0 below zero-shot")


def test_a_run_is_deleted_and_what_is_not_a_run_is_not(tmp_path):
    run = make(tmp_path / "a")
    delete_run(run)
    assert not run.exists()
    other = make(tmp_path / "b")
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(RunDirectoryError, match=r"also contains thesis\.tex"):
        delete_run(other)
    (tmp_path / "link").symlink_to(make(tmp_path / "c"))
    with pytest.raises(RunDirectoryError, match="symbolic link"):
        delete_run(tmp_path / "link")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        delete_run(tmp_path)
    assert (other / "thesis.tex").exists()


def test_paths_in_a_configuration_do_not_depend_on_the_working_directory(tmp_path, monkeypatch):
    settings = {"privacy.mode": "enforced", "privacy.federation": Path("ledger")}
    monkeypatch.chdir(tmp_path)
    run = make(tmp_path / "run", None, **settings)
    monkeypatch.chdir("/")
    assert read_run(run).config.privacy.federation == tmp_path / "ledger"
    moved = run.rename(tmp_path / "moved")
    assert read_run(moved).config.privacy.federation == tmp_path / "ledger"
    same = {**settings, "privacy.federation": tmp_path / "ledger"}
    RunDirectory(moved, load_config(None, same))  # is the same run
    with pytest.raises(RunDirectoryError, match=r"privacy\.federation"):
        RunDirectory(moved, load_config(None, settings))  # another ledger: that of this directory

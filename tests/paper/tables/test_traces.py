"""A trace gives the paper's numbers, and damage is never taken for a missing cell."""

from __future__ import annotations

import math

import pytest

from cslr.errors import DataError
from paper.traces import read_trace, read_traces


@pytest.fixture
def cell(make):
    return make().cells[-1]


def test_scores_are_read_as_the_paper_defines_them(put, cell):
    trace = read_trace(put(cell))
    assert trace.value("aa") == pytest.approx(75)
    assert trace.value("bwt") == pytest.approx(-20)
    assert trace.value("fwt") == pytest.approx(5)
    assert (trace.value("tasks"), trace.value("labels"), trace.value("clients")) == (2, 2, 20)
    assert trace.value("seconds") == 2.5


def test_an_epsilon_of_null_is_infinite(put, cell):
    trace = read_trace(put(cell, epsilon=None, replay=3.5))
    assert trace.value("epsilon") == math.inf
    assert trace.value("replay_epsilon") == 3.5
    assert trace.value("epsilon_public") == math.inf


def test_an_undefined_score_stays_undefined(put, cell):
    trace = read_trace(put(cell, matrix=[(None, None), (0.9, None), (0.7, 0.8)]))
    assert math.isnan(trace.value("fwt"))
    assert trace.value("aa") == pytest.approx(75)


def test_further_measures_are_percentages_and_unknown_ones_undefined(put, cell):
    trace = read_trace(put(cell, more={"macro_f1": 0.5, "personal": 0.25}))
    assert (trace.value("macro_f1"), trace.value("personal")) == (50, 25)
    assert math.isnan(trace.value("alignment"))


def test_a_diagnosis_is_that_of_the_last_stage(put, cell):
    said = [{"after": 2, "hit_rate": 0.4, "margin": 0.1}, {"after": 1, "hit_rate": 0.2}]
    trace = read_trace(put(cell, diagnoses=said))
    assert (trace.value("hit_rate"), trace.value("margin")) == (0.4, 0.1)
    assert math.isnan(trace.value("after"))


def test_a_diagnosis_of_another_method_is_none_of_the_cells(put, cell, lines):
    other = {"kind": "diagnosis", "method": "zero-shot", "after": 2, "hit_rate": 0.9}
    assert math.isnan(read_trace(put(cell, [*lines(cell), other])).value("hit_rate"))


def test_zero_shot_is_its_own_baseline(put, make):
    text = 'title = "t"\n[[part]]\ngrid = { method = ["zero-shot"], seed = [13] }\n'
    (cell,) = make("", text).cells
    trace = read_trace(put(cell, matrix=[(0.3, 0.35)] * 3))
    assert trace.value("fwt") == 0.0


def test_only_finished_cells_are_read(put, make, traces):
    cells = make().cells
    assert read_traces(cells, traces) == {}
    put(cells[0])
    assert set(read_traces(cells, traces)) == {cells[0].name}


@pytest.mark.parametrize(
    ("kind", "why"),
    [("finished", "0 lines of kind 'finished'"), ("cost", "0 lines of kind 'cost'")],
)
def test_a_trace_without_its_end_is_damaged(put, cell, lines, kind, why):
    path = put(cell, [line for line in lines(cell) if line["kind"] != kind])
    with pytest.raises(DataError, match=why):
        read_trace(path)


def test_a_missing_row_is_damage(put, cell, lines):
    path = put(cell, [line for line in lines(cell) if line.get("after") != 1])
    with pytest.raises(DataError, match="no row after 1 tasks"):
        read_trace(path)


def test_a_row_of_another_number_of_tasks_is_damage(put, cell, lines):
    broken = lines(cell, matrix=[(0.1,), (0.2,), (0.3,)])
    with pytest.raises(DataError, match="not one of 2 tasks"):
        read_trace(put(cell, broken))


def test_a_trace_under_another_name_is_refused(put, make, lines):
    one, other = make().cells[:2]
    with pytest.raises(DataError, match=f"trace of cell {other.name}"):
        read_trace(put(one, lines(other)))


@pytest.mark.parametrize("line", ["{", "[]", '{"after": 1}', "\udcff"])
def test_a_line_that_is_no_object_names_the_file_and_what_to_do(put, cell, line):
    path = put(cell)
    content = line.encode("utf-8", "surrogateescape")
    path.write_bytes(content + b"\n" + path.read_bytes())
    with pytest.raises(DataError, match=r"jsonl is damaged: .*run the cell again"):
        read_trace(path)


def test_a_wrong_type_names_the_field(put, cell, lines):
    path = put(cell, [line | {"sigma": "much"} for line in lines(cell)])
    with pytest.raises(DataError, match="cost: sigma"):
        read_trace(path)

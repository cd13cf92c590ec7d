"""Verdicts on the paper's numbers and ours."""

from __future__ import annotations

import pytest

from paper.accountant import Cost, Promise, Reading
from paper.built import Built, build
from paper.layout import specs
from paper.printed import Number, Paper, PaperTable
from paper.statistics import Comparison, Interval
from paper.traces import read_traces
from paper.verdicts import counted, judged, lines

PROMISE = Promise(4.0, 1.45, 0.3, 1e-5)
READING = Reading("once", "once", 1, 1)


@pytest.fixture
def built(make, put, traces) -> Built:
    """CSLR has 77 on AG-News and 76 on Amazon, DP-SGD 75 and 72."""
    ups = {("cslr", "ag-news"): 0.02, ("cslr", "amazon"): 0.01, ("dp-sgd", "amazon"): -0.03}
    experiment = make()
    for cell in experiment.cells:
        put(cell, up=ups.get((cell.config.method, cell.config.stream.name), 0.0))
    ran = read_traces(experiment.cells, traces)
    return build(experiment, specs(experiment)[0], ran, Paper({}))


def table(kind: str, *numbers: Number, **more: object) -> PaperTable:
    values = {"label": "l", "title": "t", "kind": kind, "numbers": numbers, **more}
    return PaperTable.model_validate(values)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (70.0, "not comparable; ours is higher by 7.0"),
        (80.0, "not comparable; ours is lower by 3.0"),
        (77.01, "not comparable; ours is the same number"),
    ],
)
def test_a_score_of_another_label_space_has_a_direction_and_no_verdict(built, value, said):
    (line,) = lines(table("scores", Number(row="cslr", column="ag-news", value=value)), built)
    assert line.said == said


@pytest.mark.parametrize(
    ("least", "verdict"),
    [(1.9, "larger gain"), (2.0, "confirmed"), (2.1, "smaller gain"), (-1.0, "larger gain")],
)
def test_a_margin_is_judged_by_its_paired_interval(built, least, verdict):
    numbers = (
        Number(row="dp-sgd", column="least", value=least),
        Number(row="dp-sgd", column="most", value=4.0),
    )
    first, second = lines(table("margins", *numbers, against={"dp-sgd": ("dp-sgd",)}), built)
    assert (first.ours, first.verdict) == ("+2.0 [2.0, 2.0]", verdict)
    assert (second.ours, second.verdict) == ("+4.0 [4.0, 4.0]", "confirmed")


def test_a_margin_over_a_method_that_did_not_run_is_not_run(built):
    number = Number(row="best", column="least", value=1.0)
    against = {"best": ("dp-sgd", "fedcil")}
    (line,) = lines(table("margins", number, against=against), built)
    assert (line.ours, line.verdict) == ("not run", "not run")


@pytest.mark.parametrize(
    ("public", "roster", "verdict"),
    [
        (2.0, 3.9, "promise kept"),
        (2.0, 6.0, "promise kept against the public, not against the roster"),
        (4.03, 4.03, "promise kept"),  # rounding
        (5.0, 6.0, "promise not kept"),
    ],
)
def test_noise_is_judged_by_what_it_costs(built, public, roster, verdict):
    cost = Cost(READING, PROMISE, public, public, roster, roster, 1.0, 2.0)
    priced = Built(built.experiment, built.spec, built.sheet, costs=(cost,))
    number = Number(row="sigma", column="4", value=1.45)
    (line,) = lines(table("accountant", number), priced)
    assert line.verdict == verdict
    assert line.detail == "it takes σ = 1.00 public, 2.00 roster"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0, 0.0, "void"),
        (-2.0, -0.1, "reversed"),
        (-0.5, 3.0, "no gain shown"),
        (0.5, 2.5, "smaller gain"),
        (0.5, 3.0, "confirmed"),
        (4.2, 9.0, "confirmed"),
        (4.3, 9.0, "larger gain"),
    ],
)
def test_a_gain_is_judged_by_the_whole_interval(low, high, verdict):
    printed = Number(row="x", column="y", value=3.6, low=3.0, high=4.2)
    assert judged(printed, Comparison((low + high) / 2, Interval(low, high), 0.5)) == verdict


def test_a_row_may_stand_beside_another_table(built):
    """The matcher ablation is in an experiment where there is something to match."""
    there = {"experiment": "else", "table": "main", "row": "dp-sgd"}
    given = table(
        "scores",
        Number(row="cslr-hungarian", column="amazon", value=70.0),
        instead={"cslr-hungarian": there},
    )
    (line,) = lines(given, None, {("else", "main"): built})
    assert (line.row, line.ours) == ("CSLR-Hungarian", "72.0 ± 0.0")
    assert line.place[2:] == ("dp-sgd", "amazon")


def test_a_quantile_is_computed():
    right, wrong = (Number(row="t", column="4", value=value) for value in (2.776, 2.5))
    assert [line.verdict for line in lines(table("quantile", right, wrong), None)] == [
        "the same",
        "different",
    ]


@pytest.mark.parametrize("kind", ["scores", "counts", "effects"])
def test_without_a_table_of_ours_nothing_was_run(kind):
    number = Number(row="cslr", column="ag-news", value=1.0, low=0.0, high=2.0)
    found = lines(table(kind, number), None)
    assert counted(found) == {"not run": 1}

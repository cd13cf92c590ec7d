"""Margins between methods: over shared seeds, corrected, and empty if undefined."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from cslr.errors import ConfigError
from paper.effects import chance, effects, effects_sheet
from paper.layout import specs
from paper.statistics import holm
from paper.traces import read_traces

TABLE = """\
[[table]]
name = "effects"
kind = "effects"
caption = "Margins."
of = "cslr"
against = ["dp-sgd"]
"""
UPS = {"dp-sgd": {13: 0.0, 17: 0.02, 19: 0.01}, "cslr": {13: 0.03, 17: 0.04, 19: 0.05}}


@pytest.fixture
def found(make, put, traces):
    """Effects of a small experiment in which some cells did not run."""

    def of(without=(), table=TABLE):
        experiment = make(table)
        (spec,) = specs(experiment)
        for cell in experiment.cells:
            method, stream = cell.config.method, cell.config.stream.name
            if (stream, method, cell.seed) not in without:
                put(cell, up=UPS[method][cell.seed])
        ran = read_traces(experiment.cells, traces)
        return experiment, spec, effects(experiment, spec, ran)

    return of


def test_a_margin_is_paired_over_seeds(found):
    _, _, (news, amazon) = found()
    assert (news.stream, news.method, news.against) == ("ag-news", "cslr", "dp-sgd")
    assert news.difference == pytest.approx(3.0)
    expected = stats.ttest_rel([78, 79, 80], [75, 77, 76])
    assert news.t.p == pytest.approx(expected.pvalue)
    half = stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1 / 3)
    assert news.summary.high == pytest.approx(3 + half)
    assert amazon.t == news.t
    assert (news.holm, amazon.holm) == pytest.approx(holm([news.t.p, amazon.t.p]))


def test_only_seeds_that_both_ran_count(found):
    _, _, (news, _) = found(without={("ag-news", "cslr", 13), ("ag-news", "dp-sgd", 19)})
    assert news.seeds == (17,)
    assert news.t is None
    assert math.isnan(news.holm)


def test_a_comparison_that_cannot_be_made_says_why(found):
    experiment, spec, those = found(without={("ag-news", "cslr", seed) for seed in (13, 17, 19)})
    sheet = effects_sheet(experiment, spec, those)
    assert sheet.rows[0][3:] == ("not run", "", "", "", "", "", "", "0")
    assert sheet.rows[1][3] == "+3.0"
    assert sheet.rows[1][7] == chance(those[1].t.p)  # alone: nothing to correct for


def test_the_same_traces_give_the_same_effects(found):
    assert found()[2] == found()[2]


def test_an_undefined_measure_cannot_be_compared(found, make, put, traces):
    experiment = make(TABLE + 'value = "fwt"\n')
    (spec,) = specs(experiment)
    for cell in experiment.cells:
        put(cell, matrix=[(None, None), (0.9, None), (0.7, 0.8)])
    (news, _) = effects(experiment, spec, read_traces(experiment.cells, traces))
    assert news.why_not == "undefined"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (TABLE.replace('of = "cslr"', 'of = "joint"'), "no cell has method 'joint'"),
        (TABLE.replace('of = "cslr"\n', ""), "effects need of and against"),
    ],
)
def test_a_comparison_of_methods_that_are_not_run_is_refused(make, table, why):
    experiment = make(table)
    (spec,) = specs(experiment)
    with pytest.raises(ConfigError, match=why):
        effects(experiment, spec, {})


def test_two_settings_of_one_seed_are_refused(make):
    text = """\
title = "t"
[[part]]
grid = { method = ["cslr", "dp-sgd"], "privacy.epsilon" = [1.0, 4.0], seed = [13] }
"""
    experiment = make(TABLE, text)
    (spec,) = specs(experiment)
    with pytest.raises(ConfigError, match="several settings of one seed"):
        effects(experiment, spec, {})


def test_small_chances_are_not_zero():
    assert (chance(0.0), chance(0.0009), chance(0.0123)) == ("<0.001", "<0.001", "0.012")

"""Every cell is in its place, or the error names the mistake in the experiment file."""

from __future__ import annotations

import math

import pytest

from cslr.errors import ConfigError
from paper.layout import arrange, cells_of, sheet_of, specs
from paper.traces import read_traces

TABLE = '[[table]]\nname = "t"\ncaption = "c"\n'
TWO_EPSILONS = """\
title = "t"
[[part]]
base = { "stream.name" = "ag-news" }
grid = { "privacy.epsilon" = [1.0, inf], method = ["cslr"], seed = [13, 17] }
"""


def test_a_table_has_the_grids_rows_and_columns_in_order(make, put, traces):
    experiment = make()
    for place, cell in enumerate(experiment.cells):
        put(cell, up=place / 100)
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, read_traces(experiment.cells, traces))
    assert layout.rows == (("dp-sgd",), ("cslr",))
    assert layout.columns == (("ag-news",), ("amazon",))
    figure = layout.entries[("cslr",), ("ag-news",)]
    assert tuple(figure.by_seed) == (13, 17, 19)
    assert figure.values == pytest.approx((78, 79, 80))


def test_a_cell_that_did_not_run_and_a_failed_seed_show_as_such(make, put, traces):
    experiment = make()
    for cell in experiment.cells:
        if cell.config.method == "cslr" and cell.seed != 17:
            put(cell)
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, read_traces(experiment.cells, traces))
    sheet = sheet_of(experiment, spec, layout)
    assert [
        [entry if isinstance(entry, str) else entry.text for entry in row] for row in sheet.rows
    ] == [
        ["DP-SGD (no replay)", "not run", "not run"],
        ["CSLR", "75.0 ± 0.0 (2 of 3 seeds)", "75.0 ± 0.0 (2 of 3 seeds)"],
    ]
    assert sheet.header == ("method", "Split-AG-News", "Split-Amazon")
    assert sheet.caption == "Scores. Shown: AA, %."


def test_several_values_are_an_axis(make, put, traces):
    experiment = make(
        TABLE + 'rows = "value"\ncolumns = "privacy.epsilon"\nvalue = ["aa", "bwt"]', TWO_EPSILONS
    )
    put(experiment.cells[0])
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, read_traces(experiment.cells, traces))
    assert layout.rows == (("aa",), ("bwt",))
    assert layout.columns == (("1",), ("inf",))
    assert layout.entries[("bwt",), ("1",)].text == "-20.0 (1 of 2 seeds)"
    assert sheet_of(experiment, spec, layout).header == ("", "ε = 1", "ε = ∞")


def test_a_row_may_have_several_names(make):
    experiment = make(TABLE + 'rows = ["stream.name", "method"]\ncolumns = "privacy.epsilon"')
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, {})
    assert layout.rows[0] == ("ag-news", "dp-sgd")
    sheet = sheet_of(experiment, spec, layout)
    assert sheet.header == ("stream", "method", "ε = 4")
    assert sheet.rows[0][:2] == ("Split-AG-News", "DP-SGD (no replay)")


def test_a_place_that_no_cell_belongs_to_is_empty(make):
    both = TWO_EPSILONS + '[[part]]\nbase = { "stream.name" = "amazon" }\ngrid = { seed = [13] }\n'
    experiment = make(TABLE + 'rows = "stream.name"\ncolumns = "privacy.epsilon"', both)
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, {})
    assert sheet_of(experiment, spec, layout).rows[1][1:3] == ("", "")
    assert (("amazon",), ("1",)) not in layout.entries


def test_where_leaves_cells_out(make):
    experiment = make(TABLE + 'where = { method = "cslr", "privacy.epsilon" = [4, 8] }')
    (spec,) = specs(experiment)
    assert {cell.config.method for cell in cells_of(experiment, spec)} == {"cslr"}
    assert len(cells_of(experiment, spec)) == 6


def test_two_settings_in_one_place_are_an_error_that_names_them(make):
    experiment = make(TABLE, TWO_EPSILONS)
    (spec,) = specs(experiment)
    with pytest.raises(
        ConfigError, match=r"main.toml, table t: two settings in one place.*epsilon"
    ):
        arrange(experiment, spec, {})


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (TABLE + 'rows = "privacy.sigma"', "'privacy.sigma' is not a setting"),
        (TABLE + 'where = { "privacy.sigma" = 1 }', "'privacy.sigma' is not a setting"),
        (TABLE + 'value = ["aa", "bwt"]', 'need "value" in rows or columns'),
    ],
)
def test_a_table_of_unknown_things_is_refused(make, table, why):
    experiment = make(table)
    (spec,) = specs(experiment)
    with pytest.raises(ConfigError, match=why):
        arrange(experiment, spec, {})


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('[[table]]\nname = "Two words"\ncaption = "c"\n', "table 1: name"),
        ('[[table]]\nname = "t"\n', "table 1: caption"),
        (TABLE + 'row = "method"\n', "table 1: row"),
        (TABLE + 'kind = "picture"\n', "table 1: kind"),
    ],
)
def test_a_mistake_in_a_table_names_the_file_and_the_table(make, table, why):
    with pytest.raises(ConfigError, match=f"main.toml, {why}"):
        specs(make(table))


def test_an_undefined_value_is_not_a_missing_cell(make, put, traces):
    experiment = make()
    for cell in experiment.cells:
        put(cell, matrix=[(None, None), (0.9, None), (None, 0.8)])
    (spec,) = specs(experiment)
    layout = arrange(experiment, spec, read_traces(experiment.cells, traces))
    figure = layout.entries[("cslr",), ("ag-news",)]
    assert math.isnan(figure.values[0])
    assert figure.text == "undefined"

"""Experiment files: which cells they ask for, how cells are named, and every mistake in them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from cslr.config import Config, load_config
from cslr.errors import ConfigError, DataError
from cslr.research.experiments.grid import (
    Cell,
    all_cells,
    chosen,
    is_marked,
    load_experiment,
    plain_config,
)
from cslr.research.experiments.outdated import outdated

HEAD = 'title = "A title"\n'


@pytest.fixture
def write(tmp_path):
    """A file with this text below a title."""

    def make(text: str, name: str = "main", head: str = HEAD) -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(head + text, encoding="utf-8")
        return path

    return make


def cell_with(**settings: object) -> Cell:
    return Cell.of(load_config(None, {name.replace("__", "."): v for name, v in settings.items()}))


# -- from a file to cells --------------------------------------------------------------------------


def test_a_part_is_the_cross_product_of_its_grid_over_its_base(write):
    path = write(
        "[[part]]\n"
        'base = { "privacy.epsilon" = 4.0 }\n'
        'grid = { "stream.name" = ["clinic", "desk"], "method" = ["cslr", "joint"], '
        '"seed" = [13, 17, 19] }\n'
    )
    cells = load_experiment(path).cells
    found = [(c.config.stream.name, c.config.method, c.seed) for c in cells]
    wanted = [
        (s, m, n) for s in ("clinic", "desk") for m in ("cslr", "joint") for n in (13, 17, 19)
    ]
    assert found == wanted
    assert {cell.config.privacy.epsilon for cell in cells} == {4.0}
    assert {len(cell.config.seeds) for cell in cells} == {1}
    assert not any(cell.config.yardsticks for cell in cells)


def test_an_experiment_is_the_union_of_its_parts(write):
    part = '[[part]]\ngrid = {{ "seed" = {} }}\n'
    experiment = load_experiment(write(part.format([13, 17]) + part.format([17, 19])))
    assert [cell.seed for cell in experiment.cells] == [13, 17, 19]
    assert len(experiment.parts) == 2


def test_a_cell_that_two_experiments_ask_for_is_one_cell(write):
    one = load_experiment(write('[[part]]\ngrid = { "seed" = [13, 17] }\n', "one"))
    two = load_experiment(write('[[part]]\nbase = { "seed" = 17, "method" = "cslr" }\n', "two"))
    assert [cell.seed for cell in all_cells([one, two])] == [13, 17]


def test_what_a_file_says_about_itself_is_kept(write):
    text = (
        'paper = ["tab:main"]\nreproduce = true\n[[part]]\n[[table]]\nname = "t"\nrows = "method"\n'
    )
    experiment = load_experiment(write(text, "robust"))
    assert (experiment.name, experiment.title) == ("robust", "A title")
    assert experiment.paper == ("tab:main",)
    assert experiment.reproduce
    assert experiment.tables == ({"name": "t", "rows": "method"},)
    assert [cell.config.seeds for cell in experiment.cells] == [(13,)]
    assert is_marked(experiment.path)
    unmarked = write("[[part]]\n", "unmarked")
    assert not load_experiment(unmarked).reproduce
    assert not is_marked(unmarked)


def test_dotted_names_need_no_quotes(write):
    bare = '[[part]]\nbase = { privacy.epsilon = 2 }\ngrid = { stream.name = ["desk"] }\n'
    quoted = '[[part]]\nbase = { "privacy.epsilon" = 2.0 }\ngrid = { "stream.name" = ["desk"] }\n'
    assert load_experiment(write(bare)).cells == load_experiment(write(quoted)).cells


# -- names -----------------------------------------------------------------------------------------


def test_a_name_is_made_of_the_settings_that_are_not_the_default():
    cell = cell_with(stream__name="ag-news", seeds=[17], yardsticks=False, privacy__epsilon=8.0)
    differ = {"seeds": [17], "stream.name": "ag-news", "yardsticks": False}
    text = json.dumps(differ, sort_keys=True)
    assert cell.name == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_where_the_data_lie_does_not_change_a_name(tmp_path):
    here = cell_with(stream__name="ag-news", stream__data=tmp_path / "here")
    there = cell_with(stream__name="ag-news", stream__data=tmp_path / "there")
    assert here.name == there.name == cell_with(stream__name="ag-news").name
    moved = here.reading(tmp_path)
    assert (moved.name, moved.config.stream.data) == (here.name, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"seeds": [17]},
        {"method": "joint"},
        {"stream__name": "desk"},
        {"stream__alpha": 0.3},
        {"privacy__epsilon": 4},
        {"privacy__epsilon": float("inf")},
        {"paper__m": 50},
    ],
    ids=str,
)
def test_any_other_setting_changes_a_name(settings):
    assert cell_with(**settings).name != cell_with().name


def test_infinity_is_null_because_json_has_none():
    plain = plain_config(load_config(None, {"privacy.epsilon": float("inf")}))
    assert plain["privacy"]["epsilon"] is None
    assert "data" not in plain["stream"]
    json.dumps(plain, allow_nan=False)


def test_a_title_tells_what_is_not_the_default():
    cell = cell_with(privacy__epsilon=float("inf"), stream__alpha=0.3, seeds=[17])
    assert cell.title == "clinic · cslr · seed 17 · stream.alpha 0.3 · privacy.epsilon inf"


def test_cells_that_differ_in_who_holds_the_rows_share_a_study():
    plain = cell_with(stream__name="desk", method="joint", seeds=[17])
    assert plain.study == cell_with(stream__name="desk", stream__clients=7).study
    assert (
        plain.study == cell_with(stream__name="desk", stream__alpha=0.1, stream__min_rows=0).study
    )
    assert plain.study == cell_with(stream__name="desk", privacy__epsilon=1).study
    assert hash(plain.study) == hash(cell_with(stream__name="desk").study)


@pytest.mark.parametrize(
    "settings",
    [
        {"stream__name": "desk"},
        {"stream__rows": "all"},
        {"stream__scenario": "domain"},
        {"stream__data": Path("elsewhere")},
        {"encoder": "other"},
        {"encoder": "minilm+layer-2"},
    ],
    ids=str,
)
def test_cells_that_read_other_rows_have_another_study(settings):
    assert cell_with(**settings).study != cell_with().study


# -- finished traces -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"samples": 99}, ["paper.n_r 99, now 500"]),
        ({"removed_since": 1}, []),
    ],
)
def test_a_trace_made_with_another_default_is_recognised(tmp_path, changes, told):
    cell = cell_with()
    then = plain_config(cell.config)
    del then["replay"]  # as if these settings had been added since
    then["head"] |= changes
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"kind": "cell", "config": then}) + "\n")
    assert outdated(cell, trace) == told


@pytest.mark.parametrize("text", ["", "{", "[]\n", '{"kind": "row"}\n', '{"config": 3}\n'])
def test_a_damaged_trace_is_named(tmp_path, text):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(text)
    with pytest.raises(DataError, match=r"trace\.jsonl is damaged; remove it"):
        outdated(cell_with(), trace)


# -- filters ---------------------------------------------------------------------------------------


@pytest.fixture
def cells() -> tuple[Cell, ...]:
    return tuple(
        cell_with(stream__name=stream, method=method, seeds=[seed])
        for stream in ("clinic", "desk")
        for method in ("cslr", "joint")
        for seed in (13, 17)
    )


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 8),
        ({"seeds": [13]}, 4),
        ({"seeds": [17, 13]}, 8),
        ({"streams": ["desk"], "methods": ["cslr"]}, 2),
        ({"streams": ["desk"], "methods": ["cslr"], "seeds": [17]}, 1),
    ],
)
def test_filters_restrict_each_other(cells, filters, count):
    found = chosen(cells, **filters)
    assert len(found) == count
    for cell in found:
        assert cell.seed in filters.get("seeds", [13, 17])
        assert cell.config.stream.name in filters.get("streams", ["clinic", "desk"])
        assert cell.config.method in filters.get("methods", ["cslr", "joint"])


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"seeds": [14]}, r"--seeds: no cell has 14; known values: 13, 17"),
        ({"streams": ["desk", "agnews"]}, r"--streams: no cell has 'agnews'; .* clinic, desk"),
        ({"methods": ["fedcil"]}, r"--methods: no cell has 'fedcil'; known values: cslr, joint"),
    ],
)
def test_a_filter_that_nothing_passes_says_what_there_is(cells, filters, message):
    with pytest.raises(ConfigError, match=message):
        chosen(cells, **filters)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[part]]\nbass = {}\n", ["unknown setting part.1.bass", "base, grid"]),
        ("titel = 1\n[[part]]\n", ["unknown setting titel", "reproduce", "table"]),
        ("", ["part", "required"]),
        ("part = []\n", ["part", "at least 1"]),
        ('reproduce = "yes"\n[[part]]\n', ["reproduce", "boolean"]),
        ("[[part]\n", ["is not valid TOML"]),
        (
            '[[part]]\n[[part]]\nbase = { "privacy.epsilom" = 4 }\n',
            ["part 2", "unknown setting privacy.epsilom", "did you mean 'epsilon'?"],
        ),
        ('[[part]]\ngrid = { "privacy.epsilon" = [4, -1] }\n', ["part 1", "greater than 0"]),
        ('[[part]]\ngrid = { "seed" = ["a"] }\n', ["part 1", "seeds"]),
        ('[[part]]\ngrid = { "seed" = 13 }\n', ["seed must be a list"]),
        ('[[part]]\ngrid = { "seed" = [] }\n', ["seed must be a list of one or more"]),
        ('[[part]]\nbase = { "seed" = 1 }\ngrid = { "seed" = [2] }\n', ["in both base and grid"]),
        ('[[part]]\nbase = { "seeds" = [1, 2] }\n', ["seeds", "use seed"]),
        ('[[part]]\nbase = { "yardsticks" = true }\n', ["yardsticks", "under method"]),
        ('[[part]]\nbase = { "stream.data" = "x" }\n', ["stream.data", "--data DIR"]),
        ('[[part]]\nbase = { "method" = "guess" }\n', ["unknown method 'guess'", "zero-shot"]),
        ('[[part]]\nbase = { "stream.name" = "agnews" }\n', ["unknown stream 'agnews'", "ag-news"]),
        (
            '[[part]]\nbase = { privacy.mode = "enforced", privacy.federation = "f" }\n',
            ["privacy.mode", "noise is not reproducible"],
        ),
    ],
)
def test_a_mistake_is_told_with_the_file_it_is_in(write, text, words):
    path = write(text)
    with pytest.raises(ConfigError, match=re.escape(str(path))) as told:
        load_experiment(path)
    for word in words:
        assert word in str(told.value)


def test_a_file_needs_a_title(write):
    with pytest.raises(ConfigError, match="title"):
        load_experiment(write("[[part]]\n", head=""))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml"):
        load_experiment(tmp_path / "gone.toml")


def test_a_default_cell_is_a_default_configuration():
    assert Cell.of(Config()).name == cell_with().name

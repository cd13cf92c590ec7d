"""All tables, REPRODUCTION.md and the page of results from traces alone, the same every time."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cslr.errors import ConfigError, DataError
from paper import rebuild

TEXT = """\
title = "A small experiment"
paper = ["tab:main"]
[[part]]
[part.base]
"privacy.epsilon" = 4.0
[part.grid]
"stream.name" = ["ag-news", "amazon"]
method = ["dp-stat-share", "cslr-optimaltransport", "cslr"]
seed = [13, 17, 19]
"""
TABLES = """\
[[table]]
name = "main"
caption = "Scores."
[[table]]
name = "protocol"
caption = "Streams."
rows = "stream.name"
columns = "value"
value = ["tasks", "clients", "alpha"]
where = { method = "cslr" }
[[table]]
name = "effects"
kind = "effects"
caption = "Margins."
of = "cslr"
against = ["dp-stat-share", "cslr-optimaltransport"]
"""
FURTHER = """\
title = "Something else"
[[part]]
grid = { method = ["cslr"], "paper.m" = [10, 25], seed = [13] }
[[table]]
name = "anchors"
caption = "By m."
columns = "paper.m"
"""


UPS = {"dp-stat-share": 0.0, "cslr-optimaltransport": 0.02, "cslr": 0.02}


@pytest.fixture
def place(make, put, files, tmp_path):
    """A project with two experiments of which one ran, and the paper's numbers."""
    experiment = make(TABLES, TEXT)
    make("", FURTHER, "further")
    shutil.copy(files / "paper.toml", tmp_path / "experiments")
    for cell in experiment.cells:
        method = cell.config.method
        put(cell, up=cell.seed / 1000 + UPS[method], epsilon=None if method == "cslr" else 4.0)
    return tmp_path


def again(place: Path) -> dict[str, bytes]:
    written = rebuild(place / "experiments", place / "traces", place / "tables")
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in written}


def document(place: Path) -> str:
    return again(place)["REPRODUCTION.md"].decode()


def test_every_table_is_written_in_three_ways_and_twice_the_same(place):
    first = again(place)
    names = ("main-main", "main-protocol", "main-effects", "further-anchors")
    assert set(first) == {f"tables/{n}.{e}" for n in names for e in ("md", "tex", "csv")} | {
        "REPRODUCTION.md"
    }
    assert again(place) == first
    assert all(content.endswith(b"\n") for content in first.values())


def test_each_number_of_the_paper_stands_beside_ours(place):
    text = document(place)
    ours = "78.6 ± 0.3"  # 75 + 2 + the mean of 1.3, 1.7, 1.9
    assert (
        f"| CSLR | Split-AG-News | 62.1 ± 0.3 | {ours} | "
        f"not comparable; ours is higher by 16.5 | class; replay release | a, b, d |" in text
    )
    assert "| DP-Class-Stats (for DP-Stat-Share) | Split-Amazon | 48.6 ± 0.5 | not run |" in text
    assert "| FedTA† | NER-Domain | 50.8 ± 0.3 | not run | not run | – | a, b, c, h |" in text
    assert "- (a) Label spaces differ." in text


def test_counts_are_the_same_or_different(place):
    text = document(place)
    assert "| Split-AG-News | clients | 20 | 20 | the same | class; replay release |  |" in text
    assert "| Split-AG-News | tasks | 4 | 2 | different | class; replay release |  |" in text
    assert "| Split-AG-News | Dirichlet α | 0.5 | undefined | not comparable; not in the" in text


def test_margins_can_be_compared(place):
    text = document(place)
    assert (
        "| +4.7 [4.1, 5.3] | +2.0 [2.0, 2.0] | smaller gain; paired, Holm's p is <0.001 |" in text
    )
    assert "| +3.6 [3.0, 4.2] | not run | not run | – | a, b |" in text  # another experiment has it
    assert "| CSLR − strongest private baseline | most | +5.6 | not run | not run |" in text
    assert "| t(0.975) | 4 degrees of freedom | 2.776 | 2.776 | the same | – |  |" in text


def test_the_first_page_says_what_holds_and_what_was_not_tested(place):
    text = document(place)
    page = text.split("## What of the paper holds\n", 1)[1].split("\n## ", 1)[0]
    holds, fails, untested = page.split("**")[2::2]
    assert (
        "over transport (tab:effect_sizes): CSLR − DP-Stat-Share: a smaller gain than printed (Spl"
        in holds
    )
    assert "buys the ε it promises (tab:accountant)" not in page  # not computed here
    assert "(tab:protocol): " in fails
    assert "The final scores (tab:main): " in untested


def test_what_no_experiment_makes_is_not_run(place):
    text = document(place)
    assert "No experiment here makes it (privacy, privacy)." in text
    assert "| CSLR | 8 | 64.4 ± 0.3 | not run | not run |" in text


def test_the_papers_doubts_are_listed(place):
    text = document(place)
    assert (
        "## Where the paper disagrees with itself\n\n- All results are said to use m = 100" in text
    )
    assert "- 8 of 8 intervals of tab:effect_sizes come out as printed" in text


def test_each_figure_names_what_it_is_worth_nothing_without(place):
    text = again(place)["tables/main-main.md"].decode()
    for fact in (
        "Split-AG-News (`ag-news`): class-incremental, 2 tasks, 2 labels, 20 clients, accuracy.",
        "zero-out adjacency. Noise for ε = 4, δ = 1e-05, against the roster",
        "ε = ∞ end to end, ε = 4.00 for the replay release: CSLR.",
        "ε = 4.00 end to end, ε = 4.00 for the replay release: DP-Stat-Share; CSLR-Opt",
        "Seeds 13, 17, 19;",
        "`cslr reproduce experiments/main.toml --data DIR`, then `cslr tables`",
    ):
        assert fact in text


def test_cells_of_an_earlier_version_are_counted(place):
    """Those whose traces do not say what they were made by; and what all of them cost."""
    assert "earlier version, whose noise" not in again(place)["tables/main-main.md"].decode()
    traces = sorted((place / "traces").glob("*.jsonl"))
    heading, *rows = traces[0].read_text(encoding="utf-8").splitlines()
    old = {name: value for name, value in json.loads(heading).items() if name != "code"}
    traces[0].write_text("\n".join([json.dumps(old), *rows]), encoding="utf-8")
    found = again(place)
    assert "1 of them by an earlier version, whose noise" in found["tables/main-main.md"].decode()
    ran = len(traces)
    row = f"| {ran} of {ran} | 1 | {ran / 2:.0f} | `cslr reproduce experiments/main.toml"
    assert row in found["REPRODUCTION.md"].decode()


def test_further_tables_are_linked_and_say_that_they_did_not_run(place):
    text = document(place)
    link = "[further-anchors](tables/further-anchors.md)"
    assert f"- Something else: {link}. 0 of 2 cells ran; what did not is marked." in text
    table = again(place)["tables/further-anchors.md"].decode()
    assert "| CSLR | not run | not run |" in table
    assert "(`clinic`): not run." in table


def test_without_traces_nothing_is_made_up(place):
    for path in (place / "traces").iterdir():
        path.unlink()
    text = document(place)
    assert "| tab:main | 0 of 18 |" in text
    compared = [line for line in text.splitlines() if line.startswith("| CSLR")]
    assert len(compared) > 50
    assert all("| not run | not run |" in line for line in compared)
    assert re.search(r"Of \d+ comparisons: \d+ not run, 1 the same\.", text)


def test_a_failed_seed_is_told_of(place, traces, make):
    (failed,) = (
        cell
        for cell in make(TABLES, TEXT).cells
        if (cell.config.method, cell.config.stream.name, cell.seed) == ("cslr", "amazon", 17)
    )
    (traces / f"{failed.name}.jsonl").unlink()
    text = document(place)
    assert "| 53.8 ± 0.4 | 78.6 ± 0.4 (2 of 3 seeds) | not comparable;" in text
    assert "17 of 18" in text


def test_a_damaged_trace_stops_everything_before_a_file_is_written(place, traces):
    next(traces.iterdir()).write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="is damaged"):
        again(place)
    assert not (place / "REPRODUCTION.md").exists()
    assert not (place / "tables").exists()


def test_the_page_of_results_gets_its_block_between_the_markers(place):
    page = place / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(
        "# Name\n<!-- reproduction:begin -->\nold\n<!-- reproduction:end -->\nrest\n",
        encoding="utf-8",
    )
    text = again(place)["docs/results.md"].decode()
    assert text.startswith("# Name\n<!-- reproduction:begin -->\nAverage score in %")
    assert text.endswith("<!-- reproduction:end -->\nrest\n")
    assert "old" not in text
    assert "| method | Split-AG-News, class | Split-Amazon, class | end-to-end ε |" in text
    assert "| CSLR | 78.6 ± 0.3 | 78.6 ± 0.3 | ∞ (replay 4.00) |" in text
    assert "[REPRODUCTION.md](../REPRODUCTION.md)" in text
    assert again(place)["docs/results.md"].decode() == text


def test_a_page_without_markers_is_left_alone(place):
    (place / "docs").mkdir()
    (place / "docs" / "results.md").write_text("# Name\n", encoding="utf-8")
    assert "docs/results.md" not in again(place)
    assert (place / "docs" / "results.md").read_text(encoding="utf-8") == "# Name\n"


def test_the_page_says_how_far_cslr_gets_to_pooled_training(place, make, put):
    text = """\
title = "t"
[[part]]
base = { "stream.name" = "ag-news" }
grid = { method = ["majority", "zero-shot", "cslr", "joint"], seed = [13] }
"""
    levels = {"majority": -0.2, "zero-shot": -0.1, "cslr": -0.05, "joint": 0.1}
    for cell in make('[[table]]\nname = "main"\ncaption = "c"\n', text).cells:
        put(cell, up=levels[cell.config.method])
    marked = "<!-- reproduction:begin --><!-- reproduction:end -->"
    (place / "docs").mkdir()
    (place / "docs" / "results.md").write_text(marked, encoding="utf-8")
    assert (
        "pooled training CSLR goes 25 % on Split-AG-News."
        in again(place)["docs/results.md"].decode()
    )


def test_the_document_may_lie_elsewhere(place):
    target = place / "docs" / "R.md"
    written = rebuild(place / "experiments", place / "traces", place / "tables", target)
    assert written[-1] == target
    assert "(../tables/main-main.md)" in target.read_text(encoding="utf-8")


def test_without_the_papers_numbers_it_says_so(place):
    (place / "experiments" / "paper.toml").unlink()
    with pytest.raises(ConfigError, match=r"paper.toml cannot be read"):
        again(place)

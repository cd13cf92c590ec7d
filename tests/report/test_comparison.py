"""Runs side by side, and the index of a folder."""

from __future__ import annotations

import pytest

from cslr.errors import RunDirectoryError
from cslr.report.comparison import comparison_page, write_comparison, write_index
from cslr.report.run_facts import read_facts


def test_a_comparison_shows_what_differs_and_every_verdict(make_run, tmp_path):
    runs = [
        make_run("a", {"privacy.epsilon": 4.0}),
        make_run("b", {"privacy.epsilon": 1.0}, aa=70.0),
    ]
    text = comparison_page([read_facts(run) for run in runs])
    assert "privacy.epsilon" in text
    assert "+5.0 over zero-shot" in text
    assert "5.0 below zero-shot" in text
    assert text.count("<svg") == 1
    write_comparison(runs, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == text


def test_runs_without_scores_are_compared_by_their_settings(make_run):
    nothing = {"aa": None, "matrix": [[None, None]] * 3, "yardsticks": {}}
    runs = [read_facts(make_run(name, **nothing)) for name in "ab"]
    assert "No exact scores are stored" in comparison_page(runs)


def test_an_index_links_every_report_and_writes_those_that_are_missing(make_run, tmp_path):
    made = [make_run(name) for name in ("a", "b & c")]
    (made[1] / "result.json").unlink()
    (make_run("broken") / "config.json").write_text("{")
    page, wrong = write_index(tmp_path)
    text = page.read_text()
    assert (made[0] / "report.html").exists()
    assert '<a href="a/report.html">a</a>' in text
    assert "b &amp; c" in text
    assert "not finished" in text
    assert len(wrong) == 1


def test_a_folder_without_runs_is_a_message(tmp_path):
    with pytest.raises(RunDirectoryError, match="contains no run"):
        write_index(tmp_path)

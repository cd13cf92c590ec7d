"""The example that users are told to copy is as it is described."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import numpy as np

from cslr.cli.data_files import check_report
from cslr.data.own import declaration_path, draft, load_declaration, load_own

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "examples" / "own_data" / "libraries.csv"


def test_the_example_is_ready_and_every_task_is_learnt_and_measured():
    report = check_report(DATA)
    assert report.ready
    assert report.remarks == ()
    assert (report.clients, report.registered) == (300, 320)
    assert [(task.train, task.test) for task in report.tasks] == [(300, 60)] * 3


def test_the_declaration_in_the_documents_is_one(tmp_path: Path):
    page = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    path = tmp_path / "reviews.cslr.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert load_declaration(path).missing() == ()


def test_the_conll_in_the_documents_is_read(write, declare):
    page = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    sentence = page.split("```\n# client")[1].split("```")[0]
    declaration = declare("tagging", columns={"task": "task", "split": "split"})
    stream = load_own(write("conll", f"# client{sentence}".encode()), declaration, ("x",)).stream
    assert stream.train.texts == ("Marie waits",)


def test_the_example_loads():
    stream = load_own(DATA, load_declaration(declaration_path(DATA)), ("Public.",)).stream
    assert (len(stream.train), len(stream.test)) == (900, 180)
    assert len(set(stream.train.texts + stream.test.texts)) == 1080
    assert np.unique(stream.train.clients).tolist() == list(range(300))
    assert [len(task.labels) for task in stream.tasks] == [2, 2, 2]


def test_a_draft_of_the_example_guesses_what_is_declared():
    guess = tomllib.loads(draft(DATA))
    declared = tomllib.loads(declaration_path(DATA).read_text(encoding="utf-8"))
    for key in ("name", "family", "scenario", "columns", "tasks"):
        assert guess[key] == declared[key]
    assert guess["clients"] == 300


def test_the_rows_of_the_example_are_those_that_its_script_writes(tmp_path: Path):
    script = tmp_path / "make.py"
    script.write_bytes(DATA.with_name("make.py").read_bytes())
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "libraries.csv").read_bytes() == DATA.read_bytes()

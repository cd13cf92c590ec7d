"""What becomes of figures on clients' test rows: shown, stored, paid for, or not made at all.

Whole runs of the program on small files. The encoder is a stand-in (a text says which topic it is
near) and entropy is replayed, so two runs differ in nothing but their test rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import cslr.runs.embedded as study_module
from cslr.arrays import FloatArray
from cslr.privacy.ledger.book import Ledger
from cslr.runs.directory import SeedDirectory
from cslr.runs.predict import load_predictor

Call = Callable[..., tuple[int, str, str]]

WIDTH = 16  # d
SMALL = "[replay]\ndimension = 6\n[paper]\nm = 12\nn_r = 8\n"
DECLARATION = """confirmed = true
name = "small"
family = "classification"
scenario = "class"
clients = 9
public = "public.txt"
columns = { task = "task", split = "split" }
privacy = { epsilon = 8.0 }
[[labels]]
name = "red"
description = "0 described"
[[labels]]
name = "blue"
description = "1 described"
[[tasks]]
name = "early"
labels = ["red"]
[[tasks]]
name = "late"
labels = ["blue"]
"""
TRAIN = [
    f"{n % 2} row {n},{('red', 'blue')[n % 2]},c{n % 5},{('early', 'late')[n % 2]},train"
    for n in range(24)
]
TESTS = {
    "one": [
        f"{n % 2} test {n},{('red', 'blue')[n % 2]},c{n % 5},{('early', 'late')[n % 2]},test"
        for n in range(10)
    ],
    "other": [
        *(f"{5 + n} odd {n},red,late-comer,early,test" for n in range(3)),
        "1 test,blue,c1,late,test",
    ],
    "none": [],
}


class StandIn:
    """An encoder: near the topic with the number a text begins with."""

    dimension = WIDTH

    def __init__(self, name: str) -> None:
        self.id = f"stand-in for {name}"

    def encode(self, texts: Sequence[str]) -> FloatArray:
        z = np.stack([self._vector(text) for text in texts])
        return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)

    def _vector(self, text: str) -> FloatArray:
        seed = hashlib.sha256(f"{self.id} {text}".encode()).digest()[:8]
        rng = np.random.default_rng(int.from_bytes(seed, "big"))
        z = 0.2 * rng.standard_normal(WIDTH)
        z[int(text.split()[0]) % WIDTH] += 1.0
        return z


def replayed() -> Callable[[int], bytes]:
    """Entropy that follows from who asks for it, and how often it did before."""
    asked: Counter[str] = Counter()

    def entropy(size: int) -> bytes:
        who = sys._getframe(1).f_code.co_qualname
        asked[who] += 1
        return hashlib.shake_256(f"{who} {asked[who]}".encode()).digest(size)

    return entropy


@pytest.fixture
def world(cslr, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """``world(tests)``: a folder with rows of which these are for testing, and work in it."""
    monkeypatch.setattr(study_module, "load_encoder", StandIn)

    def begin(tests: str) -> Path:
        monkeypatch.setattr(os, "urandom", replayed())
        folder = tmp_path / tests
        folder.mkdir()
        monkeypatch.chdir(folder)
        rows = ["text,label,client,task,split", *TRAIN, *TESTS[tests]]
        (folder / "rows.csv").write_text("\n".join(rows) + "\n")
        (folder / "rows.cslr.toml").write_text(DECLARATION)
        (folder / "small.toml").write_text(SMALL)
        public = [f"{n % 12} sentence {n}" for n in range(110)]
        (folder / "public.txt").write_text("\n".join(public) + "\n")
        return folder

    return begin


def arguments(*more: str) -> list[str]:
    return ["run", "small.toml", "--data", "rows.csv", "--run-dir", "run", *more]


def result_of(cslr: Call, *more: str) -> dict:
    code, out, err = cslr(*arguments("--json", *more))
    assert code == 0, err
    return json.loads(out)


def left(folder: Path) -> dict[str, bytes]:
    """What a run left behind, but for the folder's name and the disk's numbers of the rows."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"FOLDER")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent != folder and path.name != "rows.json"
    }


def trace_of(folder: Path) -> list[dict]:
    lines = (folder / "run" / "trace.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ledger_of(folder: Path) -> Ledger:
    return Ledger.read(folder / "rows.cslr-federation" / "ledger.jsonl")


def edit(path: Path, before: str, after: str) -> None:
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))


# -- two worlds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [[], ["--evaluate", "none"]])
def test_runs_that_differ_in_test_rows_leave_the_same_bytes(cslr, world, rule, pictures):
    found = {}
    for name in TESTS:
        folder = world(name)
        code, _, err = cslr(*arguments(*rule))
        assert code == 0, err
        found[name] = (left(folder), err)
    assert len(found["one"][0]) > 6
    assert found["one"] == found["other"] == found["none"]


def test_stored_figures_differ_where_test_rows_do(cslr, world, pictures):
    """A check of the tests here: stored figures are detected."""
    found = []
    for name in ("one", "other"):
        folder = world(name)
        result_of(cslr, "--evaluate", "stored")
        found.append(left(folder))
    assert found[0].keys() == found[1].keys()
    changed = {name for name in found[0] if found[0][name] != found[1][name]}
    assert changed == {
        "run/trace.jsonl",
        "run/result.json",
        "run/accuracy.png",
        "run/report.html",
    }


# -- shown and stored ------------------------------------------------------------------------------


def test_by_default_figures_on_clients_rows_are_shown_and_not_stored(cslr, world):
    folder = world("one")
    code, out, err = cslr(*arguments())
    assert code == 0, err
    said = " ".join(out.split())
    assert re.search(r"average accuracy \d", said)
    assert "not private, and not stored" in said
    assert "accuracy.png" not in said
    assert not (folder / "run" / "accuracy.png").exists()
    stored = json.loads((folder / "run" / "result.json").read_text())
    assert (stored["evaluate"], stored["evaluated"], stored["aa"]) == ("shown", None, None)
    assert set(itertools.chain(*stored["matrix"])) == {None}
    assert all("scores" not in line and "labels" not in line for line in trace_of(folder))


def test_a_repeated_run_shows_the_same_figures_and_pays_nothing(cslr, world):
    folder = world("one")
    first = result_of(cslr)
    assert first["evaluated"]
    assert all(math.isfinite(share) for share in first["matrix"][-1])
    before = left(folder)
    assert result_of(cslr) == first
    assert left(folder) == before


def test_figures_are_stored_where_that_is_asked_for(cslr, world):
    folder = world("one")
    result = result_of(cslr, "--evaluate", "stored")
    assert result == json.loads((folder / "run" / "result.json").read_text())
    assert (folder / "run" / "accuracy.png").exists()
    last = [line for line in trace_of(folder) if line["kind"] == "row" and line["after"] == 2]
    assert all(len(line["scores"]) == 2 for line in last)
    code, out, _ = cslr(*arguments("--evaluate", "stored"))
    assert code == 0
    assert "not private, and stored" in " ".join(out.split())


def test_figures_on_public_test_rows_are_stored_unless_told_else(cslr, world):
    folder = world("one")
    edit(folder / "rows.cslr.toml", "clients = 9", 'clients = 9\ntest_rows = "public"')
    assert result_of(cslr)["evaluate"] == "stored"
    assert (folder / "run" / "accuracy.png").exists()
    code, _, err = cslr(*arguments("--evaluate", "shown"))
    assert code == 2
    assert "different: privacy.evaluate" in err


def test_without_an_evaluation_a_run_learns_and_can_be_asked(cslr, world):
    folder = world("one")
    result = result_of(cslr, "--evaluate", "none")
    assert (result["evaluated"], result["aa"], result["yardsticks"]) == (False, None, {})
    code, out, _ = cslr(*arguments("--evaluate", "none"))
    assert code == 0
    assert "Trained. Not evaluated (--evaluate none)." in " ".join(out.split())
    assert "scores above" not in " ".join(out.split())
    assert {line.get("method") for line in trace_of(folder)} == {"cslr", None}


@pytest.mark.parametrize("rule", ["shown", "none", "private"])
def test_what_reads_a_run_works_without_stored_figures(cslr, world, rule, monkeypatch):
    world("one")
    result_of(cslr, "--evaluate", rule)
    import cslr.runs.predict as predict_module

    monkeypatch.setattr(predict_module, "load_encoder", StandIn)
    assert cslr("predict", "run", "--text", "1 more")[0] == 0
    code, out, err = cslr("quality", "run")
    assert code == 0, err
    said = " ".join(out.split())
    assert "stored no exact scores on its test rows, so forgetting cannot be computed" in said
    code, out, err = cslr("upgrade", "run", "--encoder", "mpnet", "--run-dir", "up", "--json")
    assert code == 0, err
    assert json.loads(out)["evaluate"] == rule
    assert cslr("ledger", "verify", "up")[0] == 0


def test_a_benchmark_with_enforced_privacy_shows_its_figures_and_stores_none(
    cslr, world, monkeypatch
):
    """Its test rows are public, but the safe rule needs no flag."""
    folder = world("none")
    monkeypatch.setattr(study_module, "load_encoder", lambda name: Worded(name))
    told = ["run", "small.toml", "--privacy", "enforced", "--federation", "f", "--run-dir", "run"]
    code, out, err = cslr(*told, "--json", "--no-yardsticks")
    assert code == 0, err
    assert json.loads(out)["evaluated"]
    assert json.loads((folder / "run" / "result.json").read_text())["aa"] is None
    code, _, err = cslr(*told, "--evaluate", "private", "--run-dir", "other")
    assert code == 2
    assert "those of 'clinic' do not" in " ".join(err.split())


class Worded(StandIn):
    """The same for texts that begin with no number."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return super().encode([f"{len(text) % WIDTH} {text}" for text in texts])


# -- private ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--cap", "1"], ["--head", "dp-fedavg"]])
def test_an_evaluation_is_paid_for_within_the_budget(cslr, world, more):
    folder = world("one")
    small = folder / "small.toml"
    small.write_text(small.read_text() + "[head]\nrounds = 2\n")
    result = result_of(cslr, "--evaluate", "private", *more)
    ledger = ledger_of(folder)
    assert [charge.label for charge in ledger.charges].count("evaluation") == 1
    assert ledger.charges[-1].part == "evaluation"
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(8.0, rel=1e-6)
    assert result["epsilon"]["end_to_end"]["roster"] <= 8.0
    assert result["epsilon"]["replay"]["roster"] < 8.0
    assert cslr("ledger", "verify", "run")[0] == 0
    (line,) = (line for line in trace_of(folder) if line["kind"] == "evaluation")
    assert line["private"] is True
    assert line["sigma"] == ledger.charges[-1].sigma
    assert (result["aa"], result["evaluated"]) == (None, False)
    assert not (folder / "run" / "accuracy.png").exists()
    stored = json.loads((folder / "run" / "result.json").read_text())
    assert stored == result
    assert [task["task"] for task in stored["private_evaluation"]["tasks"]] == ["early", "late"]
    before = left(folder)
    assert result_of(cslr, "--evaluate", "private", *more) == result
    assert left(folder) == before


def test_with_many_clients_the_bought_accuracy_is_near_the_exact_one(cslr, world):
    folder = world("none")
    edit(folder / "rows.cslr.toml", "clients = 9", "clients = 400")
    names, tasks = ("red", "blue"), ("early", "late")
    rows = [
        f"{n % 2 if n % 5 else 7} test {n},{names[n % 2]},c{n // 2},{tasks[n % 2]},test"
        for n in range(800)
    ]
    with (folder / "rows.csv").open("a") as file:
        file.write("\n".join(rows) + "\n")
    code, out, err = cslr(*arguments("--evaluate", "private", "--json"))
    assert code == 0, err
    found = json.loads(out)["private_evaluation"]
    model = load_predictor(folder / "run")
    z = StandIn("minilm").encode([row.split(",")[0] for row in rows])
    answers = model.head.scores(z).argmax(axis=1)
    right = answers == np.arange(len(rows)) % 2
    assert 0.5 < right.mean() < 0.99
    for place, task in enumerate(found["tasks"]):
        assert 0 < task["standard_error"] < 1
        exact = 100 * right[place::2].mean()
        assert abs(task["accuracy"] - exact) < 5 * task["standard_error"]


def test_an_evaluation_that_was_interrupted_is_finished_within_the_budget(cslr, world, monkeypatch):
    """It is charged and then lost before it is kept."""
    folder = world("one")
    save = SeedDirectory.save

    def interrupted(self: SeedDirectory, label: str, vector: FloatArray) -> None:
        if label == "evaluation":
            raise KeyboardInterrupt
        save(self, label, vector)

    with monkeypatch.context() as patch:
        patch.setattr(SeedDirectory, "save", interrupted)
        assert cslr(*arguments("--evaluate", "private"))[0] == 130
    assert ledger_of(folder).charges[-1].label == "evaluation"
    result = result_of(cslr, "--evaluate", "private")
    assert result["epsilon"]["end_to_end"]["roster"] <= 8.0
    assert (folder / "run" / "seed-13" / "evaluation.safetensors").exists()
    assert not list((folder / "rows.cslr-federation" / "keys").iterdir())


def test_few_clients_are_told_that_the_accuracy_is_not_known(cslr, world):
    world("none")
    result = result_of(cslr, "--evaluate", "private", "--epsilon", "1")
    assert result["private_evaluation"]["aa"] is None
    code, out, _ = cslr(*arguments("--evaluate", "private", "--epsilon", "1"))
    assert code == 0
    assert "undefined: too few clients" in " ".join(out.split())


def test_an_evaluation_that_was_bought_before_an_upgrade_is_marked_as_such(cslr, world):
    folder = world("one")
    first = result_of(cslr, "--evaluate", "private")["private_evaluation"]
    charges = len(ledger_of(folder).charges)
    code, out, err = cslr("upgrade", "run", "--encoder", "mpnet", "--run-dir", "up", "--json")
    assert code == 0, err
    taken = json.loads(out)["private_evaluation"]
    assert taken == {**first, "before_upgrade": True}
    assert not first["before_upgrade"]
    assert len(ledger_of(folder).charges) == charges
    code, out, _ = cslr("upgrade", "run", "--encoder", "mpnet", "--run-dir", "up")
    assert code == 0
    assert "released before the encoder upgrade" in " ".join(out.split())


def test_an_evaluation_is_part_of_the_plan_that_was_fixed(cslr, world):
    world("one")
    result_of(cslr, "--epsilon", "4")
    code, _, err = cslr(*arguments("--epsilon", "4", "--evaluate", "private", "--run-dir", "two"))
    assert code == 2
    assert "--evaluate private if and only if that run had it" in " ".join(err.split())


@pytest.mark.parametrize(
    ("more", "declared", "words"),
    [
        (["--evaluate", "secret"], None, "privacy.evaluate"),
        (
            ["--evaluate", "private"],
            ("clients = 9", 'clients = 9\ntest_rows = "public"'),
            "rows.cslr.toml declares test rows public",
        ),
        (["--evaluate", "private"], (', split = "split"', ""), "declares no test rows"),
        (["--evaluate", "private", "--method", "zero-shot"], None, "'zero-shot' has none"),
        (
            [],
            ("clients = 9", 'clients = 9\ntest_rows = "public"\ntest_share = 0.2'),
            "cannot be combined",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(cslr, world, more, declared, words):
    folder = world("one")
    if declared is not None:
        edit(folder / "rows.cslr.toml", *declared)
    code, _, err = cslr(*arguments(*more))
    assert code == 2
    assert words in " ".join(err.split())
    assert not (folder / "run").exists()


def test_a_share_of_the_clients_rows_cannot_be_declared_public(cslr, world):
    folder = world("one")
    edit(folder / "rows.cslr.toml", ', split = "split"', "")
    edit(folder / "rows.cslr.toml", "clients = 9", 'clients = 9\ntest_rows = "public"')
    code, _, err = cslr(*arguments())
    assert code == 2
    assert "rows selected by test_share belong to clients" in " ".join(err.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--epsilon", "inf"], "requires a finite ε"),
        (["--head", "federated"], "requires a finite ε"),
    ],
)
def test_in_a_simulation_too_an_evaluation_needs_noise(cslr, world, more, words, monkeypatch):
    world("none")
    monkeypatch.setattr(study_module, "load_encoder", lambda name: Worded(name))
    code, _, err = cslr("run", "small.toml", "--evaluate", "private", *more)
    assert code == 2
    assert words in " ".join(err.split())


# -- durations, and who may read -------------------------------------------------------------------


def test_no_duration_is_stored_where_privacy_is_enforced(cslr, world):
    folder = world("one")
    result = result_of(cslr, "--evaluate", "stored")
    assert result["seconds"] is None
    assert all("seconds" not in line for line in trace_of(folder))


@pytest.mark.parametrize("cap", [[], ["--cap", "1"]])
def test_nobody_else_may_read_what_an_enforced_run_leaves(cslr, world, cap):
    folder = world("one")
    before = os.umask(0o022)
    try:
        assert cslr(*arguments("--evaluate", "stored", *cap))[0] == 0
        assert cslr("upgrade", "run", "--encoder", "mpnet", "--run-dir", "up")[0] == 0
    finally:
        os.umask(before)
    for name in ("run", "up", "rows.cslr-federation"):
        for path in [folder / name, *(folder / name).rglob("*")]:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_ledger_that_others_could_read_is_closed_to_them(cslr, world):
    folder = world("one")
    result_of(cslr)
    opened = [folder / "run" / "trace.jsonl", folder / "rows.cslr-federation" / "ledger.jsonl"]
    for path in opened:
        path.chmod(0o644)
    (folder / "run" / "trace.jsonl").write_text("")
    result_of(cslr)
    assert [stat.S_IMODE(path.stat().st_mode) for path in opened] == [0o600, 0o600]


def test_a_simulation_stays_readable_and_tells_its_durations(cslr, world, monkeypatch):
    folder = world("none")
    monkeypatch.setattr(study_module, "load_encoder", lambda name: Worded(name))
    before = os.umask(0o022)
    try:
        code, _, err = cslr("run", "small.toml", "--no-yardsticks", "--run-dir", "run")
    finally:
        os.umask(before)
    assert code == 0, err
    assert stat.S_IMODE((folder / "run" / "trace.jsonl").stat().st_mode) == 0o644
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o755
    assert all("seconds" in line for line in trace_of(folder) if line["kind"] == "row")
    assert "evaluate" not in (folder / "run" / "config.json").read_text()

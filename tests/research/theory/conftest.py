"""The small world as a study: embedded rows of two tasks, as a run would see them."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.streams import Label, Rows, Stream, Task
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream


def _rows(labels: np.ndarray, tasks: np.ndarray) -> Rows:
    answers = tuple((label,) for label in labels.tolist())
    return Rows(tuple(f"text {n}" for n in range(len(labels))), answers, tasks)


def _examples(z: np.ndarray, labels: np.ndarray, tasks: np.ndarray) -> EmbeddedRows:
    n = len(z)
    return EmbeddedRows(z, labels, np.eye(4)[labels], tasks, np.arange(n), np.arange(n + 1))


@pytest.fixture(scope="session")
def embedded(world) -> EmbeddedStream:
    people = world.population
    stream = Stream(
        name="toy",
        labels=tuple(Label(f"label {n}", f"about {n}") for n in range(4)),
        tasks=tuple(Task(f"task {n}", labels) for n, labels in enumerate(world.tasks)),
        train=_rows(people.labels, people.tasks),
        test=_rows(world.test_labels, world.test_tasks),
        public=tuple(f"sentence {n}" for n in range(len(world.public))),
        scenarios=("class", "task"),
        clients=12,
        alpha=5.0,
    )
    return EmbeddedStream(
        stream,
        world.family(),
        "synthetic",
        _examples(people.z, people.labels, people.tasks),
        _examples(world.test_z, world.test_labels, world.test_tasks),
        world.public,
        world.texts,
        0.0,
    )


@pytest.fixture(scope="session")
def config():
    return load_config(None, {"replay.dimension": 8, "paper.m": 24, "seeds": [13]})

"""Small experiments, and traces as finished cells leave them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cslr.research.experiments.grid import Cell, Experiment, load_experiment, plain_config

FILE = """\
title = "A small experiment"
paper = ["tab:main"]
[[part]]
base = { "privacy.epsilon" = 4.0 }
grid = { "stream.name" = ["ag-news", "amazon"], method = ["dp-sgd", "cslr"], seed = [13, 17, 19] }
"""
TABLE = """\
[[table]]
name = "main"
caption = "Scores."
rows = "method"
columns = "stream.name"
value = "aa"
"""
MATRIX = ((0.1, 0.2), (0.9, 0.4), (0.7, 0.8))  # AA 75, BWT -20
ZERO_SHOT = (0.3, 0.35)  # and FWT 5

Line = dict[str, Any]


def _rows(method: str, matrix: Sequence[Sequence[float | None]], more: Line) -> list[Line]:
    return [
        {"kind": "row", "method": method, "after": r, "scores": list(row), "more": more}
        for r, row in enumerate(matrix)
    ]


def _cost(end_to_end: float | None, replay: float | None) -> Line:
    epsilon = {
        scope: {"public": spent, "roster": spent, "server": None}
        for scope, spent in (("replay", replay), ("end_to_end", end_to_end))
    }
    return {"kind": "cost", "epsilon": epsilon, "sigma": 2.16, "releases": 2}


def _trace(
    cell: Cell,
    up: float = 0.0,
    matrix: Sequence[Sequence[float | None]] = MATRIX,
    more: Mapping[str, float] | None = None,
    diagnoses: Sequence[Mapping[str, float]] = (),
    epsilon: float | None = 4.0,
    replay: float | None = 4.0,
) -> list[Line]:
    """The lines of a finished cell of two tasks, every score higher by ``up``."""
    method = cell.config.method
    raised = [[None if score is None else score + up for score in row] for row in matrix]
    heading = {
        "kind": "cell",
        "name": cell.name,
        "config": plain_config(cell.config),
        "scenario": "class",
        "clients": cell.config.stream.clients or 20,
        "metric": "accuracy",
        "labels": ["a", "b"],
        "tasks": ["first", "second"],
        "code": {"version": "1", "source": "0123456789abcdef"},
        "cpu": 30.0,
    }
    return [
        heading,
        *[{"kind": "diagnosis", "seed": 13, "method": method, **each} for each in diagnoses],
        *_rows(method, raised, dict(more or {})),
        *([] if method == "zero-shot" else _rows("zero-shot", [ZERO_SHOT] * 3, {})),
        _cost(epsilon, replay),
        {"kind": "finished", "seconds": 2.5},
    ]


@pytest.fixture
def lines() -> Callable[..., list[Line]]:
    """The lines of a finished cell."""
    return _trace


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Where traces are looked for; nothing is there yet."""
    return tmp_path / "traces"


@pytest.fixture
def put(traces: Path) -> Callable[..., Path]:
    """Write a cell's trace, of given lines or of a finished cell."""

    def written(cell: Cell, lines: Sequence[Line] | None = None, **how: Any) -> Path:
        path = traces / f"{cell.name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        shown = _trace(cell, **how) if lines is None else lines
        path.write_text("".join(json.dumps(line) + "\n" for line in shown), encoding="utf-8")
        return path

    return written


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Experiment]:
    """An experiment of a file's text; by default two methods on two streams, three seeds."""

    def made(tables: str = TABLE, text: str = FILE, name: str = "main") -> Experiment:
        path = tmp_path / "experiments" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + tables, encoding="utf-8")
        return load_experiment(path)

    return made


@pytest.fixture
def files() -> Path:
    """The experiments of this project."""
    return Path(__file__).resolve().parents[3] / "experiments"

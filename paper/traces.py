"""A finished cell's trace as a typed record, and the numbers that can be read off it.

Scores are percentages, NaN where undefined; ε is ∞ where the trace has null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ValidationError

from cslr.arrays import FloatArray
from cslr.errors import DataError
from cslr.research.experiments.grid import Cell
from cslr.research.experiments.places import Places
from cslr.runs.measure import average_accuracy, backward_transfer, forward_transfer

__all__ = ["Trace", "read_trace", "read_traces"]


@dataclass(frozen=True, eq=False)
class Trace:
    """One method on one stream with one seed, finished."""

    name: str
    scenario: str
    clients: int
    metric: str
    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    matrix: FloatArray  # (T + 1, T) a[r, j]
    zero_shot: FloatArray  # (T,) b_j
    more: Mapping[str, float]
    """Further measures of the task family, after the last task."""
    diagnosis: Mapping[str, float]
    """What the method measured about itself, as it is in the trace."""
    epsilon: Mapping[str, Mapping[str, float]]
    """ε by scope and adversary."""
    sigma: float
    seconds: float
    alpha: float = math.nan
    """Concentration of the Dirichlet partition; NaN: not recorded or another partition."""
    code: str | None = None
    """A hash of the source it was made with; None: not recorded."""
    cpu: float = math.nan
    """CPU seconds, without loading the stream; NaN: not recorded."""

    def value(self, measure: str) -> float:
        """The value of a measure; NaN if this cell has none."""
        if measure in _READ:
            return _READ[measure](self)
        return {**self.more, **self.diagnosis}.get(measure, math.nan)


_READ: Final[dict[str, Callable[[Trace], float]]] = {
    "aa": lambda trace: average_accuracy(trace.matrix),
    "before": lambda trace: float(np.mean(trace.matrix[0])),
    "bwt": lambda trace: backward_transfer(trace.matrix),
    "fwt": lambda trace: forward_transfer(trace.matrix, trace.zero_shot),
    "epsilon": lambda trace: trace.epsilon["end_to_end"]["roster"],
    "epsilon_public": lambda trace: trace.epsilon["end_to_end"]["public"],
    "replay_epsilon": lambda trace: trace.epsilon["replay"]["roster"],
    "replay_epsilon_public": lambda trace: trace.epsilon["replay"]["public"],
    "sigma": lambda trace: trace.sigma,
    "seconds": lambda trace: trace.seconds,
    "tasks": lambda trace: float(len(trace.tasks)),
    "clients": lambda trace: float(trace.clients),
    "labels": lambda trace: float(len(trace.labels)),
    "alpha": lambda trace: trace.alpha,
}


class _Heading(BaseModel):
    name: str
    config: dict[str, Any]
    scenario: str
    clients: int
    metric: str
    labels: list[str]
    tasks: list[str]
    alpha: float | None = None
    code: dict[str, str] | None = None
    cpu: float = math.nan


class _Row(BaseModel):
    method: str
    after: int
    scores: list[float | None]
    more: dict[str, float | None] = {}
    personal: float | None = None


class _Cost(BaseModel):
    epsilon: dict[str, dict[str, float | None]]
    sigma: float | None


class _Finished(BaseModel):
    seconds: float


def read_traces(cells: Sequence[Cell], traces: Path) -> dict[str, Trace]:
    """The traces of those of these cells that are finished, by name."""
    places = Places(traces=traces)
    names = dict.fromkeys(cell.name for cell in cells)
    return {name: read_trace(places.trace(name)) for name in names if places.trace(name).exists()}


def read_trace(path: Path) -> Trace:
    """One trace; an error if it is damaged."""
    lines = [_parsed(path, number, line) for number, line in _numbered(path)]
    try:
        return _trace(path, lines)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _damaged(path, f"{error.title.strip('_').lower()}: {where}: {first['msg']}") from None


def _trace(path: Path, lines: list[dict[str, Any]]) -> Trace:
    heading = _Heading.model_validate(_one(path, lines, "cell"))
    cost = _Cost.model_validate(_one(path, lines, "cost"))
    finished = _Finished.model_validate(_one(path, lines, "finished"))
    if heading.name != path.stem:
        raise _damaged(path, f"it is the trace of cell {heading.name}")
    rows = [_Row.model_validate(line) for line in lines if line["kind"] == "row"]
    method, tasks = heading.config.get("method", ""), len(heading.tasks)
    matrix = _matrix(path, [row for row in rows if row.method == method], tasks)
    zero_shot = [row for row in rows if row.method == "zero-shot" and row.after == 0]
    last = next(row for row in rows if (row.method, row.after) == (method, tasks))
    return Trace(
        heading.name,
        heading.scenario,
        heading.clients,
        heading.metric,
        tuple(heading.labels),
        tuple(heading.tasks),
        matrix,
        _percents(zero_shot[0].scores) if zero_shot else np.full(tasks, math.nan),
        {"personal": _percent(last.personal)}
        | {name: _percent(value) for name, value in last.more.items()},
        _diagnosis([line for line in lines if line["kind"] == "diagnosis"], method),
        {
            scope: {who: math.inf if value is None else value for who, value in costs.items()}
            for scope, costs in cost.epsilon.items()
        },
        math.nan if cost.sigma is None else cost.sigma,
        finished.seconds,
        math.nan if heading.alpha is None else heading.alpha,
        None if heading.code is None else heading.code.get("source"),
        heading.cpu,
    )


def _matrix(path: Path, rows: list[_Row], tasks: int) -> FloatArray:
    """(T + 1, T); every row must be there."""
    missing = set(range(tasks + 1)) - {row.after for row in rows}
    if missing:
        raise _damaged(path, f"no row after {min(missing)} tasks")
    matrix = np.full((tasks + 1, tasks), math.nan)
    for row in rows:
        if not 0 <= row.after <= tasks or len(row.scores) != tasks:
            raise _damaged(path, f"the row after {row.after} is not one of {tasks} tasks")
        matrix[row.after] = _percents(row.scores)
    return matrix


def _diagnosis(lines: list[dict[str, Any]], method: str) -> dict[str, float]:
    """The last diagnosis, which is about all tasks so far."""
    own = [line for line in lines if line.get("method", method) == method]
    last = max(own, key=lambda line: line.get("after", 0), default={})
    return {
        name: float(value)
        for name, value in last.items()
        if name not in _PLACE and value is not None
    }


_PLACE: Final = {"kind", "seed", "method", "after"}
"""Keys of a line that are not measurements."""


def _numbered(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "kind" not in value:
        raise _damaged(path, f"line {number} is not a JSON object with a kind")
    return value


def _one(path: Path, lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    found = [line for line in lines if line["kind"] == kind]
    if len(found) != 1:
        raise _damaged(path, f"{len(found)} lines of kind {kind!r} instead of one")
    return found[0]


def _percents(scores: Sequence[float | None]) -> FloatArray:
    return np.array([_percent(score) for score in scores])


def _percent(score: float | None) -> float:
    return math.nan if score is None else 100 * score


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged: {why}; remove it and run the cell again")

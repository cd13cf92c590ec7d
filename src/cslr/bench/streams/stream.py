"""What a stream is: tasks that arrive one after another, their rows, and a public corpus.

``labels``, ``tasks``, ``public``, ``scenarios``, ``clients`` and ``alpha`` are declared before any
run and public. ``train`` is the clients' data and private; ``test`` is for evaluation, and what
is measured on it is not private either.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np

from cslr.errors import ConfigError, DataError
from cslr.types import BoolArray, IntArray

__all__ = ["SCENARIOS", "Label", "Rows", "Stream", "Task", "labels_from_toml"]

SCENARIOS = ("class", "domain", "task")


@dataclass(frozen=True)
class Label:
    """A class and the sentence that declares what it means. Public."""

    name: str
    description: str


@dataclass(frozen=True)
class Task:
    """One task of a stream and the labels (indices into ``Stream.labels``) it is about. Public."""

    name: str
    labels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """n texts, the label (n,) and the task (n,) of each, as indices. Private if it is train."""

    texts: tuple[str, ...]
    labels: IntArray
    tasks: IntArray

    def __post_init__(self) -> None:
        shape = (len(self.texts),)
        if self.labels.shape != shape or self.tasks.shape != shape:
            raise ValueError(
                f"labels and tasks must be {shape}, one a text: "
                f"{self.labels.shape} and {self.tasks.shape}"
            )

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Stream:
    """A sequence of text tasks with train and test rows, checked when it is made.

    ``scenarios`` are those in which a figure on this stream means something, the headline first;
    ``clients`` and ``alpha`` are the partition the stream is reported with.
    """

    name: str
    labels: tuple[Label, ...]
    tasks: tuple[Task, ...]
    train: Rows
    test: Rows
    public: tuple[str, ...]
    scenarios: tuple[str, ...]
    clients: int
    alpha: float

    def __post_init__(self) -> None:
        self._check_declarations()
        allowed = self._allowed()
        _check_rows(f"{self.name} train", self.train, allowed)
        _check_rows(f"{self.name} test", self.test, allowed)
        _check_texts(f"{self.name} public", self.public)

    def scenario(self, wanted: str | None) -> str:
        """The scenario wanted, the headline if none is; refused where it would mean nothing."""
        scenario = wanted or self.scenarios[0]
        if scenario in self.scenarios:
            return scenario
        offered = ", ".join(self.scenarios)
        why = ""
        if scenario == "task" and any(len(task.labels) == 1 for task in self.tasks):
            why = " since a task of one label leaves nothing to decide"
        raise ConfigError(
            f"stream {self.name!r} has no scenario {scenario!r}{why}; use --scenario {offered}"
        )

    def _check_declarations(self) -> None:
        for task in self.tasks:
            if not task.labels:
                raise DataError(f"{self.name}: task {task.name!r} declares no label")
            for label in task.labels:
                if not 0 <= label < len(self.labels):
                    raise DataError(
                        f"{self.name}: task {task.name!r} names label {label}, "
                        f"but only 0..{len(self.labels) - 1} are declared"
                    )
        if not self.tasks or not self.scenarios or not set(self.scenarios) <= set(SCENARIOS):
            raise DataError(
                f"{self.name}: at least one task and one scenario of {', '.join(SCENARIOS)} "
                f"must be declared"
            )
        if self.clients < 1 or not (math.isfinite(self.alpha) and self.alpha > 0):
            raise DataError(
                f"{self.name}: clients must be at least 1 and alpha positive: "
                f"{self.clients}, {self.alpha}"
            )

    def _allowed(self) -> BoolArray:
        """(tasks, labels): whether a row of that task may have that label."""
        allowed = np.zeros((len(self.tasks), len(self.labels)), dtype=np.bool_)
        for number, task in enumerate(self.tasks):
            allowed[number, list(task.labels)] = True
        return allowed


def labels_from_toml(content: str, source: str) -> tuple[Label, ...]:
    """The labels of a file of ``[[labels]]`` tables with ``name`` and ``description``."""
    try:
        entries: list[dict[str, Any]] = tomllib.loads(content)["labels"]
        fields = [(entry["name"], entry["description"]) for entry in entries]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"{source} is not a list of [[labels]] with name and description: {error}"
        ) from error
    if not all(isinstance(field, str) and field.strip() for pair in fields for field in pair):
        raise DataError(f"{source}: every label needs a name and a description in words")
    return tuple(Label(name, description) for name, description in fields)


def _check_rows(where: str, rows: Rows, allowed: BoolArray) -> None:
    """Every row has a text, a declared task, and a label that belongs to its task."""
    _check_texts(where, rows.texts)
    tasks, labels = allowed.shape
    for name, values, size in (("task", rows.tasks, tasks), ("label", rows.labels, labels)):
        outside = np.flatnonzero((values < 0) | (values >= size))
        if len(outside):
            row = int(outside[0])
            raise DataError(
                f"{where}, row {row}: {name} {values[row]} is not one of the declared 0..{size - 1}"
            )
    foreign = np.flatnonzero(~allowed[rows.tasks, rows.labels])
    if len(foreign):
        row = int(foreign[0])
        raise DataError(
            f"{where}, row {row}: label {rows.labels[row]} does not belong to "
            f"task {rows.tasks[row]}; declare it there or move the row"
        )


def _check_texts(where: str, texts: tuple[str, ...]) -> None:
    for row, text in enumerate(texts):
        if not text.strip():
            raise DataError(f"{where}, row {row}: the text is empty; remove the row or fill it in")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}, row {row}: the text is not valid Unicode; mend it"
            ) from error

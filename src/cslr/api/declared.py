"""What is declared about rows before they are read: labels, tasks, number of clients. Public.

With enforced privacy nothing of it may be inferred from rows, because the labels, the tasks, their
order and the number of clients with rows would reveal facts about the rows without noise. In a
simulation they may be inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cslr.api.array_likes import texts_or_vectors
from cslr.arrays import FloatArray
from cslr.data.stream import Task
from cslr.errors import DataError

__all__ = ["DeclaredLabels", "declared_labels", "declared_tasks", "registered_clients"]

LabelTexts = Mapping[str, Any] | Sequence[str]
TaskLabels = Mapping[str, Sequence[str]] | Sequence[str]


@dataclass(frozen=True, eq=False)
class DeclaredLabels:
    """The label set, in its order."""

    names: tuple[str, ...]
    texts: tuple[str, ...] | FloatArray | None
    """(c,) descriptions, or (c, d) embeddings of them; None: there are names alone."""


def declared_labels(label_texts: Any) -> DeclaredLabels:
    """The label set from a mapping label -> description, or from a list of names."""
    if isinstance(label_texts, str) or not isinstance(label_texts, Mapping | Sequence | np.ndarray):
        raise DataError(
            "label_texts must map each label to its description, {'angry': 'A customer is ...'}, "
            "or be a list of label names without descriptions"
        )
    names = list(label_texts)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise DataError(
                f"label_texts: labels must be non-empty strings, not {name!r}; use str(label)"
            )
    if not names or len(set(names)) != len(names):
        raise DataError("label_texts must declare one or more different labels")
    texts = None
    if isinstance(label_texts, Mapping):
        texts = texts_or_vectors(list(label_texts.values()), "label_texts")
    return DeclaredLabels(tuple(map(str, names)), texts)


def declared_tasks(
    task_labels: TaskLabels | None,
    labels: tuple[str, ...],
    names: Sequence[str] | None,
    outcomes: Sequence[tuple[int, ...]],
    simulate: bool,
) -> tuple[Task, ...]:
    """The tasks in the order in which they are learnt, each with its labels.

    names: the task of each row; None: there is one task. outcomes: the labels of each row.
    """
    everything = tuple(range(len(labels)))
    if task_labels is None:
        if names is None:
            return (Task("all", everything),)
        if not simulate:
            raise DataError(
                "task_labels is missing: where privacy is enforced the tasks, their order and "
                "their labels are declared and not taken from rows. Give task_labels={task: "
                "[labels]}, or a list of tasks that all have all labels"
            )
        return _inferred(names, outcomes)
    if isinstance(task_labels, str):
        raise DataError("task_labels must be {task: [labels]} or a list of tasks, not a string")
    if isinstance(task_labels, Mapping):
        declared = {str(task): _places(str(task), of, labels) for task, of in task_labels.items()}
    else:
        declared = {str(task): everything for task in task_labels}
    if len(declared) != len(task_labels) or not declared:
        raise DataError("task_labels must declare one or more different tasks")
    return tuple(Task(name, places) for name, places in declared.items())


def _inferred(names: Sequence[str], outcomes: Sequence[tuple[int, ...]]) -> tuple[Task, ...]:
    """For simulations: tasks in the order of their first rows, each with its rows' main labels."""
    labels_by_task: dict[str, set[int]] = {}
    for name, outcome in zip(names, outcomes, strict=True):
        labels_by_task.setdefault(name, set()).add(outcome[0])
    return tuple(Task(name, tuple(sorted(places))) for name, places in labels_by_task.items())


def _places(task: str, given: Sequence[str], labels: tuple[str, ...]) -> tuple[int, ...]:
    named = [given] if isinstance(given, str) else list(given)
    unknown = [name for name in named if name not in labels]
    if unknown or not named:
        what = f"label {unknown[0]!r} is not in label_texts" if unknown else "it has no label"
        raise DataError(f"task_labels, task {task!r}: {what}; labels: {', '.join(labels)}")
    return tuple(labels.index(name) for name in dict.fromkeys(named))


def registered_clients(registered: int | None, seen: int, simulate: bool) -> int:
    """N: as declared, or in a simulation the number of clients with rows."""
    if registered is None:
        if simulate:
            return seen
        raise DataError(
            "registered is missing: where privacy is enforced the number of clients is declared "
            "and not counted from rows. Give registered=N, all clients that may contribute"
        )
    if registered < seen:
        raise DataError(
            f"clients: {seen} of them have rows, but registered={registered}; give the number of "
            f"all clients that may contribute"
        )
    return int(registered)

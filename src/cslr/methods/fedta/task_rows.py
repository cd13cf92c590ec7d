"""The rows of a task by client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cslr.arrays import FloatArray, IntArray
from cslr.methods.fedta.parts import scaled
from cslr.methods.method import MethodContext
from cslr.protocol.head import Family, label_targets

__all__ = ["TaskRows", "outputs_of", "rows_of"]


@dataclass(frozen=True, eq=False, repr=False)
class TaskRows:
    """PRIVATE. The rows of one task by client, clients with most rows first."""

    x: Tensor  # (n, w) embeddings, scaled
    slots: Tensor  # (n,) which of the task's classes
    targets: Tensor  # (n, o) over the outputs of the task's classes
    sigmoid: bool
    clients: tuple[int, ...]  # (k,)
    held: tuple[IntArray, ...]  # (k,) of (n_i,) indices of rows

    @property
    def sizes(self) -> IntArray:
        """(k,) numbers of rows, descending."""
        return np.array([len(rows) for rows in self.held], dtype=np.int64)


def outputs_of(family: Family, labels: tuple[int, ...]) -> IntArray:
    """(o,) the outputs that belong to ``labels``."""
    return np.flatnonzero(np.isin(family.label_of_output(), labels))


def rows_of(context: MethodContext, task: int, directions: FloatArray) -> TaskRows:
    """All rows of a task with one of its labels, projected to public directions (d, w)."""
    people, labels = context.open_rows(), context.tasks[task]
    held = people.held
    here = np.flatnonzero((people.tasks[held] == task) & np.isin(people.labels[held], labels))
    rows, clients = held[here], people.clients[here]
    ids, sizes = np.unique(clients, return_counts=True)
    ids = ids[np.argsort(-sizes, kind="stable")]
    if people.targets is None:
        targets = label_targets(people.labels[rows], context.labels)
    else:
        targets = people.targets[rows]
    task_targets = np.ascontiguousarray(
        targets[:, outputs_of(context.family, labels)], dtype=np.float32
    )
    slots = np.array([labels.index(int(label)) for label in people.labels[rows]], dtype=np.int64)
    return TaskRows(
        scaled(people.z[rows], directions),
        torch.from_numpy(slots),
        torch.from_numpy(task_targets),
        context.family.sigmoid,
        tuple(int(client) for client in ids),
        tuple(np.flatnonzero(clients == client) for client in ids),
    )

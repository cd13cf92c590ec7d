"""Which simulated client holds which rows of a stream.

By Dirichlet shares (a person's rows stay together), every client within one task, or as the rows
themselves say. Where clients are within one task and more are wanted than the stream is reported
with, each draws its rows with replacement: a study of numbers, not of new data.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cslr.bench.partition import dirichlet_partition
from cslr.bench.streams import Rows, Stream
from cslr.config import StreamConfig
from cslr.errors import ConfigError
from cslr.types import IntArray

__all__ = ["Holding", "hold"]

RESAMPLED_ROWS: Final = 20
"""Rows of a client that draws with replacement."""

Holding = tuple[IntArray, IntArray]
"""Clients (h,) and rows (h,): client i holds row j."""


def hold(stream: Stream, config: StreamConfig, rng: np.random.Generator) -> Holding:
    """Who holds what, for one seed."""
    rows, clients = stream.train, config.clients or stream.clients
    if stream.partition == "given":
        if rows.clients is None:
            raise ValueError("rows.clients must say who holds which row")
        return rows.clients, np.arange(len(rows))
    if stream.partition == "task":
        return _within_tasks(stream, clients, rng)
    alpha = config.alpha or stream.alpha
    kinds = rows.tasks * len(stream.labels) + rows.labels
    if rows.people is None:
        owners = dirichlet_partition(kinds, clients, alpha, rng, config.min_rows)
    else:
        people, first = np.unique(rows.people, return_index=True)
        of_people = dirichlet_partition(kinds[first], clients, alpha, rng, min_rows=0)
        owners = of_people[np.searchsorted(people, rows.people)]
    return owners, np.arange(len(rows))


def _within_tasks(stream: Stream, clients: int, rng: np.random.Generator) -> Holding:
    """Equally many clients for each task; client i is of task i mod T."""
    tasks = len(stream.tasks)
    if clients < tasks:
        raise ConfigError(
            f"stream {stream.name!r} has {tasks} tasks and every client holds rows of one: "
            f"--clients must be at least {tasks}, not {clients}"
        )
    parts = [
        _of_task(stream.train, task, np.arange(task, clients, tasks), clients, stream.clients, rng)
        for task in range(tasks)
    ]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _of_task(
    rows: Rows, task: int, own: IntArray, clients: int, reported: int, rng: np.random.Generator
) -> Holding:
    mine = rng.permutation(np.flatnonzero(rows.tasks == task))
    if clients <= reported:
        people = np.arange(len(rows)) if rows.people is None else rows.people
        _, first, person = np.unique(people[mine], return_index=True, return_inverse=True)
        turn = np.argsort(np.argsort(first))  # people in the order they were shuffled to
        return own[turn[person] % len(own)], mine
    size = min(RESAMPLED_ROWS, len(mine))
    drawn = rng.choice(mine, size=(len(own), size))
    return np.repeat(own, size), drawn.ravel()

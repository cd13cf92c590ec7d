"""Assign the rows of a stream to simulated clients.

By Dirichlet shares (label skew, as the paper's streams have it; a person's rows stay together),
every client within one task, or as the rows themselves say. Where clients are within one task and
more are wanted than the stream is reported with, each draws its rows with replacement: a study of
numbers, not of new data.

For simulations only. In a deployment clients have their own rows, and the number of a client's
rows is private.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cslr.arrays import IntArray
from cslr.config import StreamConfig
from cslr.data.streams import Rows, Stream
from cslr.errors import ConfigError, DataError

__all__ = ["Holding", "assign_clients", "describe_partition", "dirichlet_partition"]

RESAMPLED_ROWS: Final = 20
"""Rows of a client that draws with replacement."""

Holding = tuple[IntArray, IntArray]
"""Clients (h,) and rows (h,): client i holds row j."""


def assign_clients(stream: Stream, config: StreamConfig, rng: np.random.Generator) -> Holding:
    """The client of each row, for one seed."""
    rows, clients = stream.train, config.clients or stream.clients
    if stream.partition == "given":
        if rows.clients is None:
            raise ValueError("rows.clients must give the client of every row")
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
            f"stream {stream.name!r} has {tasks} tasks and every client holds rows of one "
            f"task: --clients must be at least {tasks}, not {clients}"
        )
    parts = [
        _of_task(stream.train, task, np.arange(task, clients, tasks), clients, stream.clients, rng)
        for task in range(tasks)
    ]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _of_task(
    rows: Rows,
    task: int,
    task_rows: IntArray,
    clients: int,
    reported: int,
    rng: np.random.Generator,
) -> Holding:
    of_task = rng.permutation(np.flatnonzero(rows.tasks == task))
    if clients <= reported:
        people = np.arange(len(rows)) if rows.people is None else rows.people
        _, first, person = np.unique(people[of_task], return_index=True, return_inverse=True)
        turn = np.argsort(np.argsort(first))  # people in the order they were shuffled to
        return task_rows[turn[person] % len(task_rows)], of_task
    size = min(RESAMPLED_ROWS, len(of_task))
    drawn = rng.choice(of_task, size=(len(task_rows), size))
    return np.repeat(task_rows, size), drawn.ravel()


def dirichlet_partition(
    labels: IntArray,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_rows: int = 2,
    retries: int = 100,
) -> IntArray:
    """The client (n,) of each row: a label's rows are shared out by shares ~ Dirichlet(alpha).

    Every label (``labels`` is (n,)) draws its own shares over the clients; its rows are shuffled
    and cut accordingly. Small ``alpha`` means clients that know few labels, large ``alpha`` means
    equal clients. The whole partition is redrawn until every client holds ``min_rows`` rows, at
    most ``retries`` times. The same generator state gives the same partition.
    """
    _check(labels, clients, alpha, min_rows, retries)
    sizes = np.zeros(clients, dtype=np.int64)
    if len(labels) >= clients * min_rows:
        for _ in range(retries):
            client_of_row = _draw(labels, clients, alpha, rng)
            sizes = np.bincount(client_of_row, minlength=clients)
            if sizes.min() >= min_rows:
                return client_of_row
    raise DataError(_too_few(sizes, len(labels), alpha, min_rows, retries))


def describe_partition(
    client_of_row: IntArray, labels: IntArray, clients: int
) -> dict[str, dict[str, float]]:
    """Realised sizes: min, median and max of rows per client and of labels per client.

    For simulations only: in a federation these numbers are the clients' data and are not
    published without being paid for.
    """
    _, label_of_row = np.unique(labels, return_inverse=True)
    counts = np.zeros((clients, int(label_of_row.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(counts, (client_of_row, label_of_row), 1)
    return {
        "rows_per_client": _spread(counts.sum(axis=1)),
        "labels_per_client": _spread((counts > 0).sum(axis=1)),
    }


def _draw(labels: IntArray, clients: int, alpha: float, rng: np.random.Generator) -> IntArray:
    """One partition (n,), whatever sizes it has."""
    client_of_row = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for client, part in enumerate(np.split(rows, cuts)):
            client_of_row[part] = client
    return client_of_row


def _spread(values: IntArray) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "median": float(np.median(values)),
        "max": float(values.max()),
    }


def _check(labels: IntArray, clients: int, alpha: float, min_rows: int, retries: int) -> None:
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (n,), one label per row, not {labels.shape}")
    if retries < 1:
        raise ValueError(f"retries must be at least 1, not {retries}")
    if clients < 1:
        raise ConfigError(f"--clients must be at least 1, not {clients}")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"--alpha must be a positive number, not {alpha}")
    if min_rows < 0:
        raise ConfigError(f"--min-rows must not be negative, not {min_rows}")


def _too_few(sizes: IntArray, rows: int, alpha: float, min_rows: int, retries: int) -> str:
    remedy = "use fewer --clients, a larger --alpha, or --min-rows 0"
    if rows < len(sizes) * min_rows:
        return (
            f"{rows} rows are not enough for {len(sizes)} clients with at least {min_rows} "
            f"rows each; {remedy}"
        )
    client = int(sizes.argmin())
    return (
        f"client {client} held {sizes[client]} rows, fewer than {min_rows}, in the last of "
        f"{retries} partitions of {rows} rows over {len(sizes)} clients at alpha {alpha:g}; "
        f"{remedy}"
    )

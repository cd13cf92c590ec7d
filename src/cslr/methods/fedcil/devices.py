"""What devices do in a round: all clients of a cohort trained at once, none mixed with another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cslr.arrays import FloatArray, IntArray
from cslr.methods.fedcil.networks import Networks, Shapes
from cslr.methods.fedcil.pools import Pool
from cslr.methods.fedcil.training import Batch, Steps, train
from cslr.protocol.targets import Family
from cslr.seeding import Seeds

__all__ = ["Held", "Told", "updates"]

AT_ONCE: Final = 64
"""Clients that are trained side by side: bounds memory."""


@dataclass(frozen=True, eq=False)
class Held:
    """PRIVATE. The rows of a task, and who of the cohort holds which."""

    rows: Pool
    clients: Sequence[int]  # (b,)
    holds: Sequence[IntArray]  # (b,) of (n_i,) rows

    def some(self, first: int, last: int) -> Held:
        """Some of the clients."""
        return Held(self.rows, self.clients[first:last], self.holds[first:last])


@dataclass(frozen=True, eq=False)
class Told:
    """PUBLIC. What the server sends in a round."""

    model: FloatArray  # (D,)
    noise: Tensor  # (n, k) what generators begin with
    replay: Pool | None
    """Rows of the generator frozen at the task's boundary; None: no label is known yet."""
    echoes: Tensor | None
    """(c, n, r) rows of the released generator for every label, from a task's second round on."""


def updates(
    held: Held,
    told: Told,
    iterations: int,
    batch: int,
    shapes: Shapes,
    family: Family,
    steps: Steps,
    seeds: Seeds,
) -> FloatArray:
    """(b, D) how each client would change the model: generator and critic in one vector."""
    parts = []
    for first in range(0, len(held.clients), AT_ONCE):
        some = held.some(first, first + AT_ONCE)
        networks = Networks.copies(shapes, told.model, len(some.clients))
        picks = _Picks.of(some, told, iterations, batch, seeds)
        train(networks, picks.batches(some, told), family, steps)
        parts.append(networks.models() - told.model)
    return np.concatenate([np.zeros((0, shapes.size), dtype=np.float32), *parts])


@dataclass(frozen=True, eq=False)
class _Picks:
    """Which rows a client takes in which iteration: (b, iterations, n) each, by its own stream."""

    own: Tensor
    noise: Tensor
    replay: Tensor
    echoes: Tensor

    @classmethod
    def of(cls, held: Held, told: Told, iterations: int, batch: int, seeds: Seeds) -> _Picks:
        own, others = [], []
        sizes = [
            len(told.noise),
            len(told.replay) if told.replay is not None else 1,
            told.echoes.shape[1] if told.echoes is not None else 1,
        ]
        for client, rows in zip(held.clients, held.holds, strict=True):
            rng = seeds.at("client", client)
            own.append(rows[rng.integers(len(rows), size=(iterations, batch))])
            others.append([rng.integers(size, size=(iterations, batch)) for size in sizes])
        noise, replay, echoes = torch.from_numpy(np.array(others).swapaxes(0, 1))
        return cls(torch.from_numpy(np.array(own)), noise, replay, echoes)

    def batches(self, held: Held, told: Told) -> Iterator[Batch]:
        """Half of a batch is a client's own, half replay; each half is imitated half as often."""
        for step in range(self.own.shape[1]):
            own, others = self.own[:, step], self.replay[:, step]
            x, labels, targets = held.rows.x[own], held.rows.labels[own], held.rows.targets[own]
            echoes = None
            if told.echoes is not None:
                echoes = told.echoes[labels, self.echoes[:, step]]
            if told.replay is not None:
                x = torch.cat([x, told.replay.x[others]], dim=1)
                labels = torch.cat([labels, told.replay.labels[others]], dim=1)
                targets = torch.cat([targets, told.replay.targets[others]], dim=1)
            conditions = labels[:, :: 1 if told.replay is None else 2]
            noise = told.noise[self.noise[:, step]]
            yield Batch(x, labels, targets, noise, conditions, echoes)

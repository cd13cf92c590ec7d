"""A round on the devices: all clients of a cohort are trained at once, independently."""

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
from cslr.methods.fedcil.public_start import Coordinates
from cslr.methods.fedcil.training import Batch, Steps, train
from cslr.protocol.head import Family, label_targets
from cslr.protocol.ports import Examples
from cslr.seeding import Seeds

__all__ = ["NetworkTraining", "Sent"]

AT_ONCE: Final = 64
"""Clients that are trained in one stack, to limit memory."""


@dataclass(frozen=True, eq=False, repr=False)
class ClientPools:
    """PRIVATE. The rows of a task, by client of the cohort."""

    rows: Pool
    clients: Sequence[int]  # (b,)
    holds: Sequence[IntArray]  # (b,) of (n_i,) indices of rows


@dataclass(frozen=True, eq=False)
class Sent:
    """PUBLIC. What the server sends in a round."""

    model: FloatArray  # (D,)
    noise: Tensor  # (n, k) noise inputs for generators
    replay: Pool | None
    """Rows from the generators of earlier tasks and the label prior; None if there are none."""
    echoes: Tensor | None
    """(c, n, r) rows of the released generator for every label, from a task's second round on."""


@dataclass(frozen=True, eq=False)
class NetworkTraining:
    """PUBLIC. The request for a round of training: what clients receive, and how they train."""

    sent: Sent
    coordinates: Coordinates
    shapes: Shapes
    family: Family
    steps: Steps
    iterations: int
    batch: int
    seeds: Seeds

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) each client's update of both networks; zeros for a client without rows."""
        changes = np.zeros((len(examples.clients), self.shapes.size), dtype=np.float32)
        has_rows = np.flatnonzero(examples.mask.any(axis=1))
        for first in range(0, len(has_rows), AT_ONCE):
            some = has_rows[first : first + AT_ONCE]
            changes[some] = self._trained(held_by(examples, some, self.coordinates, self.family))
        return changes

    def _trained(self, held: ClientPools) -> FloatArray:
        networks = Networks.copies(self.shapes, self.sent.model, len(held.clients))
        picks = _Picks.of(held, self.sent, self.iterations, self.batch, self.seeds)
        train(networks, picks.batches(held, self.sent), self.family, self.steps)
        return networks.models() - self.sent.model


def held_by(
    examples: Examples, some: IntArray, coordinates: Coordinates, family: Family
) -> ClientPools:
    """The rows of some of the clients, concatenated."""
    mask = examples.mask[some]
    labels = examples.labels[some][mask]
    if examples.targets is None:
        targets = label_targets(labels, family.labels)
    else:
        targets = examples.targets[some][mask]
    pool = Pool(
        torch.from_numpy(coordinates.into(examples.z[some][mask])),
        torch.from_numpy(labels),
        torch.from_numpy(targets.astype(np.float32)),
    )
    ends = np.cumsum(mask.sum(axis=1))[:-1]
    clients = [examples.clients[index] for index in some]
    return ClientPools(pool, clients, np.split(np.arange(len(labels)), ends))


@dataclass(frozen=True, eq=False)
class _Picks:
    """Indices that each client draws for each iteration, (b, iterations, n), by its own stream."""

    local: Tensor
    noise: Tensor
    replay: Tensor
    echoes: Tensor

    @classmethod
    def of(cls, held: ClientPools, sent: Sent, iterations: int, batch: int, seeds: Seeds) -> _Picks:
        local, server = [], []
        sizes = [
            len(sent.noise),
            len(sent.replay) if sent.replay is not None else 1,
            sent.echoes.shape[1] if sent.echoes is not None else 1,
        ]
        for client, rows in zip(held.clients, held.holds, strict=True):
            rng = seeds.at("client", client)
            local.append(rows[rng.integers(len(rows), size=(iterations, batch))])
            server.append([rng.integers(size, size=(iterations, batch)) for size in sizes])
        noise, replay, echoes = torch.from_numpy(np.array(server).swapaxes(0, 1))
        return cls(torch.from_numpy(np.array(local)), noise, replay, echoes)

    def batches(self, held: ClientPools, sent: Sent) -> Iterator[Batch]:
        """Half of a batch is a client's own rows, half replay."""
        for step in range(self.local.shape[1]):
            local, replayed = self.local[:, step], self.replay[:, step]
            x, labels, targets = (
                held.rows.x[local],
                held.rows.labels[local],
                held.rows.targets[local],
            )
            echoes = None
            if sent.echoes is not None:
                echoes = sent.echoes[labels, self.echoes[:, step]]
            if sent.replay is not None:
                x = torch.cat([x, sent.replay.x[replayed]], dim=1)
                labels = torch.cat([labels, sent.replay.labels[replayed]], dim=1)
                targets = torch.cat([targets, sent.replay.targets[replayed]], dim=1)
            conditions = labels[:, :: 1 if sent.replay is None else 2]
            noise = sent.noise[self.noise[:, step]]
            yield Batch(x, labels, targets, noise, conditions, echoes)

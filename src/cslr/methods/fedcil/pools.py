"""Training rows from released models or from the prior, not from clients.

Everything here is public or post-processing and costs no ε.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cslr.arrays import FloatArray, IntArray
from cslr.methods.fedcil.networks import Networks, Shapes
from cslr.methods.fedcil.training import Batch, Steps, targets_for, train
from cslr.protocol.head import Family

__all__ = ["Pool", "Snapshot", "echoes", "generated", "imitate", "learn", "normal"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A released model, and the labels it is asked about."""

    model: FloatArray  # (D,)
    labels: IntArray


@dataclass(frozen=True, eq=False)
class Pool:
    """n rows with their labels and targets."""

    x: Tensor  # (n, r)
    labels: Tensor  # (n,)
    targets: Tensor  # (n, outputs)

    def __len__(self) -> int:
        return len(self.x)


def generated(
    snapshots: Sequence[Snapshot],
    count: int,
    shapes: Shapes,
    family: Family,
    rng: np.random.Generator,
) -> Pool:
    """``count`` rows of snapshots, labels as often as they are publicly expected to be met.

    A label that several snapshots are asked about comes from each alike; what a row's target is
    beyond its label, the snapshot's own critic says.
    """
    pairs = [(of, label) for of, each in enumerate(snapshots) for label in each.labels.tolist()]
    shares = np.array([family.shares[label] for _, label in pairs])
    drawn = rng.choice(len(pairs), size=count, p=shares / shares.sum())
    parts = []
    for number, snapshot in enumerate(snapshots):
        requested = [pairs[pair][1] for pair in drawn if pairs[pair][0] == number]
        if requested:
            parts.append(_generate(snapshot.model, torch.tensor(requested), shapes, family, rng))
    x, labels, targets = (torch.cat(each) for each in zip(*parts, strict=True))
    return Pool(x, labels, targets)


def _generate(
    model: FloatArray, labels: Tensor, shapes: Shapes, family: Family, rng: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of one model for ``labels`` (n,)."""
    networks = Networks.copies(shapes, model, 1)
    with torch.no_grad():
        x = networks.generate(normal(rng, 1, len(labels), shapes.noise), labels[None])
        _, logits = networks.judge(x)
        targets = targets_for(labels[None], logits, family)
    return x[0], labels, targets[0]


def echoes(
    model: FloatArray, each: int, shapes: Shapes, family: Family, rng: np.random.Generator
) -> Tensor:
    """(c, each, r) rows of a model for every label."""
    labels = torch.arange(shapes.labels).repeat_interleave(each)
    x, _, _ = _generate(model, labels, shapes, family, rng)
    return x.reshape(shapes.labels, each, -1)


def learn(
    model: FloatArray,
    pool: Pool,
    iterations: int,
    batch: int,
    shapes: Shapes,
    family: Family,
    steps: Steps,
    *,
    rng: np.random.Generator,
) -> FloatArray:
    """A model trained on a pool, at the server."""

    def batches() -> Iterator[Batch]:
        for _ in range(iterations):
            rows = torch.from_numpy(rng.integers(len(pool), size=(1, batch)))
            labels = pool.labels[rows]
            noise = normal(rng, 1, batch, shapes.noise)
            yield Batch(pool.x[rows], labels, pool.targets[rows], noise, labels)

    networks = Networks.copies(shapes, model, 1)
    train(networks, batches(), family, steps)
    trained: FloatArray = networks.models()[0]
    return trained


def normal(rng: np.random.Generator, *shape: int) -> Tensor:
    """White noise."""
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def imitate(
    model: FloatArray,
    pool: Pool,
    iterations: int,
    batch: int,
    shapes: Shapes,
    rate: float,
    rng: np.random.Generator,
) -> FloatArray:
    """A model whose generator gives the rows of a public pool, each from noise of its own."""
    noise = _noise_of(pool, shapes.noise, rng)
    networks = Networks.copies(shapes, model, 1)
    directions = torch.nn.functional.normalize(pool.x, dim=-1)
    optimizer = torch.optim.Adam(list(networks.generator), lr=rate, fused=True)
    for _ in range(iterations):
        rows = torch.from_numpy(rng.integers(len(pool), size=(1, batch)))
        x = networks.generate(noise[rows], pool.labels[rows]) / shapes.radius
        loss = (x - directions[rows]).square().sum(dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    imitating: FloatArray = networks.models()[0]
    return imitating


def _noise_of(pool: Pool, size: int, rng: np.random.Generator) -> Tensor:
    """(n, k) white noise that goes with each row: how it lies around its label's middle."""
    x, labels = pool.x.numpy().astype(np.float64), pool.labels.numpy()
    for label in np.unique(labels):
        x[labels == label] -= x[labels == label].mean(axis=0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    order = np.argsort(-values)[:size]
    white = (x @ vectors[:, order]) / np.sqrt(values[order])
    noise = rng.standard_normal((len(x), size))
    noise[:, : len(order)] = white
    return torch.from_numpy(noise.astype(np.float32))

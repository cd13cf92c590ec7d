"""The task head: two layers over frozen embeddings (paper, Appendix E: 384 -> 128 -> C).

A trained head is plain arrays, so using one needs NumPy only; training it is where torch begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["Batch", "Head", "HeadSettings", "initial_head", "train_head"]

Batch = tuple[FloatArray, FloatArray]
"""Embeddings (n, d) and targets (n, c)."""


@dataclass(frozen=True)
class HeadSettings:
    """Shape and step size of a head."""

    hidden: int = 128
    learning_rate: float = 3e-4
    batch: int = 256
    sigmoid: bool = False
    """Whether each output is answered by itself (binary) or all against each other."""


@dataclass(frozen=True)
class Head:
    """x ↦ relu(x W₁ + b₁) W₂ + b₂ over the labels it knows."""

    weights1: FloatArray  # (d, h)
    bias1: FloatArray  # (h,)
    weights2: FloatArray  # (h, c)
    bias2: FloatArray  # (c,)

    def scores(self, z: FloatArray) -> FloatArray:
        """Logits (n, c) of embeddings (n, d)."""
        hidden = np.maximum(z @ self.weights1 + self.bias1, 0.0)
        return hidden @ self.weights2 + self.bias2


def initial_head(
    dimension: int, labels: int, settings: HeadSettings, rng: np.random.Generator
) -> Head:
    """Uniform in ±1/√fan-in, the same for the same stream."""

    def uniform(fan_in: int, *shape: int) -> FloatArray:
        limit = 1.0 / np.sqrt(fan_in)
        return rng.uniform(-limit, limit, size=shape).astype(np.float32)

    hidden = settings.hidden
    return Head(
        uniform(dimension, dimension, hidden),
        uniform(dimension, hidden),
        uniform(hidden, hidden, labels),
        uniform(hidden, labels),
    )


def train_head(
    start: Head,
    passes: Iterable[Batch],
    settings: HeadSettings,
    rng: np.random.Generator,
    on_pass: Callable[[], None] = lambda: None,
) -> Head:
    """Adam on the (binary) cross-entropy against the targets; a pass is shuffled into batches.

    Deterministic for the same start, passes and stream.
    """
    import torch
    from torch.nn import functional

    parameters = [
        torch.tensor(np.array(array), dtype=torch.float32, requires_grad=True)
        for array in (start.weights1, start.bias1, start.weights2, start.bias2)
    ]
    weights1, bias1, weights2, bias2 = parameters
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    each, all_ = functional.binary_cross_entropy_with_logits, functional.cross_entropy
    measure = each if settings.sigmoid else all_
    for z, targets in passes:
        order = rng.permutation(len(z))
        rows = torch.from_numpy(np.ascontiguousarray(z[order], dtype=np.float32))
        wanted = torch.from_numpy(np.ascontiguousarray(targets[order], dtype=np.float32))
        for begin in range(0, len(order), settings.batch):
            batch = slice(begin, begin + settings.batch)
            logits = torch.relu(rows[batch] @ weights1 + bias1) @ weights2 + bias2
            loss = measure(logits, wanted[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        on_pass()
    return Head(*(parameter.detach().numpy().astype(np.float32) for parameter in parameters))

"""The task head: two layers over frozen embeddings (paper, Appendix E: 384 -> 128 -> C).

A head is plain arrays; using it and training it need NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cslr.arrays import FloatArray
from cslr.protocol.head_training import Adam, cross_entropy_slope

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

    Deterministic for the same start, passes and stream. In float32; beside the same training in
    torch weights differ by rounding (relative 1e-6 in the tests).
    """
    adam = Adam(list(vars(start).values()), settings.learning_rate)
    for z, targets in passes:
        order = rng.permutation(len(z))
        rows = np.ascontiguousarray(z[order], dtype=np.float32)
        shuffled_targets = np.ascontiguousarray(targets[order], dtype=np.float32)
        for begin in range(0, len(order), settings.batch):
            batch = slice(begin, begin + settings.batch)
            _fill_gradients(adam, rows[batch], shuffled_targets[batch], settings.sigmoid)
            adam.step()
        on_pass()
    return Head(*(array.copy() for array in adam.parameters))


def _fill_gradients(adam: Adam, z: FloatArray, targets: FloatArray, one_by_one: bool) -> None:
    """The gradients of the loss of one batch, by back-propagation."""
    weights1, bias1, weights2, bias2 = adam.parameters
    to_weights1, to_bias1, to_weights2, to_bias2 = adam.gradients
    hidden = z @ weights1
    hidden += bias1
    np.maximum(hidden, 0.0, out=hidden)
    slope = cross_entropy_slope(hidden @ weights2 + bias2, targets, one_by_one)
    np.matmul(hidden.T, slope, out=to_weights2)
    slope.sum(axis=0, out=to_bias2)
    below = slope @ weights2.T
    below *= hidden > 0
    np.matmul(z.T, below, out=to_weights1)
    below.sum(axis=0, out=to_bias1)

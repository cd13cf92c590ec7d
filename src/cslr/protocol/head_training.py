"""What heads are trained with: gradients of their losses, and Adam.

Gradients are over any number of heads at once: leading dimensions are heads and stay apart; n are
rows, o outputs, h hidden units. Adam works on stacks of arrays, in place and in float32.

Reference: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, Algorithm 1, with
β₁ = 0.9, β₂ = 0.999, ε = 1e-8. The moments are kept without their factors 1 − β, which the length
of a step and ε take over: fewer passes over the arrays, and the steps of ``torch.optim.Adam`` up to
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["Adam", "contrast_slope", "cross_entropy_slope", "sigmoid", "softmax"]

FIRST: Final = 0.9  # β₁
SECOND: Final = 0.999  # β₂
LEAST: Final = 1e-8  # ε
BLOCK: Final = 1 << 16
"""Numbers that are moved at a time, so that all they need stays in the cache."""


class Adam:
    """Adam for several arrays; values and gradients are views into one flat vector each.

    All operations are elementwise, so models stacked in an array do not mix.
    """

    def __init__(self, start: Sequence[FloatArray], learning_rate: float) -> None:
        """Copies of the arrays to start at, of any shapes."""
        shapes = [array.shape for array in start]
        count = sum(array.size for array in start)
        self._flat, self._slopes, self._mean, self._square = np.zeros((4, count), np.float32)
        self._scratch = np.empty(min(BLOCK, count), dtype=np.float32)
        self._rate = learning_rate
        self.parameters = _views(self._flat, shapes)
        self.gradients = _views(self._slopes, shapes)
        """Filled by the caller before every step."""
        self.restart(start)

    def restart(self, start: Sequence[FloatArray]) -> None:
        """Forget all steps, and start at copies of these arrays, of the same shapes."""
        for array, first in zip(self.parameters, start, strict=True):
            array[...] = first
        self._steps = 0

    def step(self) -> None:
        """One step from the gradients that were filled in."""
        self._steps += 1
        root = math.sqrt((1.0 - SECOND**self._steps) / (1.0 - SECOND))
        share = (1.0 - FIRST) / (1.0 - FIRST**self._steps)
        length, least = np.float32(-self._rate * share * root), np.float32(LEAST * root)
        for begin in range(0, len(self._flat), BLOCK):
            part = slice(begin, begin + BLOCK)
            slope, mean, square = self._slopes[part], self._mean[part], self._square[part]
            change = self._scratch[: len(slope)]
            if self._steps == 1:  # the moments of earlier steps are zero
                mean[:] = slope
                np.square(slope, out=square)
                np.abs(slope, out=change)  # the root of the square
            else:
                mean *= np.float32(FIRST)
                mean += slope
                square *= np.float32(SECOND)
                square += np.square(slope, out=change)
                np.sqrt(square, out=change)
            change += least
            np.divide(mean, change, out=change)
            change *= length
            self._flat[part] += change


def _views(flat: FloatArray, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    """The arrays of these shapes that lie one after the other in a flat vector."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        flat[end - math.prod(shape) : end].reshape(shape)
        for end, shape in zip(ends, shapes, strict=True)
    ]


def softmax(scores: FloatArray) -> FloatArray:
    """(..., o) shares of scores (..., o)."""
    shares: FloatArray = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(scores: FloatArray) -> FloatArray:
    """1 / (1 + exp(−s)) without overflow, to full relative precision in both tails."""
    small = np.exp(-np.abs(scores))
    answer: FloatArray = np.where(scores >= 0, 1.0, small) / (1.0 + small)
    return answer


def cross_entropy_slope(
    scores: FloatArray, targets: FloatArray, one_by_one: bool, weights: FloatArray | None = None
) -> FloatArray:
    """∂/∂scores (..., n, o) of the mean over rows of the cross-entropy against targets (..., n, o).

    one_by_one: binary cross-entropy, averaged over outputs too; otherwise that of the softmax,
    whose targets need not sum to one. weights: (..., n) factors of the rows in place of 1 / n.
    """
    n, outputs = scores.shape[-2:]
    if one_by_one:
        slope: FloatArray = sigmoid(scores) - targets
        slope /= np.float32(outputs if weights is not None else n * outputs)
    else:
        slope = softmax(scores)
        slope *= targets.sum(axis=-1, keepdims=True)
        slope -= targets
        if weights is None:
            slope /= np.float32(n)
    if weights is not None:
        slope *= weights[..., None]
    return slope


def contrast_slope(hidden: FloatArray, labels: IntArray, temperature: float) -> FloatArray:
    """∂/∂hidden (..., n, h) of the mean supervised contrastive loss (Khosla et al. 2020).

    labels: (n,). Samples of one label are drawn together, of others pushed apart.
    """
    n = len(labels)
    norm = np.maximum(np.linalg.norm(hidden, axis=-1, keepdims=True), np.float32(1e-12))
    unit = hidden / norm
    alike = unit @ np.swapaxes(unit, -1, -2) / np.float32(temperature)  # (..., n, n)
    itself = np.eye(n, dtype=np.bool_)
    same = ((labels[:, None] == labels) & ~itself).astype(np.float32)
    count = np.maximum(same.sum(axis=-1, keepdims=True), 1)
    slope = softmax(np.where(itself, np.float32(-1e9), alike))
    slope *= same.sum(axis=-1, keepdims=True) / count
    slope -= same / count
    slope /= np.float32(n * temperature)
    pull: FloatArray = (slope + np.swapaxes(slope, -1, -2)) @ unit
    pull -= unit * (pull * unit).sum(axis=-1, keepdims=True)
    pull /= norm
    return pull

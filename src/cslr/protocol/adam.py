"""Adam on stacks of arrays, in place and in float32.

Reference: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, Algorithm 1, with
β₁ = 0.9, β₂ = 0.999, ε = 1e-8. Operations and their order are those of ``torch.optim.Adam``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["Adam"]

FIRST: Final = 0.9  # β₁
SECOND: Final = 0.999  # β₂
LEAST: Final = 1e-8  # ε
BLOCK: Final = 1 << 14
"""Numbers that are moved at a time, so that all they need stays in the cache."""


class Adam:
    """Adam for several arrays; values and gradients are views into one flat vector each.

    All operations are elementwise, so models stacked in an array do not mix.
    """

    def __init__(self, start: Sequence[FloatArray], learning_rate: float) -> None:
        """Copies of the arrays to start at, of any shapes."""
        shapes = [array.shape for array in start]
        self._flat = _flat(start)
        self._slopes = np.zeros_like(self._flat)
        self._mean, self._square = np.zeros_like(self._flat), np.zeros_like(self._flat)
        self._scratch = np.empty((2, min(BLOCK, len(self._flat))), dtype=np.float32)
        self._rate, self._steps = learning_rate, 0
        self.parameters = _views(self._flat, shapes)
        self.gradients = _views(self._slopes, shapes)
        """Filled by the caller before every step."""

    def step(self) -> None:
        """One step from the gradients that were filled in."""
        self._steps += 1
        length = np.float32(-self._rate / (1.0 - FIRST**self._steps))
        root = np.float32(math.sqrt(1.0 - SECOND**self._steps))
        for begin in range(0, len(self._flat), BLOCK):
            part = slice(begin, begin + BLOCK)
            slope, mean, square = self._slopes[part], self._mean[part], self._square[part]
            change, divisor = self._scratch[:, : len(slope)]
            np.subtract(slope, mean, out=change)
            change *= np.float32(1.0 - FIRST)
            mean += change
            square *= np.float32(SECOND)
            np.multiply(slope, slope, out=change)
            change *= np.float32(1.0 - SECOND)
            square += change
            np.sqrt(square, out=divisor)
            divisor /= root
            divisor += np.float32(LEAST)
            np.divide(mean, divisor, out=change)
            change *= length
            self._flat[part] += change


def _flat(arrays: Sequence[FloatArray]) -> FloatArray:
    """(D,) a copy of all arrays, one after the other, in float32."""
    return np.concatenate([np.asarray(array, dtype=np.float32).ravel() for array in arrays])


def _views(flat: FloatArray, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    """The arrays of these shapes that lie one after the other in a flat vector."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        flat[end - math.prod(shape) : end].reshape(shape)
        for end, shape in zip(ends, shapes, strict=True)
    ]

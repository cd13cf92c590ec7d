"""Adam on stacks of arrays, in place and in float32.

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

from cslr.arrays import FloatArray

__all__ = ["Adam"]

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

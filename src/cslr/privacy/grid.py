"""The integer grid on which clients are clipped, summed and noised.

Floating-point noise leaks through its own rounding (Mironov 2012), so nothing here is float once
it is bounded: a client's clipped vector is truncated toward zero onto a grid of ``bound / steps``,
its norm is checked in integers, sums are exact, and the noise is a discrete Gaussian on the same
grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.privacy.values import _SEAL, Bounded
from cslr.types import FloatArray, IntArray

__all__ = ["STEPS", "Grid", "bound"]

STEPS: Final = 2**20
"""Grid steps in one clipping bound: fine enough that any useful σ is at least 2¹² steps."""


@dataclass(frozen=True)
class Grid:
    """A public clipping bound and the number of integer steps it is divided into."""

    bound: float
    steps: int = STEPS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"bound must be positive and finite, not {self.bound}")
        if not 1 <= self.steps <= 2**24:
            raise ValueError(f"steps must lie in 1..2^24, not {self.steps}")

    def decode(self, integers: IntArray) -> FloatArray:
        """Grid steps -> the units of the bound."""
        return integers.astype(np.float64) * (self.bound / self.steps)


def bound(vectors: FloatArray, grid: Grid) -> Bounded:
    """Clip each client's vector to the bound and put it on the grid.

    vectors: (b, D), one row per client, all modes and blocks concatenated.

    Guarantee: every row of the result has integer ℓ2 norm ≤ ``grid.steps``, whatever the input.
    A row that is not finite is refused before anything else, since a NaN survives every
    comparison in a clip.
    """
    if vectors.ndim != 2:
        raise ValueError(f"vectors must be (clients, coordinates), not of shape {vectors.shape}")
    # In half precision 2^20 steps are infinite, and infinity becomes an integer that wraps around.
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float64, casting="same_kind")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise ValueError(f"vectors: the contribution of client {bad[0]} is not finite")
    # Divide by the largest entry first: squares of values near 1e308 would overflow.
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    relative = vectors / np.where(largest > 0, largest, 1.0)
    norm = np.maximum(np.linalg.norm(relative, axis=1, keepdims=True), 1.0)
    length = np.minimum(largest, grid.bound / norm) * norm  # of the clipped row
    rows = np.trunc(relative / norm * (length / grid.bound * grid.steps)).astype(np.int64)
    return Bounded(_clip_integers(rows, grid.steps), grid, _SEAL)


def _clip_integers(rows: IntArray, steps: int) -> IntArray:
    """Shrink, in exact integers, the rows that rounding left a hair over the bound."""
    squared = np.einsum("ij,ij->i", rows, rows)
    for i in np.flatnonzero(squared > steps * steps):
        norm = math.isqrt(int(squared[i]) - 1) + 1  # ceiling, so that the row cannot stay too long
        rows[i] = np.sign(rows[i]) * (np.abs(rows[i]) * steps // norm)
    return rows

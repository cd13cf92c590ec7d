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

from cslr.arrays import FloatArray, IntArray
from cslr.privacy.values import _SEAL, Bounded

__all__ = ["STEPS", "Grid", "NotAdmitted", "admit", "bound", "bound_with_matrix", "joint_norms"]

STEPS: Final = 2**20
"""Grid steps in one clipping bound: fine enough that any useful σ is at least 2¹² steps."""

_EXACT: Final = 2**52
"""Steps: up to here sums are exact in 64-bit integers and in doubles, with room for the noise."""
_INSIDE: Final = 1 - 2**-9
"""Factors of a matrix are rounded to the nearest step this far inside the bound, which few of them
then exceed: truncated, small ones would all be told too small."""


class NotAdmitted(ValueError):
    """Rows that were clipped elsewhere are not valid bounded integer rows; none of them is used."""


@dataclass(frozen=True)
class Grid:
    """A public clipping bound and the number of integer steps it is divided into."""

    bound: float
    steps: int = STEPS
    share: int = 1
    """How many contributions may come from one unit, in different clients: each is clipped to
    1/share of the bound, so that together they move a sum by at most the whole bound."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"bound must be positive and finite, not {self.bound}")
        if not 1 <= self.steps <= 2**24:
            raise ValueError(f"steps must lie in 1..2^24, not {self.steps}")
        if not 1 <= self.share <= self.steps:
            raise ValueError(f"share must lie in 1..{self.steps}, not {self.share}")

    @property
    def most(self) -> int:
        """Steps: the longest that one contribution may be."""
        return self.steps // self.share

    @property
    def most_clients(self) -> int:
        """The most clients whose sum is exact whatever they say: 2³² on the default grid."""
        return _EXACT // self.steps

    def decode(self, integers: IntArray) -> FloatArray:
        """Grid steps -> the units of the bound."""
        return integers.astype(np.float64) * (self.bound / self.steps)


def bound(vectors: FloatArray, grid: Grid) -> Bounded:
    """Clip each client's vector to the bound and put it on the grid.

    vectors: (b, D), one row per client, all modes and blocks concatenated.

    Guarantee: every row of the result has integer ℓ2 norm ≤ ``grid.most``, whatever the input.
    A row that is not finite is refused before anything else, since a NaN survives every
    comparison in a clip.
    """
    vectors = np.asarray(vectors)  # a masked array would hide a NaN from the check below
    if vectors.ndim != 2:
        raise ValueError(f"vectors must have shape (clients, coordinates), not {vectors.shape}")
    if len(vectors) > grid.most_clients:
        raise ValueError(
            f"vectors: the sum of {len(vectors)} clients could overflow; this grid allows at "
            f"most {grid.most_clients} clients. Use fewer steps"
        )
    # In half precision 2^20 steps are infinite, and infinity becomes an integer that wraps around.
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float64, casting="same_kind")
    most, least = vectors.max(axis=1, initial=0.0), vectors.min(axis=1, initial=0.0)
    bad = np.flatnonzero(~(np.isfinite(most) & np.isfinite(least)))  # a NaN is its row's largest
    if bad.size:
        raise ValueError(f"vectors: the contribution of client {bad[0]} is not finite")
    # Divide by the largest entry first: squares of values near 1e308 would overflow.
    largest = np.maximum(most, -least)[:, None]
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    norm = np.maximum(np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None], 1.0)
    length = np.minimum(largest, grid.bound / grid.share / norm) * norm  # of the clipped row
    scaled *= length / grid.bound * grid.steps / norm
    scaled = np.trunc(scaled)
    # Whole numbers whose squares sum to at most about 2⁴⁸: exact in doubles, in any order.
    squared = np.einsum("ij,ij->i", scaled, scaled)
    rows = scaled.astype(np.int64)
    return Bounded(_clip_integers(rows, squared, grid.most), grid, _SEAL)


def bound_with_matrix(vectors: FloatArray, factors: FloatArray, grid: Grid) -> Bounded:
    """Clip each client's vector together with a matrix FᵀF, whose upper triangle is the rest of it.

    vectors: (b, D); factors: (b, n, r) F of each client, a row of zeros for nothing. F is what is
    put on the grid: products of whole numbers are whole, so the sum of all matrices is one exact
    product, and no client's matrix is ever formed.

    Guarantee: every vector of the result, its triangle included, has integer ℓ2 norm ≤
    ``grid.most``, whatever the input. One that is not finite is refused first.
    """
    vectors, factors = np.asarray(vectors, np.float64), np.asarray(factors, np.float64)
    if vectors.ndim != 2 or factors.ndim != 3 or len(vectors) != len(factors):
        raise ValueError(
            f"vectors and factors must have shapes (clients, coordinates) and (clients, rows, "
            f"directions), not {vectors.shape} and {factors.shape}"
        )
    if len(vectors) > grid.most_clients:
        raise ValueError(f"vectors: this grid allows at most {grid.most_clients} clients")
    with np.errstate(over="ignore", invalid="ignore"):
        norm = joint_norms(vectors, factors)
    bad = np.flatnonzero(~np.isfinite(norm))  # a NaN, an infinity, or too long to be squared
    if bad.size:
        raise ValueError(f"vectors: the contribution of client {bad[0]} is not finite")
    kept = np.minimum(1.0, grid.bound / grid.share / np.maximum(norm, np.finfo(np.float64).tiny))
    steps = kept / grid.bound * grid.steps
    vectors = np.trunc(vectors * steps[:, None])
    factors = factors * (_INSIDE * np.sqrt(steps))[:, None, None]
    np.rint(factors, out=factors)
    limit = grid.most**2
    while (over := _squares(vectors, factors) > limit).any():  # vectors alone are never too long
        factors[over] = np.trunc(factors[over] * _INSIDE)
    return Bounded(vectors.astype(np.int64), grid, _SEAL, factors)


def joint_norms(vectors: FloatArray, factors: FloatArray) -> FloatArray:
    """(b,) the ℓ2 norms of vectors (b, D) with the upper triangles of FᵀF of factors (b, n, r)."""
    norms: FloatArray = np.sqrt(_squares(vectors, factors))
    return norms


def _squares(vectors: FloatArray, factors: FloatArray) -> FloatArray:
    """(b,) squared norms. ‖FᵀF‖ = ‖FFᵀ‖, and a triangle has half of it and of its diagonal.

    Of whole numbers within a bound all sums are exact.
    """
    turned = np.swapaxes(factors, -1, -2)
    few = factors.shape[-2] <= factors.shape[-1]
    small = factors @ turned if few else turned @ factors  # (b, n, n) or (b, r, r)
    diagonal = np.einsum("bni,bni->bi", factors, factors)
    matrix = np.einsum("bnm,bnm->b", small, small) + np.einsum("bi,bi->b", diagonal, diagonal)
    squares: FloatArray = np.einsum("ij,ij->i", vectors, vectors) + matrix / 2
    return squares


def admit(rows: IntArray, grid: Grid) -> Bounded:
    """Accept rows that were clipped elsewhere, if they are valid; invalid rows are never repaired.

    rows: (b, D) int64, one row per client.

    Guarantee: every row of the result has integer ℓ2 norm ≤ ``grid.most``, decided in exact
    arithmetic whatever the integers; otherwise ``NotAdmitted``, and nothing is taken.
    """
    copied = np.array(rows, order="C")  # a copy: the caller cannot change a row after the check
    if copied.dtype != np.int64:
        raise NotAdmitted(f"rows must be 64-bit integers, not {copied.dtype}")
    if copied.ndim != 2:
        raise NotAdmitted(f"rows must have shape (clients, coordinates), not {copied.shape}")
    if len(copied) > grid.most_clients:
        raise NotAdmitted(
            f"rows: {len(copied)} clients are more than the {grid.most_clients} this grid allows"
        )
    # Squares of hostile integers wrap around, so the first look is in doubles, from which a row
    # of twice the bound cannot hide; after it the squares are exact in 64 bits.
    over = np.linalg.norm(copied.astype(np.float64), axis=1) > 2.0 * grid.most
    if not over.any():
        over = np.einsum("ij,ij->i", copied, copied) > grid.most**2
    if over.any():
        raise NotAdmitted(
            f"rows: the ℓ2 norm of the vector of client {over.argmax()} exceeds the clip of "
            f"{grid.most} grid steps; clients must clip before they send"
        )
    return Bounded(copied, grid, _SEAL)


def _clip_integers(rows: IntArray, squared: FloatArray, steps: int) -> IntArray:
    """Shrink, in exact integers, the rows whose squared norm exceeds the clip after rounding."""
    for i in np.flatnonzero(squared > steps * steps):
        norm = math.isqrt(int(squared[i]) - 1) + 1  # ceiling, so that the row cannot stay too long
        rows[i] = np.sign(rows[i]) * (np.abs(rows[i]) * steps // norm)
    return rows

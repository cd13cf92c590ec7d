"""The types of private values, raw -> Bounded -> Summed -> Released, and the first two steps.

Each step exists in one place: ``bound`` clips, ``plain_sum`` adds up, ``mechanism.release``
charges the ledger and adds noise. Across machines the clients add the noise before anybody adds up:
Summed (inside a client) -> Noised (made by ``secure_sum.server`` alone) -> Released, where
``mechanism.publish`` charges the ledger and draws nothing. A function that would noise before the
sum, release something unclipped, or let a server look at an unreleased value does not type-check.

Python cannot stop a determined caller from forging a value. ``_SEAL`` makes forging visible, and a
test checks that no other module imports it.

Floating-point noise leaks through its own rounding (Mironov 2012), so nothing here is float once
it is bounded: a client's clipped vector is truncated toward zero onto a grid of ``bound / steps``,
its norm is checked in integers, sums are exact, and the noise is a discrete Gaussian on the same
grid. In one process the sum is ideal: it adds up and does not keep the rows. Over a network the
same step is the protocol of ``secure_sum``; its result is the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar, final

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = [
    "STEPS",
    "Bounded",
    "Grid",
    "Noised",
    "NotAdmitted",
    "Released",
    "Summed",
    "admit",
    "bound",
    "bound_with_matrix",
    "gather",
    "joint_norms",
    "leaving",
    "plain_sum",
]

T = TypeVar("T")
U = TypeVar("U")
V_co = TypeVar("V_co", covariant=True)


@final
class _Seal:
    """Required to make or open a private value; only the modules of the steps above import it."""


_SEAL: Final = _Seal()


@final
class Bounded:
    """Integer vectors of b clients, (b, D), each of ℓ2 norm at most ``grid.steps``.

    One device holds a stack of one; the simulation stacks them all. It leaves a client only as
    part of a sum.
    """

    __slots__ = ("_factors", "_rows", "grid")

    def __init__(
        self, rows: IntArray, grid: Grid, seal: _Seal, factors: FloatArray | None = None
    ) -> None:
        self._rows = rows
        self._factors = factors  # (b, n, r) whole numbers: FᵀF is the rest of a vector
        self.grid = grid

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, seal: _Seal) -> IntArray:
        """The integer rows, whole."""
        if self._factors is None:
            return self._rows
        products = np.swapaxes(self._factors, -1, -2) @ self._factors
        return np.concatenate([self._rows, _upper(products)], axis=1)

    def vectors(self, seal: _Seal) -> IntArray:
        """The integer rows without the triangles of matrices."""
        return self._rows

    def factors(self, seal: _Seal) -> FloatArray | None:
        """(b n, r) the factors of all rows' matrices, concatenated; None without matrices."""
        return None if self._factors is None else self._factors.reshape(-1, self._factors.shape[-1])


def _upper(matrices: FloatArray) -> IntArray:
    """(..., r (r + 1) / 2) the upper triangles of whole-numbered matrices (..., r, r)."""
    flat = matrices.reshape(*matrices.shape[:-2], -1)
    return flat.take(_triangle(matrices.shape[-1]), axis=-1).astype(np.int64)


@lru_cache(maxsize=4)
def _triangle(dimension: int) -> IntArray:
    """Indices of the upper triangle in the flattened matrix."""
    return np.ravel_multi_index(np.triu_indices(dimension), (dimension, dimension))


@final
class Summed:
    """The sum over clients, (D,), before noise. Opaque: only the mechanism opens it.

    Adding or zeroing any one client moves it by at most ``grid.steps`` in ℓ2 norm.
    """

    __slots__ = ("_total", "grid")

    def __init__(self, total: IntArray, grid: Grid, seal: _Seal) -> None:
        self._total = total
        self.grid = grid

    def total(self, seal: _Seal) -> IntArray:
        """The integer total, for the mechanism."""
        return self._total


@final
class Noised:
    """A sum over clients, (D,), with the clients' noise in it. Opaque until it is charged.

    sigma: the noise multiplier that is left if as many survivors as the terms allow collude: the
    most that a charge may claim. multiplier: that of all noise in it, for reading the result.
    Both depend on the terms and the number of survivors only, so they are public.
    """

    __slots__ = ("_total", "grid", "multiplier", "sigma", "survivors")

    def __init__(
        self,
        total: IntArray,
        grid: Grid,
        sigma: float,
        multiplier: float,
        survivors: tuple[int, ...],
        seal: _Seal,
    ) -> None:
        self._total = total
        self.grid = grid
        self.sigma = sigma
        self.multiplier = multiplier
        self.survivors = survivors

    def total(self, seal: _Seal) -> IntArray:
        """The integer total, for the mechanism."""
        return self._total


@final
class Released(Generic[V_co]):
    """A value whose cost is in a ledger; whatever is computed from it costs nothing more."""

    __slots__ = ("value",)

    def __init__(self, value: V_co, seal: _Seal) -> None:
        self.value = value

    def map(self, function: Callable[[V_co], U]) -> Released[U]:
        """Post-processing: ``function`` may use public things and other released values only."""
        return Released(function(self.value), _SEAL)


def gather(released: Iterable[Released[T]]) -> Released[tuple[T, ...]]:
    """Several released values as one; of none at all, the empty tuple, which costs nothing."""
    return Released(tuple(each.value for each in released), _SEAL)


# -- raw -> Bounded: the integer grid --------------------------------------------------------------

STEPS: Final = 2**20
"""Grid steps in one clipping bound: fine enough that any useful σ is at least 2¹² steps."""

_EXACT: Final = 2**52
"""Steps: up to here sums are exact in 64-bit integers and in doubles, with room for the noise."""
_INSIDE: Final = 1 - 2**-9
"""Factors of a matrix are scaled by this before they are rounded to the nearest step, so that few
matrices exceed the bound afterwards. Truncation instead would shrink all small entries."""


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
        """Steps: the largest norm that one contribution may have."""
        return self.steps // self.share

    @property
    def most_clients(self) -> int:
        """The most clients whose sum is exact whatever they send: 2³² on the default grid."""
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
    bad = np.flatnonzero(~(np.isfinite(most) & np.isfinite(least)))  # a NaN is the maximum
    if bad.size:
        raise ValueError(f"vectors: the contribution of client {bad[0]} is not finite")
    # Divide by the largest entry first: squares of values near 1e308 would overflow.
    largest = np.maximum(most, -least)[:, None]
    scaled = np.divide(vectors, np.where(largest > 0, largest, 1.0), out=vectors)  # a copy by now
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

    vectors: (b, D); factors: (b, n, r) F of each client, padded with rows of zeros. F is what is
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
    vectors = vectors * steps[:, None]
    np.trunc(vectors, out=vectors)
    factors = factors * (_INSIDE * np.sqrt(steps))[:, None, None]
    np.rint(factors, out=factors)
    # Where steps are no multiple of the share, a vector alone can be a fraction of a step too long.
    squared = np.einsum("ij,ij->i", vectors, vectors)
    rows = _clip_integers(vectors.astype(np.int64), squared, grid.most)
    vectors = rows.astype(np.float64)
    while (over := _squares(vectors, factors) > grid.most**2).any():
        factors[over] = np.trunc(factors[over] * _INSIDE)
    return Bounded(rows, grid, _SEAL, factors)


def joint_norms(vectors: FloatArray, factors: FloatArray) -> FloatArray:
    """(b,) the ℓ2 norms of vectors (b, D) with the upper triangles of FᵀF of factors (b, n, r)."""
    norms: FloatArray = np.sqrt(_squares(vectors, factors))
    return norms


def _squares(vectors: FloatArray, factors: FloatArray) -> FloatArray:
    """(b,) squared norms ‖v‖² + (‖FᵀF‖² + ‖diag FᵀF‖²) / 2, where ‖FᵀF‖ = ‖FFᵀ‖.

    For whole numbers within a bound all sums are exact.
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


# -- Bounded -> Summed -----------------------------------------------------------------------------


def leaving(bounded: Bounded) -> IntArray:
    """(b, D) what a device sends into a sum whose aggregator may see single vectors."""
    return bounded.rows(_SEAL)


def plain_sum(contributions: Iterable[Bounded]) -> Summed:
    """Σ_i of all rows: exact in integers, so neither order nor batching can matter.

    Contributions are taken one after another and not kept, so memory does not grow with them.

    Guarantee: zeroing one unit's row moves the sum by at most ``grid.steps`` in ℓ2 norm.
    """
    grid, total, count = None, np.zeros(0, dtype=np.int64), 0
    matrices = _MatrixSum(None)
    for each in contributions:
        added, factors = each.vectors(_SEAL).sum(axis=0, dtype=np.int64), each.factors(_SEAL)
        if grid is None:
            grid, total, matrices = each.grid, np.zeros_like(added), _MatrixSum(factors)
        if each.grid != grid:
            raise ValueError("contributions must all be on the same grid")
        # A row of width one would be broadcast to every coordinate, far beyond its bound.
        if len(added) != len(total) or not matrices.fits(factors):
            raise ValueError("contributions must have the same number of coordinates")
        count += len(each)
        # Decided by the count, never by the sum: an error that depends on the sum would leak it.
        if count > grid.most_clients:
            raise ValueError(
                f"contributions: this grid allows sums of at most {grid.most_clients} clients"
            )
        total += added
        matrices.add(factors)
    if grid is None:
        raise ValueError("contributions must not be empty")
    return Summed(np.concatenate([total, matrices.total()]), grid, _SEAL)


_TOGETHER: Final = 1536
"""Rows of factors that are multiplied together: many, so that few products are computed."""


class _MatrixSum:
    """Σ FᵀF as an upper triangle. Factors are collected and multiplied in one large product.

    Each matrix is bounded, so all partial sums are whole numbers that doubles hold exactly.
    """

    def __init__(self, first: FloatArray | None) -> None:
        self._width = None if first is None else first.shape[1]  # r; None: there are no matrices
        width = self._width or 0
        self._sum = np.zeros(width * (width + 1) // 2, dtype=np.int64)
        self._waiting: list[FloatArray] = []

    def fits(self, factors: FloatArray | None) -> bool:
        """Whether factors are as wide as the first, or absent like them."""
        return self._width == (None if factors is None else factors.shape[1])

    def add(self, factors: FloatArray | None) -> None:
        """Add FᵀF of factors (m, r)."""
        if factors is None:
            return
        self._waiting.append(factors)
        if sum(map(len, self._waiting)) >= _TOGETHER:
            self._multiply()

    def total(self) -> IntArray:
        """(r (r + 1) / 2,) the sum so far."""
        self._multiply()
        return self._sum

    def _multiply(self) -> None:
        if self._waiting:
            stacked = np.concatenate(self._waiting)
            self._sum += _upper(stacked.T @ stacked)
            self._waiting = []

"""The types of private values: raw -> Bounded -> Summed -> Released.

Each arrow exists in one place: ``grid.bound`` clips, ``secure_sum`` adds up, ``mechanism.release``
charges the ledger and adds noise. Across machines the clients add the noise before anybody adds up:
Summed (inside a client) -> Noised (made by ``secure_sum.server`` alone) -> Released, where
``mechanism.publish`` charges the ledger and draws nothing. A function that would noise before the
sum, release something unclipped, or let a server look at an unreleased value does not type-check.

Python cannot forbid a determined caller to forge a value; ``_SEAL`` makes forging visible, and a
test checks that no module but those above asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import numpy as np

from cslr.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from cslr.privacy.grid import Grid

__all__ = ["Bounded", "Noised", "Released", "Summed", "gather"]

T = TypeVar("T")
U = TypeVar("U")
V_co = TypeVar("V_co", covariant=True)


@final
class _Seal:
    """Held by the modules that may lift a value one step."""


_SEAL: Final = _Seal()


@final
class Bounded:
    """Integer vectors of b clients, (b, D), each of ℓ2 norm at most ``grid.steps``.

    One device holds a stack of one; the simulation stacks them all. Never leaves a client but
    into a sum.
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

    def total(self, seal: _Seal) -> IntArray:
        """(D,) the sum of the rows; matrices are summed as one product and not formed.

        Each is bounded, so all sums on the way are whole numbers that doubles hold exactly.
        """
        total: IntArray = self._rows.sum(axis=0, dtype=np.int64)
        if self._factors is None:
            return total
        stacked = self._factors.reshape(-1, self._factors.shape[-1])
        return np.concatenate([total, _upper(stacked.T @ stacked)])


def _upper(matrices: FloatArray) -> IntArray:
    """(..., r (r + 1) / 2) the upper triangles of whole-numbered matrices (..., r, r)."""
    flat = matrices.reshape(*matrices.shape[:-2], -1)
    return flat.take(_triangle(matrices.shape[-1]), axis=-1).astype(np.int64)


@lru_cache(maxsize=4)
def _triangle(dimension: int) -> IntArray:
    """The places of the upper triangle in a flat matrix."""
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
    """A sum over clients, (D,), that carries the clients' noise. Opaque until it is paid for.

    sigma: the noise multiplier that is left if as many survivors as the terms allow collude: the
    most that a charge may claim. multiplier: that of all noise in it, for whoever reads it.
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
    """A value whose cost stands in a ledger; whatever is computed from it is free."""

    __slots__ = ("value",)

    def __init__(self, value: V_co, seal: _Seal) -> None:
        self.value = value

    def map(self, function: Callable[[V_co], U]) -> Released[U]:
        """Post-processing: ``function`` may use public things and other released values only."""
        return Released(function(self.value), _SEAL)


def gather(released: Iterable[Released[T]]) -> Released[tuple[T, ...]]:
    """Several released values as one; of none at all, the empty tuple, which costs nothing."""
    return Released(tuple(each.value for each in released), _SEAL)

"""Proposition 3 by Monte Carlo: unordered lists cannot be aligned without anchors.

python examples/anchorless.py

A client lists K modes in a secret order σ, drawn uniformly from all K!. A server that answers with
the wrong alignment pays c. Four servers are compared:

    symbols   sees K symbols without an order, so always the same input: its best rule is one
              constant answer, here the one that was right most often on earlier orders
    blind     sees signatures at anchors that are all the same point, which say as little
    means     sees each entry's mean in the client's own coordinates, a secret rotation of the
              common ones, and matches means by distance
    anchors   sees signatures at public anchors, which each client has in its own coordinates

The first two are wrong on 1 − 1/K! of all orders, as the proposition says of every server without
side information. ``means`` is just outside its model: distances between modes survive a rotation,
so it may do a little better. A log density does not change if the density and the anchors are
rotated together, so the last one aligns entries of clients that share no coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import binomtest, special_ortho_group

from cslr import Seeds
from cslr.arrays import FloatArray, IntArray
from cslr.numerics.assignment import hungarian
from cslr.numerics.mixture import Gaussians
from cslr.protocol.step2_sign import signatures

__all__ = ["SERVERS", "Barrier", "Share", "barrier", "bound"]

WIDTH: Final = 6
"""Coordinates of the toy space."""
SPREAD: Final = 0.5
"""Standard deviation of a mode."""
EXAMPLES: Final = 20
"""Rows of which a client's candidate is the mean; they determine its sampling error."""


def bound(modes: int, cost: float = 1.0) -> float:
    """c (1 − 1/K!): the least expected error of a server without side information."""
    if modes < 2 or not cost > 0:
        raise ValueError(f"modes must be at least 2 and cost positive: {modes}, {cost}")
    return cost * (1.0 - 1.0 / math.factorial(modes))


@dataclass(frozen=True)
class Share:
    """An expected error by Monte Carlo with an exact (Clopper–Pearson) confidence interval."""

    error: float
    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Whether the interval holds the value."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Barrier:
    """Proposition 3 for K modes."""

    modes: int  # K
    cost: float  # c
    trials: int
    bound: float
    servers: dict[str, Share]


@dataclass(frozen=True, eq=False)
class _World:
    """Clients' orders, and what each client could send."""

    orders: IntArray  # (n, K): entry ℓ of client i is mode orders[i, ℓ]
    lists: Gaussians  # (n, K, r) in each client's own coordinates
    anchors: FloatArray  # (n, m, r) likewise
    prototypes: Gaussians  # (K, r) in the server's
    reference: FloatArray  # (m, r) likewise


def barrier(
    modes: int,
    trials: int,
    anchors: int,
    rng: np.random.Generator,
    cost: float = 1.0,
    confidence: float = 0.95,
) -> Barrier:
    """The error of every server on ``trials`` clients, with ``anchors`` public anchors."""
    least = bound(modes, cost)
    if trials < 1 or anchors < 2:
        raise ValueError(f"trials and anchors must be at least 1 and 2: {trials}, {anchors}")
    seen_before = _orders(modes, trials, rng)
    world = _draw(modes, trials, anchors, rng)
    found = {}
    for name, server in SERVERS.items():
        wrong = (server(world, seen_before) != world.orders).any(axis=1)
        interval = binomtest(int(wrong.sum()), trials).proportion_ci(confidence)
        found[name] = Share(
            cost * float(wrong.mean()), cost * float(interval.low), cost * float(interval.high)
        )
    return Barrier(modes, cost, trials, least, found)


def _orders(modes: int, trials: int, rng: np.random.Generator) -> IntArray:
    """(n, K) orders drawn uniformly from all K!."""
    return rng.permuted(np.tile(np.arange(modes), (trials, 1)), axis=1)


def _draw(modes: int, trials: int, anchors: int, rng: np.random.Generator) -> _World:
    """Modes and anchors in common coordinates, then everything as each client has it."""
    means = rng.standard_normal((modes, WIDTH))
    reference = rng.standard_normal((anchors, WIDTH))
    orders = _orders(modes, trials, rng)
    turns = special_ortho_group(WIDTH, seed=rng).rvs(trials).reshape(trials, WIDTH, WIDTH)
    chance = SPREAD / math.sqrt(EXAMPLES) * rng.standard_normal((trials, modes, WIDTH))
    lists = (means[orders] + chance) @ turns
    return _World(
        orders,
        Gaussians(lists, np.full(lists.shape, SPREAD**2)),
        reference @ turns,
        Gaussians(means, np.full(means.shape, SPREAD**2)),
        reference,
    )


_Server = Callable[[_World, IntArray], IntArray]
"""What clients send, and orders of earlier clients -> answers (n, K)."""


def _by_symbols(world: _World, seen_before: IntArray) -> IntArray:
    """The order that occurred most often among earlier clients."""
    orders, counts = np.unique(seen_before, axis=0, return_counts=True)
    return np.broadcast_to(orders[counts.argmax()], world.orders.shape)


def _by_means(world: _World, seen_before: IntArray) -> IntArray:
    return _aligned(world.lists.mean, world.prototypes.mean)


def _by_blind_anchors(world: _World, seen_before: IntArray) -> IntArray:
    one, all_ = world.reference[:1], world.anchors[:, :1]
    m = len(world.reference)
    return _aligned(
        signatures(world.lists, np.repeat(all_, m, axis=1)),
        signatures(world.prototypes, np.repeat(one, m, axis=0)),
    )


def _by_anchors(world: _World, seen_before: IntArray) -> IntArray:
    return _aligned(
        signatures(world.lists, world.anchors), signatures(world.prototypes, world.reference)
    )


SERVERS: Final[dict[str, _Server]] = {
    "symbols": _by_symbols,
    "blind": _by_blind_anchors,
    "means": _by_means,
    "anchors": _by_anchors,
}


def _aligned(seen: FloatArray, known: FloatArray) -> IntArray:
    """(n, K) the alignment of entries (n, K, p) with modes (K, p) of least squared distance."""
    cost = np.square(seen[:, :, None] - known[None, None]).sum(axis=-1)
    return hungarian(cost)


MEANING = {
    "symbols": "the best constant answer",
    "blind": "signatures at anchors that all lie in one place",
    "means": "means, each client in its own coordinates",
    "anchors": "signatures at 30 public anchors",
}


def main() -> None:
    print("Expected error of a server that aligns lists, c = 1, with 95 % confidence interval")
    for modes in (2, 3, 4):
        found = barrier(modes, trials=10_000, anchors=30, rng=Seeds(1).at("modes", modes))
        print(f"\nK = {modes}: without side information at least 1 - 1/K! = {found.bound:.4f}")
        for name, share in found.servers.items():
            interval = f"[{share.low:.4f}, {share.high:.4f}]"
            print(f"  {share.error:.4f} {interval}  {MEANING[name]}")


if __name__ == "__main__":
    main()

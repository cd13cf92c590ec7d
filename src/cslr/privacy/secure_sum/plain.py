"""From bounded contributions to their sum, and to nothing else.

In simulation the secure sum is ideal: it adds up and forgets the rows. Over a network the same
arrow is a secure-aggregation protocol; its result is the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cslr.arrays import IntArray
from cslr.privacy.values import _SEAL, Bounded, Summed

__all__ = ["leaving", "plain_sum"]


def leaving(own: Bounded) -> IntArray:
    """(b, D) what a device sends into a sum where whoever adds up may see single vectors."""
    return own.rows(_SEAL)


def plain_sum(contributions: Sequence[Bounded]) -> Summed:
    """Σ_i of all rows: exact in integers, so neither order nor batching can matter.

    Guarantee: zeroing one client's row moves the sum by at most ``grid.steps`` in ℓ2 norm.
    """
    if not contributions:
        raise ValueError("contributions must not be empty")
    grid = contributions[0].grid
    if any(each.grid != grid for each in contributions):
        raise ValueError("contributions must lie on one grid")
    rows = [each.rows(_SEAL) for each in contributions]
    # A row of width one would be broadcast to every coordinate, far beyond its bound.
    if any(each.shape[1] != rows[0].shape[1] for each in rows):
        raise ValueError("contributions must have the same number of coordinates")
    # Told by the count, never by the sum: to stop at a sum would say something about it.
    if sum(len(each) for each in rows) > grid.most_clients:
        raise ValueError(f"a sum is exact for at most {grid.most_clients} clients on this grid")
    total = np.zeros(rows[0].shape[1], dtype=np.int64)
    for each in rows:
        total += each.sum(axis=0, dtype=np.int64)
    return Summed(total, grid, _SEAL)

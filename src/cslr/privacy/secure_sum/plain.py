"""From bounded contributions to their sum, and to nothing else.

In simulation the secure sum is ideal: it adds up and forgets the rows. Over a network the same
arrow is a secure-aggregation protocol; its result is the same integers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cslr.arrays import IntArray
from cslr.privacy.values import _SEAL, Bounded, Summed

__all__ = ["leaving", "plain_sum"]


def leaving(bounded: Bounded) -> IntArray:
    """(b, D) what a device sends into a sum where whoever adds up may see single vectors."""
    return bounded.rows(_SEAL)


def plain_sum(contributions: Iterable[Bounded]) -> Summed:
    """Σ_i of all rows: exact in integers, so neither order nor batching can matter.

    Contributions are taken one after another and not kept, so memory does not grow with them.

    Guarantee: zeroing one unit's row moves the sum by at most ``grid.steps`` in ℓ2 norm.
    """
    grid, total, count = None, np.zeros(0, dtype=np.int64), 0
    for each in contributions:
        added = each.total(_SEAL)
        if grid is None:
            grid, total = each.grid, np.zeros_like(added)
        if each.grid != grid:
            raise ValueError("contributions must all be on the same grid")
        # A row of width one would be broadcast to every coordinate, far beyond its bound.
        if len(added) != len(total):
            raise ValueError("contributions must have the same number of coordinates")
        count += len(each)
        # Decided by the count, never by the sum: an error that depends on the sum would leak it.
        if count > grid.most_clients:
            raise ValueError(
                f"contributions: this grid allows sums of at most {grid.most_clients} clients"
            )
        total += added
    if grid is None:
        raise ValueError("contributions must not be empty")
    return Summed(total, grid, _SEAL)

"""Functions of vectors, applied to each vector by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["row_by_row"]


def row_by_row(function: Callable[[FloatArray], FloatArray], z: FloatArray) -> FloatArray:
    """``function`` of each row of z (..., a), as (..., b).

    Guarantee: a row of the result depends on that row alone, bit for bit. A product of all rows at
    once does not give that: its kernels round a row differently beside other rows.
    """
    rows = z.reshape(-1, z.shape[-1])
    if not len(rows):
        return function(z)
    changed = np.concatenate([function(row[None]) for row in rows])
    return changed.reshape(*z.shape[:-1], changed.shape[-1])

"""What is kept of a release between its charge and its result, to finish it after a crash.

PRIVATE: an integer sum without noise. It lies in the file of the noise key, which is as telling,
and goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.arrays import IntArray
from cslr.privacy.grid import Grid

__all__ = ["Unfinished"]


@dataclass(frozen=True, eq=False)
class Unfinished:
    """Integers that are about to be noised, or noised by the clients and about to be published."""

    total: IntArray
    """(D,) a sum, or (b, D) the vectors of b clients."""
    grid: Grid
    senders: IntArray | None = None
    """(b,) whose vectors these are, where they are sent by name."""
    noised: bool = False
    """Whether the clients' noise is in it already, so that none is to be drawn."""

    def as_bytes(self) -> bytes:
        """Everything that is needed to go on."""
        arrays = {
            "total": np.ascontiguousarray(self.total),
            "bound": np.array([self.grid.bound]),
            "steps": np.array([self.grid.steps]),
        }
        if self.senders is not None:
            arrays["senders"] = self.senders
        if self.noised:
            arrays["noised"] = np.ones(1, dtype=np.int64)
        return save(arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self | None:
        """The inverse of ``as_bytes``; None if the bytes are damaged."""
        try:
            arrays = load(content)
            grid = Grid(float(arrays["bound"][0]), int(arrays["steps"][0]))
            return cls(arrays["total"], grid, arrays.get("senders"), "noised" in arrays)
        except (SafetensorError, LookupError, ValueError):
            return None

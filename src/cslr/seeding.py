"""Random streams addressed by name, so that the order of calls never matters.

>>> int(Seeds(13).at("task", 2, "head").integers(100))
54

These generators drive simulations: partitions, initial heads, replay samples. Noise and
participation coins that protect clients come from ``cslr.privacy.mechanism`` and the operating
system.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

__all__ = ["Seeds"]


@dataclass(frozen=True)
class Seeds:
    """A seed and a path of names; ``at`` extends the path and opens the stream found there."""

    seed: int
    path: tuple[str | int, ...] = ()

    def under(self, *path: str | int) -> Seeds:
        """The same seed, further down the path."""
        return Seeds(self.seed, self.path + path)

    def digest(self, *path: str | int) -> bytes:
        """32 bytes that depend on the seed and the whole path, and on nothing else."""
        names = "\x1f".join(_spelled(name) for name in (*self.path, *path))
        return hashlib.sha256(f"cslr/{self.seed}\x1e{names}".encode()).digest()

    def at(self, *path: str | int) -> np.random.Generator:
        """A fresh generator for this path: the same path always gives the same stream."""
        return np.random.Generator(np.random.PCG64(int.from_bytes(self.digest(*path), "little")))


def _spelled(name: str | int) -> str:
    """3 and "3" are different names; 3 and NumPy's 3 are the same."""
    return f"str:{name}" if isinstance(name, str) else f"int:{int(name)}"

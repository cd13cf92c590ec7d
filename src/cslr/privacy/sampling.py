"""Poisson sampling: which clients participate in a release, by an independent coin per client.

Only such (Poisson) coins earn the amplification that the ``public`` adversary is charged with;
a cohort of fixed size does not, and coins that can be recomputed from a published seed earn
nothing. Where privacy is enforced the stream is keyed by the operating system and forgotten.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import BoolArray
from cslr.privacy.noise import KeyStream

__all__ = ["poisson_cohort"]


def poisson_cohort(clients: int, q: float, coins: KeyStream) -> BoolArray:
    """(clients,) True where the client participates; all of them at q = 1."""
    if not 0 < q <= 1:
        raise ValueError(f"q must lie in (0, 1], not {q}")
    if q == 1:
        return np.ones(clients, dtype=np.bool_)
    return coins.words(clients) < np.uint64(int(q * 2**64))

"""Under which terms a client's integers were made: a digest that its signature covers.

Integers on a grid mean nothing by themselves: times S they are a contribution, and to which
coordinates they belong the public space says. A message that does not name both could be counted
under another bound than its sender clipped to, or in another space.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from cslr.federation.wire.codec import TERMS_BYTES
from cslr.privacy.values import Grid

__all__ = ["NO_TERMS", "terms_of"]

NO_TERMS: Final = bytes(TERMS_BYTES)
"""Of a join, whose numbers are a key."""


def terms_of(grid: Grid, space: str, sigma: float | None = None) -> bytes:
    """(32 bytes) SHA-256 of bound S, steps, the sender's own noise and the public space's digest.

    space: the digest of what else every client was told, in whatever form the federation uses.
    sigma: the noise multiplier of a list, which its sender adds; None: the sender adds none.
    """
    noise = None if sigma is None else float(sigma).hex()
    said = ["cslr/terms/1", float(grid.bound).hex(), grid.steps, noise, space]
    return hashlib.sha256(json.dumps(said).encode()).digest()

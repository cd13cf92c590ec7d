"""The terms under which a client's integers were made: a digest that its signature covers.

Integers on a grid have a meaning only with the bound S, which scales them, and the public space,
which defines their coordinates. A message that does not name both could be counted under another
bound than its sender clipped to, or in another space.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from cslr.federation.wire.codec import TERMS_BYTES
from cslr.privacy.values import Grid

__all__ = ["NO_TERMS", "terms_of"]

NO_TERMS: Final = bytes(TERMS_BYTES)
"""The terms of a join, whose body is a key."""


def terms_of(grid: Grid, space: str, sigma: float | None = None) -> bytes:
    """(32 bytes) SHA-256 of bound S, steps, the sender's own noise and the public space's digest.

    space: the digest of the public space and of what else clients use, in any form.
    sigma: the noise multiplier of a list, which its sender adds; None: the sender adds none.
    """
    noise = None if sigma is None else float(sigma).hex()
    said = ["cslr/terms/1", float(grid.bound).hex(), grid.steps, noise, space]
    return hashlib.sha256(json.dumps(said).encode()).digest()

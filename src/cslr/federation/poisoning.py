"""The worst that bounded clients can send, for studies of poisoning.

Where single vectors are seen, an over-long one is refused. Colluding clients then harm a sum most
if all of them send the largest vector allowed, in the direction opposite to the honest sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cslr.privacy.values import Bounded, admit, leaving

__all__ = ["opposed"]


def opposed(honest: Sequence[Bounded], count: int) -> Bounded:
    """(count, D) vectors of the greatest norm allowed, against the sum of the honest ones.

    It uses the honest sum, which no real attacker is shown, so none does better against that sum.
    """
    grid = honest[0].grid
    total = np.sum([leaving(each).sum(axis=0) for each in honest], axis=0).astype(np.float64)
    norm = float(np.linalg.norm(total))
    against = -total / norm * grid.steps * (1 - 1e-12) if norm else total
    row = np.trunc(against).astype(np.int64)  # toward zero, so it is never too long
    return admit(np.tile(row, (count, 1)), grid)

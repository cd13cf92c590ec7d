"""Selection instead of averaging: clients vote among public candidates (paper, Section 4.5).

A stable selection needs noise on the votes only, not on the selected candidate (Ghazi, Kumar and
Manurangsi 2021). The candidates are public; a mode's mean is the candidate with most votes, and the
votes replace the offsets in the clipped vector.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["elected", "votes"]


def votes(mean: FloatArray, candidates: FloatArray) -> FloatArray:
    """(b, L, V) one vote of each list entry (b, L, r), for the nearest candidate (V, r)."""
    squares = np.square(candidates).sum(axis=-1)
    nearest = (squares - 2.0 * mean @ candidates.T).argmin(axis=-1)
    ballots: FloatArray = np.eye(len(candidates))[nearest]
    return ballots


def elected(ballots: FloatArray, candidates: FloatArray, groups: IntArray) -> FloatArray:
    """(K, r) the winner of each mode's noisy votes (K, V), ties to the lower.

    candidates: (G, V, r); groups: (K,) the group of each mode.
    """
    winners: FloatArray = candidates[groups, ballots.argmax(axis=-1)]
    return winners

"""CSLR with another matcher: the paper's ablations of canonicalisation.

Each differs from CSLR in step 3 only, so with J = 1, where nothing is matched, all give identical
results.

Privacy: that of CSLR.
"""

from __future__ import annotations

from typing import Final

from cslr.methods.cslr import replay_method

__all__ = ["HUNGARIAN", "NEAREST_MEAN", "NO_ANCHOR", "OPTIMAL_TRANSPORT"]

NO_ANCHOR: Final = replay_method("random ids", {"replay.matcher": "random"})
NEAREST_MEAN: Final = replay_method("nearest means", {"replay.matcher": "nearest-mean"})
HUNGARIAN: Final = replay_method("Hungarian on means", {"replay.matcher": "hungarian"})
OPTIMAL_TRANSPORT: Final = replay_method(
    "entropic transport", {"replay.matcher": "optimal-transport"}
)

"""dp-class-stats: one Gaussian per label, no list, no matching; the strongest simple release.

It is CSLR with J = 1 and L = 1, so the difference to CSLR is the effect of lists and anchors.

Privacy: end to end, since its head is trained on the release alone.
"""

from __future__ import annotations

from typing import Final

from cslr.methods.cslr import replay_method

__all__ = ["METHOD"]

METHOD: Final = replay_method(
    "one Gaussian per label",
    settings={"replay.release": "sum", "replay.sub_modes": 1, "paper.list_size": 1},
)

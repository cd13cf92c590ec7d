"""A head held to the zero-shot rule as far as noise leaves a replay unknown.

What label texts say costs nothing, so a head must not end below it. Where a release is mostly noise
its head is the zero-shot rule, and the less noise there is, the less the rule counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray
from cslr.protocol.head import Head
from cslr.protocol.step4_aggregate.estimate import Replay

__all__ = ["beside_texts", "share_of_texts"]

TRUST_HALF: Final = 0.12
"""Trust in released modes, times their clarity, at which the zero-shot rule counts half."""
STEEP: Final = 3
"""How fast it counts less with more of it."""


def share_of_texts(replay: Replay) -> float:
    """How much the zero-shot rule counts: 1 where no mode is known, nearly 0 where all are."""
    trust = float(replay.trust[replay.known].mean()) if replay.known.any() else 0.0
    return 1.0 / (1.0 + (trust * replay.clarity / TRUST_HALF) ** STEEP)


def beside_texts(
    head: Head, texts: FloatArray, z: FloatArray, known: BoolArray, share: float
) -> Head:
    """``head`` with a share of the zero-shot rule's scores, both as wide on samples z (n, d).

    texts: (c, d) embedded label texts. known: (c,) the labels whose differences count. share: from
    0, the head as it is, to 1, the zero-shot rule.
    """
    mine, free = head.scores(z)[:, known], (z @ texts.T)[:, known]
    wide = [np.square(each - each.mean(axis=1, keepdims=True)).mean() for each in (mine, free)]
    scale = share * np.sqrt(wide[0] / max(wide[1], 1e-12))
    rule, says = texts.T.astype(np.float32), scale * np.eye(len(texts))
    return Head(
        np.concatenate([head.weights1, rule, -rule], axis=1),
        np.concatenate([head.bias1, np.zeros(2 * len(texts), dtype=head.bias1.dtype)]),
        np.concatenate([(1 - share) * head.weights2, says, -says]).astype(head.weights2.dtype),
        ((1 - share) * head.bias2).astype(head.bias2.dtype),
    )

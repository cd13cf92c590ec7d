"""A head held to what is free as far as noise leaves a replay unknown.

Label texts and public sentences cost nothing, so a head must not end below what they say. Where a
release is mostly noise its head is their rule, and the less noise there is, the less it counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray
from cslr.protocol.head import Head
from cslr.protocol.step4_aggregate.estimate import Replay

__all__ = [
    "linear_head",
    "mixed",
    "rule_of",
    "share_of_free",
    "share_of_zero_shot",
    "zero_shot_head",
]

TRUST_HALF: Final = 0.14
"""Trust in released modes, times their clarity, at which the free rule counts half."""
STEEP: Final = 3
"""How fast it counts less with more of it."""
CLEAR_HALF: Final = 1.4
"""How clearly sentences are about their labels where zero-shot counts half of the free rule."""


def share_of_free(replay: Replay) -> float:
    """How much the free rule counts: 1 where no mode is known, nearly 0 where all are."""
    trust = float(replay.trust[replay.known].mean()) if replay.known.any() else 0.0
    return 1.0 / (1.0 + (trust * replay.clarity / TRUST_HALF) ** STEEP)


def share_of_zero_shot(clearness: float) -> float:
    """How much zero-shot counts in the free rule; the rule of the label prior is the rest.

    clearness: of the sentences that the prior is made from, see ``public_space.clearness``. Where
    they are hardly about their labels, a label text alone is the better rule.
    """
    return 1.0 / (1.0 + (clearness / CLEAR_HALF) ** 4)


def zero_shot_head(texts: FloatArray) -> Head:
    """The similarity to each of the label texts (c, d), as a head."""
    return linear_head(texts, np.zeros(len(texts)))


def linear_head(weights: FloatArray, bias: FloatArray) -> Head:
    """The rule z Wᵀ + b of weights (c, d) and bias (c,), as a head: u = relu(u) − relu(−u)."""
    rule, says = weights.T.astype(np.float32), np.eye(len(weights), dtype=np.float32)
    return Head(
        np.concatenate([rule, -rule], axis=1),
        np.zeros(2 * len(weights), dtype=np.float32),
        np.concatenate([says, -says]),
        bias.astype(np.float32),
    )


def rule_of(head: Head) -> tuple[FloatArray, FloatArray]:
    """W (c, d) and b (c,) of a head that is linear.

    Its hidden units come in pairs u, −u whose outputs have opposite signs, or are silent.
    """
    says = head.weights2.astype(np.float64) / 2
    return (head.weights1 @ says).T, head.bias1 @ says + head.bias2


def mixed(head: Head, other: Head, z: FloatArray, known: BoolArray, share: float) -> Head:
    """``head`` with a share of the scores of ``other``, both as wide on samples z (n, d).

    known: (c,) the labels whose differences count. share: from 0, the head as it is, to 1, the
    other.
    """
    scores = [each.scores(z)[:, known] for each in (head, other)]
    wide = [np.square(each - each.mean(axis=1, keepdims=True)).mean() for each in scores]
    scale = share * np.sqrt(wide[0] / max(wide[1], 1e-12))
    kind = head.weights2.dtype
    return Head(
        np.concatenate([head.weights1, other.weights1], axis=1),
        np.concatenate([head.bias1, other.bias1]),
        np.concatenate([(1 - share) * head.weights2, scale * other.weights2]).astype(kind),
        ((1 - share) * head.bias2 + scale * other.bias2).astype(kind),
    )

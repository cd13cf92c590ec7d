"""BIO tags: their names, and the best valid sequence.

With labels O, 1, 2, ... the tags are O, B-1, I-1, B-2, I-2, ...: tag 2i − 1 begins an entity of
label i, tag 2i continues it. A sequence is valid if I-i occurs only after B-i or I-i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray

__all__ = ["decode", "tag_names", "transitions"]

SPLIT: Final = -4.0
"""Log odds that a new entity begins right after another of its type: rare in running text."""


def tag_names(labels: Sequence[str]) -> list[str]:
    """The tags' names; ``labels`` begins with O."""
    return ["O", *[f"{edge}-{label}" for label in labels[1:] for edge in ("B", "I")]]


def transitions(tags: int) -> FloatArray:
    """(1 + tags, tags) log weight of each tag (column) after another (row); row 0 is the start.

    −inf for an I- tag after the start, after O or after another type.
    """
    label = (np.arange(tags) + 1) // 2
    begins = np.arange(tags) % 2 == 1
    inside = (np.arange(tags) % 2 == 0) & (label > 0)
    after = np.concatenate([[0], label])[:, None]  # the start counts as O
    weight = np.zeros((1 + tags, tags))
    weight[begins & (after == label)] = SPLIT
    weight[inside & (after != label)] = -np.inf
    return weight


def decode(scores: FloatArray, starts: IntArray) -> IntArray:
    """The best valid tag sequence of each sentence, by Viterbi.

    scores: (m, tags) for the m words of n sentences, −inf where a tag is not possible. starts:
    (n + 1,); sentence i has the words starts[i] .. starts[i + 1]. Returns (m,) tags.
    """
    lengths = np.diff(starts)
    longest, n, tags = int(lengths.max(initial=0)), len(lengths), scores.shape[1]
    allowed = transitions(tags)
    padded, real = _padded(scores, starts, longest)
    if not longest:
        return np.zeros(0, dtype=np.int64)
    best = allowed[0] + padded[:, 0]
    back = np.zeros((n, longest, tags), dtype=np.int64)
    for position in range(1, longest):
        paths = best[:, :, None] + allowed[1:]  # (n, from, to)
        back[:, position] = paths.argmax(axis=1)
        reached = paths.max(axis=1) + padded[:, position]
        best = np.where(real[:, position, None], reached, best)
    chosen = np.zeros((n, longest), dtype=np.int64)
    current = best.argmax(axis=1)
    for position in range(longest - 1, -1, -1):
        chosen[:, position] = current
        before = back[np.arange(n), position, current]
        current = np.where(real[:, position], before, current)
    decoded: IntArray = chosen[real]
    return decoded


def _padded(scores: FloatArray, starts: IntArray, longest: int) -> tuple[FloatArray, BoolArray]:
    """Words (m, tags) as (n, longest, tags), and which of them are real."""
    real = np.arange(longest) < np.diff(starts)[:, None]
    padded = np.zeros((*real.shape, scores.shape[1]))
    padded[real] = scores
    return padded, real

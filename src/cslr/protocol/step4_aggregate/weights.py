"""What released weights say: how much was averaged, and how often labels are met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.protocol.public_space import Modes

if TYPE_CHECKING:
    from cslr.protocol.step4_aggregate.estimate import TaskRelease

__all__ = ["counted_labels", "total_weight"]

SURE: Final = 2.0
"""Times their noise that differences of weights have to be to count as differences of labels."""


def total_weight(release: TaskRelease) -> FloatArray:
    """Σ w of each mode: the noisy sum and the plan's expectation, each by its precision."""
    noise = release.noise.weight**2
    doubt = (release.weight_unsure * release.expected_weight) ** 2
    steadied = (release.sums.weight * doubt + release.expected_weight * noise) / (doubt + noise)
    total: FloatArray = np.maximum(steadied, 0.02 * release.expected_weight)
    return total


def counted_labels(releases: Sequence[TaskRelease], modes: Modes) -> float:
    """How far the weights of a task's labels differ beyond ``SURE`` times what noise makes of it.

    Noise must not become a belief about how often labels are met: it would answer with the label
    that seems frequent.
    """
    seen = noise = 0.0
    for release in releases:
        labels = modes.labels[release.modes]
        weight = np.bincount(labels, weights=release.sums.weight)[np.unique(labels)]
        seen += float(np.square(weight - weight.mean()).sum())
        noise += release.noise.weight**2 * len(labels) * (1 - 1 / len(weight))
    return max(0.0, 1.0 - SURE * noise / seen) if seen > 0 else 1.0

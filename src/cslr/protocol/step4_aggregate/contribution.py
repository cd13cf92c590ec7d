"""The client's half: one vector for all modes and blocks, clipped once.

For each mode k the client adds up, over the candidates it matched to k,

    weight   w_k                 how much it has to say, at most 1 over all modes of a label
    offset   w_k (μ_k − p_k)     relative to the public prototype p_k
    second   w_k (M_k − M_pk)    the same for second moments, as a share of the public spread
    target   w_k (y_k − u_k)     the mean target beyond what is usual for the mode's label

each block times a public scale. The vector of all of them is the unit of clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.numerics.gaussian import Gaussians, moments
from cslr.numerics.mixture import Mixture
from cslr.types import FloatArray, IntArray

__all__ = ["FULL_WEIGHT", "Layout", "Statistics", "joined", "mode_statistics"]

FULL_WEIGHT: Final = 8
"""Examples from which on a client's label counts fully: w = min(n, 8) / 8."""


@dataclass(frozen=True)
class Statistics:
    """Sums over candidates or clients, with any leading axes."""

    weight: FloatArray  # (..., K)
    offset: FloatArray  # (..., K, r)
    second: FloatArray  # (..., K, s), s = 1 (shared) or r (diagonal)
    target: FloatArray  # (..., K, outputs), or (..., K, 0) where the label settles the target


@dataclass(frozen=True)
class Layout:
    """Where each number stands in a contribution, and its public scale."""

    modes: int  # K
    dimension: int  # r
    seconds: int  # s
    targets: int  # outputs, or 0
    weight_scale: float
    second_scale: float
    target_scale: float

    @property
    def size(self) -> int:
        """D: coordinates of one contribution."""
        return self.modes * self.width

    @property
    def width(self) -> int:
        """Coordinates of one mode."""
        return 1 + self.dimension + self.seconds + self.targets

    def pack(self, statistics: Statistics) -> FloatArray:
        """Statistics (b, K, ·) -> vectors (b, D)."""
        blocks = np.concatenate(
            [
                statistics.weight[..., None] * self.weight_scale,
                statistics.offset,
                statistics.second * self.second_scale,
                statistics.target * self.target_scale,
            ],
            axis=-1,
        )
        return blocks.reshape(*blocks.shape[:-2], self.size)

    def unpack(self, vector: FloatArray) -> Statistics:
        """The inverse of ``pack``."""
        blocks = vector.reshape(*vector.shape[:-1], self.modes, self.width)
        ends = np.cumsum([1, self.dimension, self.seconds])
        weight, offset, second, target = np.split(blocks, ends, axis=-1)
        return Statistics(
            weight[..., 0] / self.weight_scale,
            offset,
            second / self.second_scale,
            target / self.target_scale,
        )


def mode_statistics(
    lists: Mixture,
    ids: IntArray,
    counts: IntArray,
    prototypes: Gaussians,
    spread: FloatArray,
    seconds: int,
    weight_floor: float,
    targets: FloatArray,
) -> Statistics:
    """Statistics (b, J, ·) of one label's candidates (b, L, r) matched to prototypes (J, r).

    counts: (b,) examples of each client, which count fully from FULL_WEIGHT on. targets: (b, L, o)
    the candidates' mean targets beyond the usual one, o = 0 where they are not sent. A candidate
    lighter than ``weight_floor`` (π_min) counts half: it is down-weighted, never dropped.
    """
    modes = prototypes.mean.shape[-2]
    amount = np.minimum(counts, FULL_WEIGHT) / FULL_WEIGHT
    weight = lists.weights * np.where(lists.weights < weight_floor, 0.5, 1.0) * amount[:, None]
    to_mode = weight[..., None] * (ids[..., None] == np.arange(modes))  # (b, L, J)
    mean, second = moments(lists.gaussians)
    prototype_mean, prototype_second = moments(prototypes)
    total = to_mode.sum(axis=-2)
    gathered = np.swapaxes(to_mode, -1, -2)  # (b, J, L)
    offset = gathered @ mean - total[..., None] * prototype_mean
    excess = (gathered @ second - total[..., None] * prototype_second) / spread
    if seconds == 1:  # shared: the public shape, and one number for its scale
        excess = excess.mean(axis=-1, keepdims=True)
    return Statistics(total, offset, excess, gathered @ targets)


def joined(parts: Sequence[Statistics]) -> Statistics:
    """The modes of several labels side by side."""
    return Statistics(
        np.concatenate([part.weight for part in parts], axis=-1),
        np.concatenate([part.offset for part in parts], axis=-2),
        np.concatenate([part.second for part in parts], axis=-2),
        np.concatenate([part.target for part in parts], axis=-2),
    )

"""How far noise lets the means of modes be known, and be told apart."""

from __future__ import annotations

from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step4_aggregate.mixed_model import USUAL

__all__ = ["clarity", "trust_in_means"]

MOST_MODES: Final = 256
"""Modes whose neighbours are looked for: work stays linear in the number of modes."""


def trust_in_means(variance: FloatArray, space: PublicSpace) -> FloatArray:
    """(K,) share of what a mode usually has of its own that is seen beyond noise ``variance``."""
    own = USUAL["own"] * space.between[: space.dimension]
    trust: FloatArray = (own**2 / (own + variance[:, None])).sum(axis=1) / own.sum()
    return trust


def clarity(mean: FloatArray, variance: FloatArray, labels: IntArray, space: PublicSpace) -> float:
    """How clearly modes differ from the nearest of another label, from 0 to 1: D² / (D² + V).

    mean: (K, r) released modes, variance: (K,) of the noise they were seen with. D is the distance
    in standard deviations of the public shape, V the variance that is left in it. Labels that say
    nearly the same need much less noise than others. 1 where all modes are of one label.
    """
    r = mean.shape[1]
    within, own = np.diagonal(space.shape)[:r], USUAL["own"] * space.between[:r]
    left = (own * variance[:, None] / (own + variance[:, None]) / within).sum(axis=1)  # (K,)
    scaled = mean / np.sqrt(within)
    squares = np.square(scaled).sum(axis=1)
    shares = []
    for mode in np.linspace(0, len(mean) - 1, min(len(mean), MOST_MODES)).astype(int):
        apart = squares + squares[mode] - 2 * scaled @ scaled[mode]
        apart[labels == labels[mode]] = np.inf
        nearest = int(np.argmin(apart))
        if np.isfinite(apart[nearest]):
            shares.append(apart[nearest] / (apart[nearest] + left[mode] + left[nearest]))
    return float(np.mean(shares)) if shares else 1.0

"""Step 2: signatures at the anchors (paper, Section 4.3, Definition 1 and Theorem 2).

s(q) = (log q(a_1), …, log q(a_m)), standardised over the anchors, so that signatures compare
across candidates of different spread and across encoders of different scale.
"""

from __future__ import annotations

import math

import numpy as np

from cslr.numerics.gaussian import Gaussians, log_density
from cslr.types import FloatArray, IntArray

__all__ = ["anchors_needed", "hit_rate", "least_margin", "signatures"]


def signatures(candidates: Gaussians, anchors: FloatArray) -> FloatArray:
    """Signatures (..., L, m) of candidates (..., L, r) at the anchors (m, r).

    Each has mean 0 and standard deviation 1 over the anchors; a candidate that sees no
    difference between anchors has the zero signature.
    """
    raw = np.swapaxes(log_density(candidates, anchors), -1, -2)
    centred = raw - raw.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, keepdims=True)
    # What only rounding tells apart would otherwise be blown up to a signature.
    flat = spread <= 1e-12 * np.abs(raw).max(axis=-1, keepdims=True)
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, spread))


def hit_rate(signed: FloatArray, ids: IntArray, margin: float) -> float:
    """p̂_γ: the share of anchors that tell a pair of different modes apart by at least ``margin``.

    signed: (N, m); ids: (N,). The least share over all pairs with different ids, as Definition 1
    asks for every pair; NaN if there is no such pair.
    """
    shares = [
        float(np.mean(np.abs(signed[i] - signed[j]) >= margin))
        for i, j in zip(*np.nonzero(ids[:, None] < ids[None, :]), strict=True)
    ]
    return min(shares, default=math.nan)


def least_margin(signed: FloatArray, ids: IntArray) -> float:
    """The least, over pairs with different ids, of their largest difference at any anchor."""
    gaps = [
        float(np.abs(signed[i] - signed[j]).max())
        for i, j in zip(*np.nonzero(ids[:, None] < ids[None, :]), strict=True)
    ]
    return min(gaps, default=math.nan)


def anchors_needed(candidates: int, hit: float, failure: float) -> int:
    """Theorem 2: m ≥ (1/p) log(N²/η) anchors tell N candidates apart with probability 1 − η."""
    if candidates < 1:
        raise ValueError(f"candidates must be at least 1, not {candidates}")
    if not 0 < hit <= 1:
        raise ValueError(f"hit must lie in (0, 1], not {hit}")
    if not 0 < failure < 1:
        raise ValueError(f"failure must lie strictly between 0 and 1, not {failure}")
    return max(1, math.ceil(math.log(candidates**2 / failure) / hit))

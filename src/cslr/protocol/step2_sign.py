"""Step 2: signatures at the anchors (paper, Section 4.3, Definition 1 and Theorem 2).

s(q) = (log q(a_1), …, log q(a_m)), standardised over the anchors, so that candidates of different
spread can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.mixture import Gaussians, log_density

__all__ = [
    "anchors_needed",
    "failure_bound",
    "hit_rate",
    "least_margin",
    "pair_hits",
    "pair_margins",
    "signatures",
    "standardised",
]

BLOCK: Final = 1 << 21
"""Differences in memory at a time: limits it to some tens of MB for any number of pairs."""


def signatures(candidates: Gaussians, anchors: FloatArray) -> FloatArray:
    """Signatures (..., L, m) of candidates (..., L, r) at the anchors (m, r).

    Each has mean 0 and standard deviation 1 over the anchors; a candidate with the same density at
    all anchors has the zero signature.
    """
    return standardised(np.swapaxes(log_density(candidates, anchors), -1, -2))


def standardised(raw: FloatArray) -> FloatArray:
    """Signatures from log densities (..., m) at the anchors: mean 0, standard deviation 1."""
    centred = raw - raw.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, keepdims=True)
    # Otherwise differences that are only rounding errors would be scaled up to a signature.
    flat = spread <= 1e-12 * np.abs(raw).max(axis=-1, keepdims=True)
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, spread))


def pair_hits(signed: FloatArray, ids: IntArray, margin: float) -> FloatArray:
    """(pairs,) the share of anchors at which a pair of different modes differs by ``margin``.

    signed: (N, m) signatures; ids: (N,). Pairs of equal ids are left out: they need no separation.
    """
    shares = [np.mean(gaps >= margin, axis=1) for gaps in _gaps(signed, ids)]
    return np.concatenate([np.zeros(0), *shares])


def pair_margins(signed: FloatArray, ids: IntArray) -> FloatArray:
    """(pairs,) the largest difference of each pair of different modes at any anchor.

    Pairs are in the order of ``pair_hits``.
    """
    return np.concatenate([np.zeros(0), *[gaps.max(axis=1) for gaps in _gaps(signed, ids)]])


def hit_rate(signed: FloatArray, ids: IntArray, margin: float) -> float:
    """p̂_γ: the share of anchors at which a pair of different modes differs by at least ``margin``.

    signed: (N, m) signatures; ids: (N,). The least share over all pairs with different ids, since
    Definition 1 requires it of every pair; NaN if there is no such pair.
    """
    shares = pair_hits(signed, ids, margin)
    return float(shares.min()) if len(shares) else math.nan


def least_margin(signed: FloatArray, ids: IntArray) -> float:
    """The least of ``pair_margins``; NaN if there is no pair of different ids."""
    margins = pair_margins(signed, ids)
    return float(margins.min()) if len(margins) else math.nan


def _gaps(signed: FloatArray, ids: IntArray) -> Iterator[FloatArray]:
    """|s_i − s_j| (p, m) for all pairs of different ids, each once, some rows i at a time."""
    rows = max(1, BLOCK // max(signed.size, 1))
    for first in range(0, len(signed), rows):
        i, j = np.nonzero(ids[first : first + rows, None] < ids[None, :])
        if len(i):
            yield np.abs(signed[first + i] - signed[j])


def anchors_needed(candidates: int, hit: float, failure: float) -> int:
    """Theorem 2: m ≥ (1/p) log(N²/η) anchors separate N candidates with probability 1 − η."""
    _check(candidates, hit)
    if not 0 < failure < 1:
        raise ValueError(f"failure must lie strictly between 0 and 1, not {failure}")
    return max(1, math.ceil(math.log(candidates**2 / failure) / hit))


def failure_bound(candidates: int, hit: float, anchors: int) -> float:
    """Bound on the failure probability of m anchors: N(N − 1)/2 pairs, each missed with (1 − p)^m.

    The union bound of Theorem 2's proof before it is rounded up to N² e^(−pm); at most 1.
    """
    _check(candidates, hit)
    if anchors < 0:
        raise ValueError(f"anchors must not be negative, not {anchors}")
    return min(1.0, candidates * (candidates - 1) / 2 * (1.0 - hit) ** anchors)


def _check(candidates: int, hit: float) -> None:
    if candidates < 1:
        raise ValueError(f"candidates must be at least 1, not {candidates}")
    if not 0 < hit <= 1:
        raise ValueError(f"hit must lie in (0, 1], not {hit}")

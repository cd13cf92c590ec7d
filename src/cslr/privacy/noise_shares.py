"""Noise that the clients add themselves: discrete Gaussian shares inside a secure sum.

Each client adds a share of variance ((σS)² + 16)/(t − c) grid steps² to its vector before masking
it. Of at least t survivors up to c may collude with the server and subtract their shares; what is
left has variance (σS)² + 16 or more, which is what ``mechanism.release`` draws alone. c ≥ 1 always:
a client knows its own share and can subtract it.

Formal guarantee: a sum of discrete Gaussians of at least 2¹² steps each differs from one discrete
Gaussian by less than 10^(−10⁷) in privacy loss (Kairouz, Liu and Steinke 2021, Theorem 1), so the
charge of a release is that of the Gaussian mechanism with multiplier σ. The sampler differs from
its law by 2⁻⁴⁸ in total variation for each draw; ``reserved_delta`` says what that takes from δ.
"""

from __future__ import annotations

import math

from cslr.arrays import IntArray
from cslr.privacy.mechanism import LEAST_SIGMA, KeyStream, discrete_gaussian, noise_in_steps
from cslr.privacy.plan import DRAW_ERROR

__all__ = [
    "draw_share",
    "effective_multiplier",
    "reserved_delta",
    "share_scale",
]


def share_scale(sigma: float, steps: int, threshold: int, colluders: int) -> float:
    """Standard deviation of one client's share, in grid steps.

    sigma: the noise multiplier that the plan asks for. threshold: t, the fewest survivors.
    colluders: c, whose shares do not count.
    """
    if colluders < 1:
        raise ValueError(
            f"colluders must be at least 1, not {colluders}: a client can subtract its own share"
        )
    if threshold <= colluders:
        raise ValueError(f"threshold must exceed the {colluders} colluders, not be {threshold}")
    scale = noise_in_steps(sigma, steps) / math.sqrt(threshold - colluders)
    if scale < LEAST_SIGMA:
        raise ValueError(
            f"a noise share of {scale:.0f} grid steps is below {LEAST_SIGMA}: use more grid steps, "
            "more noise or a lower threshold"
        )
    return scale


def draw_share(scale: float, coordinates: int, key: bytes) -> IntArray:
    """(D,) one client's share. The key must be fresh and is used for one session only."""
    if scale < LEAST_SIGMA:
        raise ValueError(f"scale must be at least {LEAST_SIGMA} grid steps, not {scale:g}")
    return discrete_gaussian(scale, coordinates, KeyStream(key))


def effective_multiplier(
    sigma: float, steps: int, threshold: int, colluders: int, survivors: int
) -> float:
    """Standard deviation of all noise in a release of ``survivors`` clients, over S.

    What a reader of the release needs: σ √(s/(t − c)) up to the 16 steps² of rounding.
    """
    if survivors < threshold:
        raise ValueError(f"survivors must be at least the threshold {threshold}, not {survivors}")
    return share_scale(sigma, steps, threshold, colluders) * math.sqrt(survivors) / steps


def reserved_delta(clients: int, coordinates: int, releases: int = 1) -> float:
    """n · D · 2⁻⁴⁸ for each release: the part of δ that the samplers' own error uses up."""
    if min(clients, coordinates, releases) < 0:
        raise ValueError("clients, coordinates and releases must not be negative")
    return clients * coordinates * releases * DRAW_ERROR

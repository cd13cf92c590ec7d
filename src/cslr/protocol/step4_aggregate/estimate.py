"""The reader's half: from noisy sums to the replay generator Q_{1:t}. Post-processing, so free.

A mode's sums say y_k = S_k / W_k ≈ θ_k + noise of known size. Its mean is modelled around the
public prototype p_k,

    θ_k = p_k + o + e_k,    o ~ N(0, g_o Λ),    e_k ~ N(0, g_e Λ),

with Λ the public spectrum of topics: o is what all classes have in common against the public
corpus (news against encyclopaedia), e_k what is the class's own. The two scales are the likeliest
given all releases so far and what is usual, and θ is replaced by its posterior mean: each direction
is trusted as far as its signal goes beyond its noise. A mode that has not been released yet has
infinite noise, and so gets p_k + o: what earlier tasks taught about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.numerics.gaussian import Gaussians
from cslr.numerics.projection import onto_simplex
from cslr.protocol.public import Modes, PublicSpace
from cslr.protocol.step4_aggregate.contribution import Layout, Statistics
from cslr.types import BoolArray, FloatArray, IntArray

__all__ = ["Noise", "Replay", "TaskRelease", "estimate_replay"]

USUAL_SCALE: Final = 0.3
"""g_o and g_e as found without noise on the embedded stream and on held-out train rows."""
SCALE_DECADES: Final = 0.35
"""Standard deviation of log₁₀ g."""
WEIGHT_UNSURE: Final = 0.25
"""Relative doubt about the expected sum of weights."""
SCALE_UNSURE: Final = 0.2
"""Relative doubt that a class spreads as the public corpus does."""
VARIANCE_FLOOR: Final = 0.05
"""λ_min: the least variance of a direction, relative to the public one."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of the noise in each block of a release, in the block's own units."""

    weight: float
    offset: float
    second: float

    @classmethod
    def of(cls, sigma: float | None, bound: float, layout: Layout) -> Noise:
        """What multiplier σ on bound S does to the blocks of a layout."""
        scale = 0.0 if sigma is None else sigma * bound
        return cls(scale / layout.weight_scale, scale, scale / layout.second_scale)


@dataclass(frozen=True)
class TaskRelease:
    """One task's released sums and the public facts needed to read them."""

    modes: IntArray  # (K_t,) indices into all declared modes
    sums: Statistics  # (K_t, ·)
    noise: Noise
    expected_weight: float
    """What the plan expects a mode's weights to sum to: a public number, never the cohort's."""


@dataclass(frozen=True)
class Replay:
    """Q_{1:t}: a mixture over the released directions with a target for each mode."""

    weights: FloatArray  # (K,) on the simplex
    mean: FloatArray  # (K, r)
    relative: FloatArray  # (K, 1) shared or (K, r): variances as a share of the public spread
    labels: IntArray  # (K,)
    known: BoolArray  # (K,) whether the mode was released, or stands on its prior alone
    floored: float
    """Share of variances that noise had pushed below the floor: an alarm when it is large."""

    def gaussians(self, space: PublicSpace) -> Gaussians:
        """(K, r) the modes as densities over the released coordinates."""
        return Gaussians(self.mean, self.relative * np.ones_like(self.mean) * space.spread)


def estimate_replay(releases: Sequence[TaskRelease], modes: Modes, space: PublicSpace) -> Replay:
    """Q_{1:t} from everything released so far (Algorithm 1, lines 9 to 13).

    Every task appends its own modes, also where it shares labels with an earlier one. A label that
    no task has released yet stands on its text alone, or is left out if it has none.
    """
    released = np.concatenate([np.zeros(0, dtype=np.int64), *[r.modes for r in releases]])
    unseen = np.flatnonzero(~np.isin(modes.labels, modes.labels[released]) & modes.from_texts)
    chosen = np.concatenate([released, unseen])
    order = np.argsort(chosen, kind="stable")  # by label, whatever the order of releases
    place = np.argsort(order)
    chosen, known = chosen[order], order < len(released)
    prototypes = modes.prototypes.mean[chosen]
    observed = np.zeros_like(prototypes)
    variance = np.full(len(chosen), np.inf)
    weight = np.zeros(len(chosen))
    excess = np.zeros((len(chosen), _seconds(releases)))
    excess_noise = np.full(len(chosen), np.inf)
    end = 0
    for release in releases:
        total = _total_weight(release)
        end, k = end + len(total), place[end : end + len(total)]
        weight[k] = total
        observed[k] = release.sums.offset / total[:, None]
        variance[k] = np.square(release.noise.offset / total)
        excess[k] = release.sums.second / total[:, None]
        excess_noise[k] = np.square(release.noise.second / total)
    r = prototypes.shape[1]
    mean = prototypes + _posterior_offsets(observed, variance, space.between[:r])
    relative = _relative_variances(excess, excess_noise, mean, prototypes, space)
    weight[~known] = weight[known].mean() if known.any() else 1.0
    return Replay(
        weights=_shares(weight),
        mean=mean,
        relative=np.maximum(relative, VARIANCE_FLOOR),
        labels=modes.labels[chosen],
        known=known,
        floored=float(np.mean(relative[known] < VARIANCE_FLOOR)) if known.any() else 0.0,
    )


def _shares(weight: FloatArray) -> FloatArray:
    """Line 12: weights onto the simplex; before anything is known there are none to bring there."""
    return onto_simplex(weight / weight.sum()) if len(weight) else weight


def _seconds(releases: Sequence[TaskRelease]) -> int:
    return releases[0].sums.second.shape[-1] if releases else 1


def _total_weight(release: TaskRelease) -> FloatArray:
    """Σ w of each mode: the noisy sum and the plan's expectation, each by its precision."""
    noise = release.noise.weight**2
    doubt = (WEIGHT_UNSURE * release.expected_weight) ** 2
    steadied = (release.sums.weight * doubt + release.expected_weight * noise) / (doubt + noise)
    total: FloatArray = np.maximum(steadied, 0.02 * release.expected_weight)
    return total


def _posterior_offsets(y: FloatArray, variance: FloatArray, spectrum: FloatArray) -> FloatArray:
    """E[o + e_k | y] for offsets y (K, r) seen with noise ``variance`` (K,), ∞ where unseen."""
    seen = np.isfinite(variance)
    if not seen.any():
        return np.zeros_like(y)
    common, own = _likeliest_scales(y[seen], variance[seen], spectrum)
    precision = 1.0 / (own * spectrum + variance[seen, None])  # (K_seen, r)
    offset = common * spectrum * (y[seen] * precision).sum(axis=0)
    offset = offset / (1.0 + common * spectrum * precision.sum(axis=0))
    posterior = np.tile(offset, (len(y), 1))
    posterior[seen] += own * spectrum * precision * (y[seen] - offset)
    return posterior


def _likeliest_scales(
    y: FloatArray, variance: FloatArray, spectrum: FloatArray
) -> tuple[float, float]:
    """(g_o, g_e) of highest posterior density on a grid of eighths of a decade.

    Where noise is heavy the likelihood is flat and would pick a scale by chance; a log-normal
    prior holds it near what is usual.
    """
    grid = USUAL_SCALE * np.geomspace(0.01, 100, 33)
    usual = -0.5 * np.square(np.log10(grid / USUAL_SCALE) / SCALE_DECADES)
    best = (-math.inf, USUAL_SCALE, USUAL_SCALE)
    for own, own_usual in zip(grid, usual, strict=True):
        spread = own * spectrum + variance[:, None]
        precision = 1.0 / spread
        alone = -0.5 * (np.square(y) * precision + np.log(spread)).sum()
        pooled, total = (y * precision).sum(axis=0), precision.sum(axis=0)
        for common, common_usual in zip(grid, usual, strict=True):
            gain = 1.0 + common * spectrum * total
            shared = common * spectrum * np.square(pooled) / gain - np.log(gain)
            density = alone + 0.5 * shared.sum() + own_usual + common_usual
            best = max(best, (float(density), float(common), float(own)))
    return best[1], best[2]


def _relative_variances(
    excess: FloatArray,
    noise: FloatArray,
    mean: FloatArray,
    prototypes: FloatArray,
    space: PublicSpace,
) -> FloatArray:
    """Σ = M − μμᵀ as a share of the public spread: (K, 1), the same for all, or (K, r) diagonal.

    excess: (K, s) second moments beyond the prototypes', as a share of the public spread, with
    noise of variance ``noise`` (K,). Shrunk towards 1, the public spread, as far as noise goes.
    """
    moved = (np.square(prototypes) - np.square(mean)) / space.spread
    doubt = SCALE_UNSURE**2
    if excess.shape[1] > 1:
        return 1.0 + (doubt / (doubt + noise))[:, None] * (excess + moved)
    # One scale for all modes: a class that seems wider than another by noise alone would be
    # favoured far from the centre.
    beyond = (excess + moved.mean(axis=1, keepdims=True))[:, 0]
    precision = 1.0 / np.maximum(noise, 1e-12)
    scale = 1.0 + (precision * beyond).sum() / (precision.sum() + 1.0 / doubt)
    return np.full((len(mean), 1), scale)

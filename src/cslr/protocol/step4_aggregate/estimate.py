"""Estimate the replay generator Q_{1:t} from noisy sums: post-processing, at no cost.

The sums of mode k give S_k / W_k ≈ θ_k − p_k + noise of known size. What modes have in common is
modelled in ``mixed_model``, and θ is estimated by its posterior mean: each direction is shrunk
according to its signal-to-noise ratio. A mode that has not been released yet has infinite noise, so
it is predicted from its label text and earlier tasks.

Full second moments are read as in the paper, Σ = M − μμᵀ, symmetrised and floored. r (r + 1) / 2
noisy numbers determine a covariance poorly, so it is shrunk towards the public shape according to
the noise, like every other release.

From the tied matrices of all tasks (``contribution.tied_factors``) the reader gets M, the pooled
covariance W within modes plus a symmetric matrix of independent noise of known variance v. Of all
estimates that keep the eigenvectors of M, the one nearest to W moves its eigenvalues λ to

    λ_i − 2 v Σ_j (λ_i − λ_j) / ((λ_i − λ_j)² + v),

which reverses how noise spreads eigenvalues (Bun, Allez, Bouchaud and Potters, 2016). The
eigenvectors are noisy too, so the result is shrunk towards its mean eigenvalue according to the
noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_psd, onto_simplex, unfolded
from cslr.numerics.mixture import Gaussians
from cslr.protocol.head import Family, softmax
from cslr.protocol.literal.reading import WrittenModes
from cslr.protocol.public_space import Modes, PublicSpace
from cslr.protocol.step4_aggregate.contribution import FEW_UNITS, Layout, Statistics
from cslr.protocol.step4_aggregate.mixed_model import (
    clarity,
    effects_of,
    labels_recur,
    posterior_means,
    trust_in_means,
)

__all__ = ["Noise", "Replay", "TaskRelease", "estimate_replay", "expected_means"]

SCALE_UNSURE: Final = 0.2
"""Relative prior standard deviation of a class's spread around that of the public corpus."""
VARIANCE_FLOOR: Final = 0.05
"""λ_min: the least variance of a direction, relative to the public one."""
SHARPER: Final = 8.0
"""Factor of released logits, whose norm of at most 1 would make a softmax nearly uniform."""
ELECTED_UNSURE: Final = 0.02
"""Standard deviation of the error in each coordinate of a mean selected from candidates."""
TARGET_UNSURE: Final = 0.15
"""Prior standard deviation of a mode's target around the usual one of its label."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of the noise in each block of a release, in the block's own units."""

    weight: float
    offset: float
    second: float
    target: float
    tied: float = 0.0

    @classmethod
    def of(cls, sigma: float | None, bounds: Sequence[float], layout: Layout) -> Noise:
        """From multiplier σ and the bound S of all blocks, or one bound for each block."""
        scale, *others = (0.0 if sigma is None else sigma * bound for bound in bounds)
        if others:
            return cls(scale, *others)
        return cls(
            scale / layout.weight_scale,
            scale,
            scale / layout.second_scale,
            scale / layout.target_scale,
            scale / layout.tied_scale,
        )


@dataclass(frozen=True)
class TaskRelease:
    """One task's released sums and the public facts needed to read them."""

    task: int
    modes: IntArray  # (K_t,) indices into all declared modes
    prototypes: FloatArray  # (K_t, r) what the offsets are relative to
    sums: Statistics  # (K_t, ·)
    noise: Noise
    expected_weight: float
    """The expected sum of a mode's weights: a public number from the plan, not from the cohort."""
    logits: bool = False
    """Whether targets are clipped logits instead of distributions."""
    elected: FloatArray | None = None  # (K_t, r) means, if they are selected and not averaged
    weight_unsure: float = FEW_UNITS.weight_unsure
    """Relative prior standard deviation of the sum of weights around ``expected_weight``."""
    written: WrittenModes | None = None
    """The modes read exactly as in the paper, if its protocol is run."""

    def means(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K_t, r) observed means and the variance (K_t,) of their noise, given Σ w (K_t,)."""
        if self.elected is not None:
            return self.elected, np.full(len(weight), ELECTED_UNSURE**2)
        offset = self.sums.offset / weight[:, None]
        return self.prototypes + offset, np.square(self.noise.offset / weight)


@dataclass(frozen=True)
class Replay:
    """Q_{1:t}: a mixture over the released directions with a target for each mode."""

    weights: FloatArray  # (K,) on the simplex
    mean: FloatArray  # (K, r)
    centre: FloatArray  # (K, r) the point around which a mode is contrasted with others
    relative: FloatArray  # (K, 1) shared or (K, r): variances as a share of the public spread
    labels: IntArray  # (K,)
    heard: BoolArray  # (c,) the labels that some mode is about
    pooled: bool
    """Whether a mode may be about several labels, so that only its target says which."""
    tasks: IntArray  # (K,) −1 for labels that no task has released yet
    targets: FloatArray  # (K, outputs)
    covariance: FloatArray | None  # (K, r, r) where whole second moments were released
    known: BoolArray  # (K,) whether the mode was released; otherwise it has its prior alone
    trust: FloatArray  # (K,) from 0, a mean is its prior, to 1, a mean is known without noise
    floored: float
    """Share of variances that noise had pushed below the floor: a warning sign when large."""
    tied: FloatArray | None = None
    """(d, d) the covariance within modes in the public basis, if it was released."""
    clarity: float = 1.0
    """How clearly released modes differ from the nearest mode of another label, from 0 to 1."""
    counted: float = 1.0
    """How far weights are used as label frequencies, from 0, not at all, to 1."""

    def released(self) -> Replay:
        """Without the modes that were not released."""
        names = ["weights", "mean", "centre", "relative", "labels", "tasks", "targets", "known"]
        names += ["trust", *([] if self.covariance is None else ["covariance"])]
        return replace(self, **{name: getattr(self, name)[self.known] for name in names})

    def gaussians(self, space: PublicSpace) -> Gaussians:
        """The modes as densities over the released coordinates: (K, r), full if covariances are."""
        variance = self.relative * np.ones_like(self.mean) * space.spread
        return Gaussians(self.mean, variance if self.covariance is None else self.covariance)


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums of all releases divided by their weights, then modes that are not released yet."""

    modes: IntArray  # (K,) indices into all declared modes
    tasks: IntArray  # (K,)
    compared: FloatArray  # (K, r) the prototypes that offsets are relative to
    observed: FloatArray  # (K, r) means
    variance: FloatArray  # (K,) of the noise in them, ∞ if not released
    weight: FloatArray  # (K,)
    excess: FloatArray  # (K, s)
    excess_noise: FloatArray  # (K,)
    target: FloatArray  # (K, outputs or 0)
    target_noise: FloatArray  # (K,)
    logits: bool

    @property
    def known(self) -> BoolArray:
        return np.isfinite(self.variance)


def estimate_replay(
    releases: Sequence[TaskRelease], modes: Modes, space: PublicSpace, family: Family
) -> Replay:
    """Q_{1:t} from everything released so far (Algorithm 1, lines 9 to 13).

    Every task appends its own modes, even if it shares labels with an earlier one. A label that no
    task has released yet is described by its text alone, or left out if it has none.
    """
    released = [release.modes for release in releases]
    seen = modes.group[np.concatenate([np.zeros(0, dtype=np.int64), *released])]
    unseen = np.flatnonzero(~np.isin(modes.group, seen) & modes.from_texts)
    sums = _side_by_side(releases, modes, unseen, task=-1)
    known, mean = sums.known, _means(sums, modes, space)
    relative: FloatArray = np.ones((len(mean), 1))
    covariance, floored = None, 0.0
    seconds = sums.excess.shape[1]
    if seconds > space.dimension:
        covariance, floored = full_covariances(sums.excess, sums.excess_noise, mean, space)
    elif seconds:  # otherwise the tied matrix describes the spread
        relative = _relative_variances(sums.excess, sums.excess_noise, mean, sums.compared, space)
        floored = float(np.mean(relative[known] < VARIANCE_FLOOR)) if known.any() else 0.0
    weight = sums.weight.copy()
    weight[~known] = weight[known].mean() if known.any() else 1.0
    return Replay(
        weights=_shares(weight),
        mean=mean,
        centre=_centres(mean, sums.tasks, modes.labels[sums.modes]),
        relative=np.maximum(relative, VARIANCE_FLOOR),
        labels=modes.labels[sums.modes],
        heard=_heard(modes, sums.modes, family),
        pooled=modes.pooled,
        tasks=sums.tasks,
        targets=_targets(sums, modes, family),
        covariance=covariance,
        known=known,
        trust=trust_in_means(sums.variance, space),
        clarity=_clarity(sums, mean, modes, space),
        floored=floored,
        tied=_tied(releases, sums, mean, space),
        counted=counted_labels(releases, modes),
    )


def _clarity(sums: _Sums, mean: FloatArray, modes: Modes, space: PublicSpace) -> float:
    known = sums.known
    labels = modes.labels[sums.modes[known]]
    return clarity(mean[known], sums.variance[known], labels, space) if known.any() else 0.0


def _tied(
    releases: Sequence[TaskRelease], sums: _Sums, mean: FloatArray, space: PublicSpace
) -> FloatArray | None:
    """The covariance within modes from the matrices of all tasks: M / Σw − Σ w (μ − p)(μ − p)ᵀ."""
    matrices = [each.sums.tied for each in releases if each.sums.tied.size]
    if not matrices:
        return None
    r = round((math.sqrt(1 + 8 * matrices[0].shape[-1]) - 1) / 2)
    known = sums.known
    weight = sums.weight[known]
    moved = (mean - sums.compared)[known, :r]
    second = symmetric(np.sum(matrices, axis=0), r) / weight.sum()
    observed = second - (moved.T * (weight / weight.sum())) @ moved
    variance = sum(each.noise.tied**2 for each in releases) / weight.sum() ** 2
    return pooled_covariance(observed, variance, space.shape)


def expected_means(
    releases: Sequence[TaskRelease], modes: Modes, space: PublicSpace, task: int, coming: IntArray
) -> FloatArray:
    """(K, r) the expected means of the modes ``coming`` with a task, given earlier releases."""
    sums = _side_by_side(releases, modes, coming, task)
    return _means(sums, modes, space)[len(sums.modes) - len(coming) :]


def _side_by_side(
    releases: Sequence[TaskRelease], modes: Modes, unseen: IntArray, task: int
) -> _Sums:
    """The releases in their order, then the modes ``unseen`` of ``task``, infinitely noisy."""
    prototypes = modes.prototypes.mean[unseen]
    totals = [total_weight(release) for release in releases]
    sums = [release.sums for release in releases]
    seconds, targets = (sums[0].second.shape[1], sums[0].target.shape[1]) if sums else (1, 0)
    count, unknown = len(unseen), np.full(len(unseen), np.inf)
    pairs = list(zip(releases, totals, strict=True))
    return _Sums(
        modes=np.concatenate([*[r.modes for r in releases], unseen]),
        tasks=np.repeat([*[r.task for r in releases], task], [*map(len, totals), count]),
        compared=np.concatenate([*[r.prototypes for r in releases], prototypes]),
        observed=np.concatenate([*[r.means(w)[0] for r, w in pairs], prototypes]),
        variance=np.concatenate([*[r.means(w)[1] for r, w in pairs], unknown]),
        weight=np.concatenate([*totals, np.zeros(count)]),
        excess=np.concatenate(
            [*[r.sums.second / w[:, None] for r, w in pairs], np.zeros((count, seconds))]
        ),
        excess_noise=np.concatenate([*[np.square(r.noise.second / w) for r, w in pairs], unknown]),
        target=np.concatenate(
            [*[r.sums.target / w[:, None] for r, w in pairs], np.zeros((count, targets))]
        ),
        target_noise=np.concatenate([*[np.square(r.noise.target / w) for r, w in pairs], unknown]),
        logits=any(r.logits for r in releases),
    )


def _means(sums: _Sums, modes: Modes, space: PublicSpace) -> FloatArray:
    """(K, r) posterior means of all modes."""
    prior = modes.prototypes.mean[sums.modes]
    spectrum = space.between[: space.dimension]
    effects = effects_of(sums.tasks, modes.labels[sums.modes], prior, spectrum)
    return posterior_means(sums.observed, sums.variance, prior, effects)


def _centres(mean: FloatArray, tasks: IntArray, labels: IntArray) -> FloatArray:
    """(K, r) the point around which each mode is contrasted with others.

    If tasks share labels, it is the mean of the task's modes: what all labels of a task have in
    common carries no information about the label. Otherwise it is the public centre.
    """
    centres = np.zeros_like(mean)
    if labels_recur(labels, tasks):
        for task in np.unique(tasks):
            centres[tasks == task] = mean[tasks == task].mean(axis=0)
    return centres


def _heard(modes: Modes, chosen: IntArray, family: Family) -> BoolArray:
    """(c,) the labels that the chosen modes are about."""
    labels = [label for group in modes.group[chosen].tolist() for label in modes.groups[group]]
    return np.isin(np.arange(family.labels), labels)


def _targets(sums: _Sums, modes: Modes, family: Family) -> FloatArray:
    """(K, outputs) targets, shrunk towards the usual ones according to the noise."""
    usual = np.stack([family.usual_of(group) for group in modes.groups])[modes.group[sums.modes]]
    if not sums.target.shape[1]:
        return usual
    trust = TARGET_UNSURE**2 / (TARGET_UNSURE**2 + sums.target_noise)
    if sums.logits:
        return _answers(trust[:, None] * sums.target, usual, family)
    return family.projected(usual + trust[:, None] * sums.target)


def _answers(logits: FloatArray, usual: FloatArray, family: Family) -> FloatArray:
    """(K, outputs) probabilities from clipped logits, over the outputs that a mode may be about."""
    sharp = SHARPER * logits
    if family.sigmoid:
        return np.where(usual > 0, 1.0 / (1.0 + np.exp(-sharp)), 0.0)
    return softmax(np.where(usual > 0, sharp, -np.inf))


def _shares(weight: FloatArray) -> FloatArray:
    """Line 12: weights projected onto the simplex, if there are any."""
    return onto_simplex(weight / weight.sum()) if len(weight) else weight


def _relative_variances(
    excess: FloatArray,
    noise: FloatArray,
    mean: FloatArray,
    prototypes: FloatArray,
    space: PublicSpace,
) -> FloatArray:
    """Σ = M − μμᵀ as a share of the public spread: (K, 1), the same for all, or (K, r) diagonal.

    excess: (K, s) second moments minus the prototypes', as a share of the public spread, with noise
    of variance ``noise`` (K,). Shrunk towards 1, the public spread, according to the noise.
    """
    moved = (np.square(prototypes) - np.square(mean)) / space.spread
    doubt = SCALE_UNSURE**2
    if excess.shape[1] > 1:
        return 1.0 + (doubt / (doubt + noise))[:, None] * (excess + moved)
    # One scale for all modes: otherwise a class that seems wider because of noise would win far
    # from the centre.
    beyond = (excess + moved.mean(axis=1, keepdims=True))[:, 0]
    precision = 1.0 / np.maximum(noise, 1e-12)
    scale = 1.0 + (precision * beyond).sum() / (precision.sum() + 1.0 / doubt)
    return np.full((len(mean), 1), scale)


# -- released weights ------------------------------------------------------------------------------

SURE: Final = 2.0
"""Differences of weights count as label frequencies only beyond this multiple of their noise."""


def total_weight(release: TaskRelease) -> FloatArray:
    """Σ w of each mode: the noisy sum and the plan's expectation, weighted by their precision."""
    noise = release.noise.weight**2
    doubt = (release.weight_unsure * release.expected_weight) ** 2
    steadied = (release.sums.weight * doubt + release.expected_weight * noise) / (doubt + noise)
    total: FloatArray = np.maximum(steadied, 0.02 * release.expected_weight)
    return total


def counted_labels(releases: Sequence[TaskRelease], modes: Modes) -> float:
    """Share of the variance of label weights within tasks beyond ``SURE`` times their noise's.

    Noisy weights must not be taken for label frequencies: a head would prefer labels that seem
    frequent by chance.
    """
    seen = noise = 0.0
    for release in releases:
        labels = modes.labels[release.modes]
        weight = np.bincount(labels, weights=release.sums.weight)[np.unique(labels)]
        seen += float(np.square(weight - weight.mean()).sum())
        noise += release.noise.weight**2 * len(labels) * (1 - 1 / len(weight))
    return max(0.0, 1.0 - SURE * noise / seen) if seen > 0 else 1.0


# -- full second moments, as in the paper ----------------------------------------------------------

SHAPE_UNSURE: Final = 0.5
"""Relative prior standard deviation of a mode's covariance around the public shape."""
EIGENVALUE_FLOOR: Final = 0.05
"""λ_min, relative to the public variance of an average direction."""


def full_covariances(
    second: FloatArray, noise: FloatArray, mean: FloatArray, space: PublicSpace
) -> tuple[FloatArray, float]:
    """(K, r, r) covariances, and the share of eigenvalues that noise had pushed below the floor.

    second: (K, r (r + 1) / 2) folded E[x xᵀ] with noise of variance ``noise`` (K,), ∞ if unseen.
    """
    r = space.dimension
    public = space.shape[:r, :r]
    sigma = unfolded(second, r) - mean[:, :, None] * mean[:, None, :]
    doubt = np.square(SHAPE_UNSURE * np.trace(public) / r) / r  # prior variance of one entry
    trust = (doubt / (doubt + noise))[:, None, None]
    seen = np.isfinite(noise)[:, None, None]
    shrunk = np.where(seen, trust * sigma + (1 - trust) * public, public)
    floor = EIGENVALUE_FLOOR * float(np.trace(public)) / r
    below = float(np.mean(np.linalg.eigvalsh(shrunk) < floor))
    return onto_psd(shrunk, floor), below


# -- one matrix of second moments for all modes ----------------------------------------------------

TIED_FLOOR: Final = 0.1
"""Least variance in any direction, relative to their mean."""
TIED_RIDGE: Final = 0.5
"""Shrinkage of eigenvalues towards their mean when noise is much larger than they are."""
_NO_NOISE: Final = 1e-18


def symmetric(triangle: FloatArray, directions: int) -> FloatArray:
    """The symmetric matrix (r, r) of an upper triangle (r (r + 1) / 2,)."""
    matrix = np.zeros((directions, directions))
    up, across = np.triu_indices(directions)
    matrix[up, across] = matrix[across, up] = triangle
    return matrix


def pooled_covariance(observed: FloatArray, variance: float, tempered: FloatArray) -> FloatArray:
    """W (d, d) from its observed leading block (r₂, r₂).

    variance: of the noise in each entry. tempered: (d, d) the public shape; the other directions
    keep it, scaled to the trace of the block.
    """
    r, noise = len(observed), max(variance, _NO_NOISE)
    values, vectors = np.linalg.eigh(observed)
    mean = max(float(values.mean()), np.sqrt(_NO_NOISE))
    values = np.maximum(_without_spread(values, noise), TIED_FLOOR * mean)
    radius = np.sqrt(r * noise)  # half of how far noise alone spreads eigenvalues
    ridge = TIED_RIDGE * radius / (radius + mean)
    values = (1 - ridge) * values + ridge * mean
    whole: FloatArray = tempered * (values.sum() / np.trace(tempered[:r, :r]))
    whole[:r, r:] = whole[r:, :r] = 0.0
    whole[:r, :r] = (vectors * values) @ vectors.T
    return whole


def _without_spread(values: FloatArray, noise: float) -> FloatArray:
    """Eigenvalues (r,) of a symmetric matrix, corrected for the spread that noise added."""
    apart = values[:, None] - values
    moved: FloatArray = values - 2 * noise * (apart / (np.square(apart) + noise)).sum(axis=1)
    return moved

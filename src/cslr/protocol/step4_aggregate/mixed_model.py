"""What modes have in common: a mixed model of their means, fitted by marginal likelihood.

The mean of mode m, of task t and label k, is modelled as

    θ_m = p̄ + β (p_m − p̄) + o + o_t + c_k + B p_m + e_m,

p the public prototypes and p̄ their mean. β is how well label texts predict the contrast between
labels. o is the difference of all modes from the public corpus (news against encyclopaedia), o_t
what a task adds to all its labels (reviews of books) and c_k what a label means in every task
(praise). e_m is specific to the mode; if a label has several modes, part of it is common to them.
B p_m is linear in the prototype: labels with similar texts (asking for a hotel, asking for a train)
deviate from them in similar ways. Effects are independent Gaussians over the directions. Each has a
public spectrum and a scale, fitted to all releases under a prior around its usual value. Releases
are observed with noise of known size, a mode that is not released yet with infinite noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import (
    FactoredCovariances,
    GroupedCovariances,
    Groups,
    factored,
    grouped,
    membership,
)
from cslr.protocol.public_space import PublicSpace

__all__ = [
    "USUAL",
    "Effect",
    "clarity",
    "effects_of",
    "model_facts",
    "posterior_means",
    "trust_in_means",
]

USUAL: Final = {"all": 0.3, "task": 0.3, "label": 0.1, "own": 0.3, "sub": 0.3, "text": 0.3}
"""Usual scales of the effects: ``all`` and ``own`` were tuned on held-out rows of AG News and the
embedded clinic, the others are guesses. Without noise other streams prefer larger ones."""
SCALE_DECADES: Final = 0.35
"""Prior standard deviation of log₁₀ of a scale: with heavy noise the likelihood is flat and would
choose a scale by chance."""
CONTRAST_UNSURE: Final = 0.3
"""Prior standard deviation of β around 1."""
LEAST_NOISE: Final = 1e-8
"""Noise variance assumed at least, even without noise: a client's rows are a sample too."""
LEAST_TEXTS: Final = 3
"""Different label texts from which on the effect ``text`` is part of the model."""
MOST_FACTORS: Final = 16
"""Leading directions of the label texts that this effect uses: work grows with their square."""
MOST_MODES: Final = 256
"""Most modes that ``clarity`` averages over, so that its work is linear in the number of modes."""


def model_facts() -> dict[str, object]:
    """The constants, for the plan: later prototypes depend on them, so that a release can only be
    read again with the same ones."""
    return {**USUAL, "decades": SCALE_DECADES, "contrast": CONTRAST_UNSURE}


_Covariances: TypeAlias = FactoredCovariances | GroupedCovariances


@dataclass(frozen=True)
class Effect:
    """One source of differences between means."""

    group: IntArray  # (K,) modes of the same group share the effect
    spectrum: FloatArray  # (r,) its variance in each direction, up to a scale
    usual: float
    """The prior median of its scale."""
    factors: FloatArray | None = None  # (K, q) loadings of the modes, in place of groups

    @cached_property
    def columns(self) -> IntArray:
        """(K,) the groups, counted from 0."""
        return _numbered(self.group)

    def spread(self, residual: FloatArray, seen: BoolArray) -> FloatArray:
        """(K, r) Z Yᵀ e of residuals e (r, K'): Z factors of all modes, Y of those seen (K,)."""
        if self.factors is not None:
            shared: FloatArray = self.factors @ (self.factors[seen].T @ residual.T)
            return shared
        sums = np.zeros((int(self.columns.max()) + 1, len(residual)))  # by group
        np.add.at(sums, self.columns[seen], residual.T)
        return sums[self.columns]

    def of(self, seen: BoolArray) -> FloatArray | Groups | None:
        """Its factors (K', ·) or groups for the modes seen (K,); None if no two modes share it."""
        if self.factors is not None:
            return self.factors[seen]
        groups = Groups(_numbered(self.group[seen]))
        return None if groups.count == len(groups.of) else groups


def effects_of(
    tasks: IntArray, labels: IntArray, prior: FloatArray, spectrum: FloatArray
) -> list[Effect]:
    """The identifiable effects of the model, for modes of these tasks and labels (K,).

    prior: (K, r) the public prototypes; spectrum: (r,) how public topics differ.
    """
    pairs, of_pair = np.unique(np.stack([tasks, labels]), axis=1, return_inverse=True)
    effects = [
        Effect(np.zeros_like(tasks), spectrum, USUAL["all"]),
        Effect(of_pair.ravel(), spectrum, USUAL["own"]),
    ]
    if pairs.shape[1] < len(tasks):  # some label has several modes
        effects.append(Effect(np.arange(len(tasks)), spectrum, USUAL["sub"]))
    if labels_recur(labels, tasks):
        effects.append(Effect(labels, _flattened(spectrum), USUAL["label"]))
        effects.append(Effect(tasks, spectrum, USUAL["task"]))
    else:  # if labels recur, the effect "label" would include it
        effects += _effect_of_texts(prior, spectrum)
    return effects


def _effect_of_texts(prior: FloatArray, spectrum: FloatArray) -> list[Effect]:
    """The effect that is linear in the prototypes (K, r); none if there are too few texts."""
    if len(np.unique(prior, axis=0)) < LEAST_TEXTS:
        return []
    left, values, _ = np.linalg.svd(prior - prior.mean(axis=0), full_matrices=False)
    values /= np.sqrt(np.square(values).sum() / len(prior))
    factors = left[:, :MOST_FACTORS] * values[:MOST_FACTORS]
    return [Effect(np.arange(len(prior)), spectrum, USUAL["text"], factors)]


def _flattened(spectrum: FloatArray) -> FloatArray:
    """A flatter spectrum of the same total.

    What a label means in every task is not a topic: praise differs from blame in directions in
    which topics hardly differ.
    """
    flat = np.sqrt(spectrum)
    flattened: FloatArray = flat * (spectrum.sum() / flat.sum())
    return flattened


def labels_recur(labels: IntArray, tasks: IntArray) -> bool:
    """Whether some label occurs in several tasks."""
    pairs = np.unique(np.stack([labels, tasks]), axis=1)
    return bool(len(np.unique(pairs[0])) < pairs.shape[1])


def posterior_means(
    observed: FloatArray, variance: FloatArray, prior: FloatArray, effects: Sequence[Effect]
) -> FloatArray:
    """E[θ | observed] (K, r): means ``observed`` (K, r) with noise ``variance`` (K,), ∞ if unseen.

    prior: (K, r) the public prototypes.
    """
    seen = np.isfinite(variance)
    if not seen.any():
        return prior
    centre = prior.mean(axis=0)
    model = _Model(
        (observed - centre)[seen].T,
        (prior - centre)[seen].T,
        np.maximum(variance[seen], LEAST_NOISE),
        _shared(effects, seen),
        [effect.spectrum for effect in effects],
        np.log([effect.usual for effect in effects]),
    )
    log_scales = model.likeliest()
    contrast, residual = model.solved(log_scales)
    posterior: FloatArray = centre + contrast * (prior - centre)
    for effect, scale in zip(effects, np.exp(log_scales), strict=True):
        posterior += scale * effect.spread(residual, seen) * effect.spectrum
    return posterior


@dataclass(frozen=True, eq=False)
class _Model:
    """The released modes, direction by direction."""

    y: FloatArray  # (r, K)
    x: FloatArray  # (r, K) the public contrast, of which β is the coefficient
    noise: FloatArray  # (K,)
    factors: list[FloatArray | Groups | None]
    """(K, ·) for each effect; at most one has groups; None: every mode has its own."""
    spectra: list[FloatArray]  # (r,) for each effect
    usual: FloatArray  # log of the usual scale of each effect

    def likeliest(self) -> FloatArray:
        """Log scales of highest posterior density."""
        from scipy.optimize import minimize  # takes a while to load

        bounds = [(value - np.log(100), value + np.log(100)) for value in self.usual]
        found = minimize(self._loss, self.usual, jac=True, method="L-BFGS-B", bounds=bounds)
        scales: FloatArray = found.x
        return scales

    def solved(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        """(β, C⁻¹(y − βx)) for these scales, the latter (r, K)."""
        covariances = self._covariances(log_scales)
        contrast = self._contrast(covariances)
        return contrast, covariances.solve(self.y - contrast * self.x)

    def _covariances(self, log_scales: FloatArray) -> _Covariances:
        """The covariances of the released means, one for each direction (r,)."""
        scales = np.exp(log_scales)
        diagonal = np.broadcast_to(self.noise, self.y.shape)
        shared, amounts, finest = [], [], None
        for scale, factors, spectrum in zip(scales, self.factors, self.spectra, strict=True):
            if factors is None:
                diagonal = diagonal + (scale * spectrum)[:, None]
            elif isinstance(factors, Groups):
                finest = factors, scale * spectrum
            else:
                shared.append(factors)
                amounts.append(scale * spectrum)
        if finest is None:
            return factored(diagonal, shared, amounts)
        return grouped(diagonal, *finest, shared, amounts)

    def _contrast(self, covariances: _Covariances) -> float:
        """β by generalised least squares, with its prior around 1."""
        weighted = covariances.solve(self.x)
        held = 1.0 / CONTRAST_UNSURE**2
        return float(((weighted * self.y).sum() + held) / ((weighted * self.x).sum() + held))

    def _loss(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        """Negative log posterior density of the scales at the best β, and its gradient."""
        covariances = self._covariances(log_scales)
        contrast = self._contrast(covariances)
        residual = self.y - contrast * self.x
        solved = covariances.solve(residual)
        spread = SCALE_DECADES * np.log(10)
        away = (log_scales - self.usual) / spread
        loss = 0.5 * (
            (residual * solved).sum()
            + covariances.log_determinant.sum()
            + np.square((contrast - 1) / CONTRAST_UNSURE)
            + np.square(away).sum()
        )
        gradient = away / spread
        each = zip(self.factors, self.spectra, self._traces(covariances), strict=True)
        for i, (factors, spectrum, trace) in enumerate(each):
            fit = np.square(_sums(solved, factors)).sum(axis=1)
            gradient[i] += 0.5 * np.exp(log_scales[i]) * (spectrum * (trace - fit)).sum()
        return float(loss), gradient

    def _traces(self, covariances: _Covariances) -> Iterator[FloatArray]:
        """For each effect (r,) tr(C⁻¹ Z Zᵀ), Z its factors."""
        alone = covariances.diagonal_of_inverse().sum(axis=1)
        others = iter(covariances.traces())
        for factors in self.factors:
            if factors is None:
                yield alone
            elif isinstance(factors, Groups) and isinstance(covariances, GroupedCovariances):
                yield covariances.trace_of_groups()
            else:
                yield next(others)


def _shared(effects: Sequence[Effect], seen: BoolArray) -> list[FloatArray | Groups | None]:
    """Of each effect its factors, its groups, or None if no two of the modes seen (K,) share it.

    One effect may stay in the form of groups, if the groups of all others are unions of them: tasks
    and labels are unions of the modes of a label in a task. It would have too many factors, about
    as many as there are labels.
    """
    found = [effect.of(seen) for effect in effects]
    groupings = [each for each in found if isinstance(each, Groups)]
    finest = [
        one
        for one in groupings
        if one.count > 1 and all(_consists_of(other, one) for other in groupings)
    ][:1]
    return [
        membership(each.of) if isinstance(each, Groups) and each not in finest else each
        for each in found
    ]


def _sums(values: FloatArray, factors: FloatArray | Groups | None) -> FloatArray:
    """(r, ·) values (r, K) times an effect's factors, or their sums over its groups."""
    if factors is None:
        return values
    return factors.sums(values) if isinstance(factors, Groups) else values @ factors


def _consists_of(coarse: Groups, fine: Groups) -> bool:
    """Whether every group of one is a union of groups of the other."""
    pairs = np.unique(fine.of * coarse.count + coarse.of)
    return len(pairs) == fine.count


def _numbered(group: IntArray) -> IntArray:
    """(K,) the groups renumbered from 0 in the order in which they first occur."""
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    numbered: IntArray = np.argsort(np.argsort(first))[place.ravel()]
    return numbered


def trust_in_means(variance: FloatArray, space: PublicSpace) -> FloatArray:
    """(K,) share of the usual variance of e_m that is determined despite noise ``variance``."""
    own = USUAL["own"] * space.between[: space.dimension]
    trust: FloatArray = (own**2 / (own + variance[:, None])).sum(axis=1) / own.sum()
    return trust


def clarity(mean: FloatArray, variance: FloatArray, labels: IntArray, space: PublicSpace) -> float:
    """How clearly modes differ from the nearest mode of another label, from 0 to 1: D² / (D² + V).

    mean: (K, r) released modes, variance: (K,) of their noise. D is the distance in standard
    deviations of the public shape, V the posterior variance in the same units. Labels of nearly the
    same meaning need much less noise than others. 1 if all modes have one label.
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

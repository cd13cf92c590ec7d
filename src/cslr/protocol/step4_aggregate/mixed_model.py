"""What modes have in common: a mixed model of their means, fitted by marginal likelihood.

The mean of mode m, of task t and label k, is modelled as

    θ_m = p̄ + β (p_m − p̄) + o + o_t + c_k + B p_m + e_m,

p the public prototypes and p̄ their mean. β says how far label texts are right about the contrast
between labels; o is what all modes have against the public corpus (news against encyclopaedia),
o_t what a task adds for all its labels (reviews of books), c_k what a label means in every task
(praise), e_m what is the mode's own; where a label has several modes, part of it is theirs
together. B p_m is what follows from a label's text: labels with similar texts (asking for a hotel,
asking for a train) differ from them in similar ways. Effects are independent Gaussians over the
directions, each
with a public spectrum and a scale that is the likeliest given all releases and what is usual.
Releases are seen with noise of known size, a mode not released yet with infinite noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize

from cslr.arrays import FloatArray, IntArray

__all__ = ["USUAL", "Effect", "model_facts", "posterior_means"]

USUAL: Final = {"all": 0.3, "task": 0.3, "label": 0.1, "own": 0.3, "sub": 0.3, "text": 0.3}
"""Scales of the effects: ``all`` and ``own`` as found on held-out AG News and the embedded clinic,
the others by guess. Without noise other streams prefer larger ones."""
SCALE_DECADES: Final = 0.35
"""Standard deviation of log₁₀ of a scale: where noise is heavy the likelihood is flat and would
pick a scale by chance."""
CONTRAST_UNSURE: Final = 0.3
"""Standard deviation of β around 1."""
LEAST_NOISE: Final = 1e-8
"""Variance that even a release without noise is seen with: a client's rows are a sample too."""


def model_facts() -> dict[str, object]:
    """The constants, for the plan: earlier releases move later prototypes by them, so a release
    can only be read again with the same ones."""
    return {**USUAL, "decades": SCALE_DECADES, "contrast": CONTRAST_UNSURE}


@dataclass(frozen=True)
class Effect:
    """One source of differences between means."""

    group: IntArray  # (K,) modes of the same group share the effect
    spectrum: FloatArray  # (r,) its variance in each direction, up to a scale
    usual: float
    """The scale it is held near."""
    kernel: FloatArray | None = None  # (K, K) how far modes share it, where that is no yes or no

    def shared(self) -> FloatArray:
        """(K, K) 1 where two modes share the effect."""
        if self.kernel is not None:
            return self.kernel
        same: FloatArray = (self.group[:, None] == self.group).astype(np.float64)
        return same


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
        [effect.shared()[np.ix_(seen, seen)] for effect in effects],
        [effect.spectrum for effect in effects],
        np.log([effect.usual for effect in effects]),
    )
    log_scales = model.likeliest()
    contrast, residual = model.solved(log_scales)
    posterior: FloatArray = centre + contrast * (prior - centre)
    for effect, scale in zip(effects, np.exp(log_scales), strict=True):
        posterior += (scale * effect.shared()[:, seen] @ residual.T) * effect.spectrum
    return posterior


@dataclass(frozen=True, eq=False)
class _Model:
    """The released modes, direction by direction."""

    y: FloatArray  # (r, K)
    x: FloatArray  # (r, K) the public contrast, of which β is the coefficient
    noise: FloatArray  # (K,)
    shared: list[FloatArray]  # (K, K) for each effect
    spectra: list[FloatArray]  # (r,) for each effect
    usual: FloatArray  # log of the usual scale of each effect

    def likeliest(self) -> FloatArray:
        """Log scales of highest posterior density."""
        bounds = [(value - np.log(100), value + np.log(100)) for value in self.usual]
        found = minimize(self._loss, self.usual, jac=True, method="L-BFGS-B", bounds=bounds)
        scales: FloatArray = found.x
        return scales

    def solved(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        """(β, C⁻¹(y − βx)) for these scales, the latter (r, K)."""
        inverse = np.linalg.inv(self._covariance(log_scales))
        contrast = self._contrast(inverse)
        return contrast, _times(inverse, self.y - contrast * self.x)

    def _covariance(self, log_scales: FloatArray) -> FloatArray:
        """(r, K, K) of what was released."""
        total = np.broadcast_to(np.diag(self.noise), (len(self.y), *np.diag(self.noise).shape))
        for scale, shared, spectrum in zip(
            np.exp(log_scales), self.shared, self.spectra, strict=True
        ):
            total = total + scale * spectrum[:, None, None] * shared
        return total

    def _contrast(self, inverse: FloatArray) -> float:
        """β by generalised least squares, held near 1."""
        weighted = _times(inverse, self.x)
        held = 1.0 / CONTRAST_UNSURE**2
        return float(((weighted * self.y).sum() + held) / ((weighted * self.x).sum() + held))

    def _loss(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        """Negative log posterior density of the scales at the best β, and its gradient."""
        covariance = self._covariance(log_scales)
        inverse = np.linalg.inv(covariance)
        contrast = self._contrast(inverse)
        residual = self.y - contrast * self.x
        solved = _times(inverse, residual)
        spread = SCALE_DECADES * np.log(10)
        away = (log_scales - self.usual) / spread
        loss = 0.5 * (
            (residual * solved).sum()
            + np.linalg.slogdet(covariance)[1].sum()
            + np.square((contrast - 1) / CONTRAST_UNSURE)
            + np.square(away).sum()
        )
        gradient = away / spread
        for i, (shared, spectrum) in enumerate(zip(self.shared, self.spectra, strict=True)):
            trace = np.einsum("dij,ji->d", inverse, shared)
            fit = ((solved @ shared) * solved).sum(axis=1)
            gradient[i] += 0.5 * np.exp(log_scales[i]) * (spectrum * (trace - fit)).sum()
        return float(loss), gradient


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """(r, K, K) by (r, K) -> (r, K)."""
    product: FloatArray = np.matmul(matrices, vectors[..., None])[..., 0]
    return product

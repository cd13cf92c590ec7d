"""Stacked Gaussians, diagonal or full: log density, sampling, moments and back.

K modes in d dimensions stand in one array, with any number of leading axes (clients, starts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.projection import onto_psd

__all__ = [
    "Gaussians",
    "from_moments",
    "log_density",
    "log_density_of_moments",
    "moments",
    "sample",
]


@dataclass(frozen=True)
class Gaussians:
    """K Gaussians N(μ_k, Σ_k), kept as float64.

    ``mean`` is (..., K, d). ``covariance`` is (..., K, d) when diagonal, (..., K, d, d) when
    full and symmetric; the number of axes tells which.
    """

    mean: FloatArray
    covariance: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", np.asarray(self.mean, dtype=np.float64))
        object.__setattr__(self, "covariance", np.asarray(self.covariance, dtype=np.float64))
        _check_mean(self.mean)
        _check_second("covariance", self.covariance, self.mean)

    @property
    def is_full(self) -> bool:
        """Whether each mode has a matrix, not only a variance for each direction."""
        return self.covariance.ndim > self.mean.ndim


def _check_mean(mean: FloatArray) -> None:
    if mean.ndim < 2 or mean.shape[-1] == 0:
        raise ValueError(f"mean must have shape (..., K, d) with d >= 1, got {mean.shape}")


def _check_second(name: str, second: FloatArray, mean: FloatArray) -> None:
    diagonal, full = mean.shape, (*mean.shape, mean.shape[-1])
    if second.shape not in (diagonal, full):
        raise ValueError(f"{name} must have shape {diagonal} or {full}, got {second.shape}")


def log_density(gaussians: Gaussians, x: FloatArray) -> FloatArray:
    """log N(x_i; μ_k, Σ_k) for x (..., n, d): (..., n, K); leading axes broadcast.

    ``−½ [d log 2π + log|Σ_k| + (x_i − μ_k)ᵀ Σ_k⁻¹ (x_i − μ_k)]``, with no loop in Python.
    """
    points = np.asarray(x, dtype=np.float64)
    d = gaussians.mean.shape[-1]
    if points.ndim < 2 or points.shape[-1] != d:
        raise ValueError(f"x must have shape (..., n, {d}), got {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("x must be finite")
    terms = _full_terms if gaussians.is_full else _diagonal_terms
    distance, log_determinant = terms(gaussians, points)
    density: FloatArray = -0.5 * (d * np.log(2 * np.pi) + log_determinant[..., None, :] + distance)
    return density


def _diagonal_terms(gaussians: Gaussians, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances (..., n, K) and log determinants (..., K).

    ``Σ (x − μ)²/v = x²·(1/v) − 2 x·(μ/v) + Σ μ²/v``: two matmuls and no (n, K, d) array.
    """
    variance = gaussians.covariance
    if not np.all(variance > 0):
        raise ValueError("gaussians.covariance must be positive")
    # Seen from the middle of the data the three terms are small, and little cancels.
    centre = np.sum(x, axis=-2, keepdims=True) / max(x.shape[-2], 1)
    x, mean = x - centre, gaussians.mean - centre
    precision = 1.0 / variance
    distance = np.square(x) @ np.swapaxes(precision, -1, -2)
    distance = distance - 2.0 * (x @ np.swapaxes(mean * precision, -1, -2))
    distance += np.sum(np.square(mean) * precision, axis=-1)[..., None, :]
    return np.maximum(distance, 0.0), np.sum(np.log(variance), axis=-1)


def _full_terms(gaussians: Gaussians, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for matrices: with Σ = CCᵀ the distance is ‖C⁻¹(x − μ)‖²."""
    factor = _cholesky(gaussians.covariance)
    difference = x[..., None, :, :] - gaussians.mean[..., :, None, :]  # (..., K, n, d)
    whitened = np.linalg.solve(factor, np.swapaxes(difference, -1, -2))  # (..., K, d, n)
    distance = np.swapaxes(np.sum(np.square(whitened), axis=-2), -1, -2)
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    return distance, 2.0 * np.sum(np.log(diagonal), axis=-1)


def _cholesky(covariance: FloatArray) -> FloatArray:
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ValueError("gaussians.covariance must be positive definite") from None


def sample(gaussians: Gaussians, modes: IntArray, rng: np.random.Generator) -> FloatArray:
    """One draw from the named mode for each row: modes (n,), mean (K, d) -> (n, d).

    ``μ_k + C_k ε`` with Σ_k = C_k C_kᵀ. ε is drawn in row order, so row i of the same stream is
    the same noise whatever the modes are.
    """
    chosen = np.asarray(modes)
    if gaussians.mean.ndim != 2:
        raise ValueError(f"gaussians.mean must have shape (K, d), got {gaussians.mean.shape}")
    k_modes, d = gaussians.mean.shape
    if chosen.ndim != 1 or (chosen.size and not np.issubdtype(chosen.dtype, np.integer)):
        raise ValueError("modes must be one axis of integers")
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < k_modes):
        raise ValueError(f"modes must lie in 0..{k_modes - 1}")
    chosen = chosen.astype(np.int64)
    noise = rng.standard_normal((chosen.size, d))
    if gaussians.is_full:
        factor = _cholesky(gaussians.covariance)
        for k in np.unique(chosen):  # one matrix at a time: (n, d, d) would not fit
            noise[chosen == k] = noise[chosen == k] @ factor[k].T
    else:
        if not np.all(gaussians.covariance >= 0):
            raise ValueError("gaussians.covariance must not be negative")
        noise *= np.sqrt(gaussians.covariance)[chosen]
    return gaussians.mean[chosen] + noise


def moments(gaussians: Gaussians) -> tuple[FloatArray, FloatArray]:
    """E[z] = μ and the second moment: E[z²] = v + μ² (diagonal) or E[zzᵀ] = Σ + μμᵀ (full)."""
    return gaussians.mean, gaussians.covariance + _square(gaussians.mean, gaussians.is_full)


def from_moments(mean: FloatArray, second: FloatArray, floor: float) -> Gaussians:
    """Σ = M − μμᵀ, symmetrised, eigenvalues raised to ``floor`` (diagonal: variances).

    The inverse of ``moments`` where nothing lies under the floor; with floor > 0 always a proper
    density, whatever noise the moments carry.
    """
    mean, second = np.asarray(mean, dtype=np.float64), np.asarray(second, dtype=np.float64)
    _check_mean(mean)
    _check_second("second", second, mean)
    if not (0 <= floor < np.inf):
        raise ValueError(f"floor must be finite and at least 0, got {floor}")
    is_full = second.ndim > mean.ndim
    raw = second - _square(mean, is_full)
    return Gaussians(mean, onto_psd(raw, floor) if is_full else np.maximum(raw, floor))


def log_density_of_moments(
    mean: FloatArray, second: FloatArray, floor: float, x: FloatArray
) -> FloatArray:
    """``log_density(from_moments(mean, second, floor), x)`` for matrices: (..., n, K), x (n, d).

    Of V diag(λ) Vᵀ = M − μμᵀ with λ raised to ``floor`` > 0 the density needs no covariance:
    ``−½ [d log 2π + Σ_j log λ_j + Σ_j (v_jᵀ(x_i − μ))² / λ_j]``. One matrix at a time, so that all
    of its work stays in the cache.

    Guarantee: equal to the two functions one after the other up to rounding.
    """
    mean, second = np.asarray(mean, dtype=np.float64), np.asarray(second, dtype=np.float64)
    _check_mean(mean)
    if second.shape != (*mean.shape, mean.shape[-1]):
        raise ValueError(f"second must be a matrix for each mean, got {second.shape}")
    if not (0 < floor < np.inf):
        raise ValueError(f"floor must be finite and positive, got {floor}")
    if not (np.isfinite(mean).all() and np.isfinite(second).all()):
        raise ValueError("mean and second must be finite")
    d = mean.shape[-1]
    densities = np.empty((*mean.shape[:-1], len(x)))
    for place in np.ndindex(mean.shape[:-1]):
        raw = second[place] - np.outer(mean[place], mean[place])
        values, vectors = np.linalg.eigh(0.5 * (raw + raw.T))
        values = np.maximum(values, floor)
        distance = np.square((x - mean[place]) @ vectors) @ (1.0 / values)
        densities[place] = -0.5 * (d * np.log(2 * np.pi) + np.log(values).sum() + distance)
    return np.swapaxes(densities, -1, -2)


def _square(mean: FloatArray, is_full: bool) -> FloatArray:
    """μμᵀ for each mode, or only its diagonal."""
    return mean[..., :, None] * mean[..., None, :] if is_full else np.square(mean)

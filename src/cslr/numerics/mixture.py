"""Stacked Gaussians, diagonal or full, and mixtures of them fitted by EM.

K modes in d dimensions are one array, with any number of leading axes (clients, starts). Clients
have different numbers of examples, so x is padded to (b, n, d) and ``mask`` (b, n) says which rows
are real; the values of the others have no effect. EM runs for all clients and all starts at once,
and no operation mixes two clients, so their order does not matter either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_psd
from cslr.numerics.spectral import floored_forms

__all__ = [
    "Gaussians",
    "Mixture",
    "e_step",
    "fit",
    "from_moments",
    "log_density",
    "log_density_of_moments",
    "m_step",
    "moments",
    "one_component",
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
    # Relative to the mean of the data the three terms are small, which limits cancellation.
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

    ``μ_k + C_k ε`` with Σ_k = C_k C_kᵀ. ε is drawn in row order, so the noise of row i does not
    depend on the modes.
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

    The inverse of ``moments`` if nothing is below the floor; with floor > 0 it is always a proper
    density, even if the moments are noisy.
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

    With V diag(λ) Vᵀ = M − μμᵀ and λ raised to ``floor`` > 0, the density
    ``−½ [d log 2π + Σ_j log λ_j + Σ_j (v_jᵀ(x_i − μ))² / λ_j]`` is computed without forming the
    covariance or V. One matrix at a time, so that all of its work stays in the cache.

    Guarantee: equal to the two functions in sequence, up to rounding.
    """
    mean, second = np.asarray(mean, dtype=np.float64), np.asarray(second, dtype=np.float64)
    _check_mean(mean)
    if second.shape != (*mean.shape, mean.shape[-1]):
        raise ValueError(f"second must be a matrix for each mean, got {second.shape}")
    _check_floor(floor)
    if not (np.isfinite(mean).all() and np.isfinite(second).all()):
        raise ValueError("mean and second must be finite")
    d = mean.shape[-1]
    densities = np.empty((*mean.shape[:-1], len(x)))
    for place in np.ndindex(mean.shape[:-1]):
        raw = second[place] - np.outer(mean[place], mean[place])
        distance, log_determinant = floored_forms(0.5 * (raw + raw.T), floor, x - mean[place])
        densities[place] = -0.5 * (d * np.log(2 * np.pi) + log_determinant + distance)
    return np.swapaxes(densities, -1, -2)


def _square(mean: FloatArray, is_full: bool) -> FloatArray:
    """μμᵀ for each mode, or only its diagonal."""
    return mean[..., :, None] * mean[..., None, :] if is_full else np.square(mean)


# -- mixtures --------------------------------------------------------------------------------------

# A component with less than this share of its client's mass cannot change the client's sums.
_EMPTY = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Mixture:
    """Σ_k π_k N(μ_k, Σ_k): weights (..., K) beside the Gaussians of the same leading axes."""

    weights: FloatArray
    gaussians: Gaussians

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=np.float64))
        if self.weights.shape != self.gaussians.mean.shape[:-1]:
            shape = self.gaussians.mean.shape[:-1]
            raise ValueError(f"weights must have shape {shape}, got {self.weights.shape}")
        if not np.all(self.weights >= 0):
            raise ValueError("weights must not be negative")


def _real_rows(x: FloatArray, mask: BoolArray) -> FloatArray:
    """x (..., n, d) with zeros in the rows that ``mask`` (..., n) leaves out."""
    if np.ndim(x) < 2:
        raise ValueError(f"x must have shape (..., n, d), got {np.shape(x)}")
    if mask.dtype != np.bool_ or mask.shape != x.shape[:-1]:
        raise ValueError(f"mask must be booleans of shape {x.shape[:-1]}, got {mask.shape}")
    return np.where(mask[..., None], x, 0.0).astype(np.float64, copy=False)


def _check_floor(floor: float) -> None:
    if not (0 < floor < np.inf):
        raise ValueError(f"floor must be finite and positive, got {floor}")


def e_step(mixture: Mixture, x: FloatArray, mask: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Responsibilities (..., n, K) and log-likelihood (...,) of x (..., n, d) under the mixture.

    ``r_ik = π_k N(x_i; k) / Σ_j π_j N(x_i; j)`` and ``Σ_i log Σ_k π_k N(x_i; k)`` over the real
    rows. Masked rows have responsibility 0, and a client without real rows has log-likelihood 0. A
    mixture whose weights are all 0 gives responsibilities 0 and log-likelihood −∞.
    """
    density = log_density(mixture.gaussians, _real_rows(x, mask))
    with np.errstate(divide="ignore"):
        joint = np.log(mixture.weights)[..., None, :] + density
    peak = np.max(joint, axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    share = np.exp(joint - peak)
    total = np.sum(share, axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        evidence = (np.log(total) + peak)[..., 0]
    share = np.where(mask[..., None], share / np.where(total > 0, total, 1.0), 0.0)
    return share, np.sum(np.where(mask, evidence, 0.0), axis=-1)


def m_step(responsibilities: FloatArray, x: FloatArray, mask: BoolArray, floor: float) -> Mixture:
    """The maximum-likelihood diagonal mixture given responsibilities (..., n, K) of x (..., n, d).

    ``N_k = Σ_i r_ik``, ``π_k = N_k / Σ_j N_j``, ``μ_k = Σ_i r_ik x_i / N_k``,
    ``v_k = max(Σ_i r_ik (x_i − μ_k)² / N_k, floor)``.

    Guarantee: where no variance is floored, Σ_k π_k μ_k and Σ_k π_k (v_k + μ_k²) are the client's
    own mean and second moment. A component without mass has weight 0, mean 0 and variance
    ``floor``; a client without examples has only such components.
    """
    _check_floor(floor)
    rows = _real_rows(x, mask)
    if responsibilities.ndim < 2 or responsibilities.shape[-2] != rows.shape[-2]:
        n = rows.shape[-2]
        raise ValueError(f"responsibilities must be (..., {n}, K), got {responsibilities.shape}")
    share = np.where(mask[..., None], responsibilities, 0.0)
    mass = np.sum(share, axis=-2)  # (..., K)
    empty = mass <= _EMPTY * np.sum(mass, axis=-1, keepdims=True)
    mass = np.where(empty, 0.0, mass)
    weights = mass / _or_one(np.sum(mass, axis=-1, keepdims=True))
    # Relative to the client's own mean the difference of two squares loses little precision.
    centre = _mean(rows, mask)
    transposed = np.swapaxes(share / _or_one(mass)[..., None, :], -1, -2)
    rows = rows - centre  # where a row is masked out, its share is 0
    offset = transposed @ rows
    variance = transposed @ np.square(rows, out=rows)
    variance -= np.square(offset)
    np.maximum(variance, floor, out=variance)
    mean = np.where(empty[..., None], 0.0, offset + centre)
    variance = np.where(empty[..., None], floor, variance)
    return Mixture(weights, Gaussians(mean, variance))


def _or_one(mass: FloatArray) -> FloatArray:
    return np.where(mass > 0, mass, 1.0)


def _mean(rows: FloatArray, mask: BoolArray) -> FloatArray:
    """The mean (..., 1, d) of the real rows, 0 if there is none; other rows must be zeros."""
    count = np.sum(mask, axis=-1)[..., None, None]
    mean: FloatArray = np.sum(rows, axis=-2, keepdims=True) / np.maximum(count, 1)
    return mean


def fit(
    x: FloatArray, mask: BoolArray, starts: FloatArray, iterations: int, floor: float
) -> Mixture:
    """EM with diagonal covariances for x (b, n, d) from starts (s, b, K, d): a Mixture of (b,).

    Every start begins with equal weights and the client's own variances (floored) and takes
    ``iterations`` steps; each client keeps the start of highest likelihood, the first if several
    are equal. K = 1 gives the mean and variance of the real rows. Deterministic; a client's result
    does not depend on other clients.
    """
    _check_floor(floor)
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    means = np.asarray(starts, dtype=np.float64)
    if np.ndim(x) != 3:
        raise ValueError(f"x must have shape (b, n, d), got {np.shape(x)}")
    b, d = x.shape[0], x.shape[2]
    if means.ndim != 4 or 0 in (means.shape[0], means.shape[2]) or means.shape[1::2] != (b, d):
        raise ValueError(f"starts must have shape (s, {b}, K, {d}), got {means.shape}")
    rows = _Rows.of(x, mask)
    mean: FloatArray = np.moveaxis(means, 0, 1) - rows.centre[:, None]  # (b, s, K, d), centred
    variance: FloatArray = np.broadcast_to(
        np.maximum(rows.variance, floor)[:, None, None], mean.shape
    )
    weights: FloatArray = np.full(mean.shape[:-1], 1.0 / mean.shape[2])
    for _ in range(iterations):
        share, _ = _expect(rows, weights, mean, variance)
        weights, mean, variance = _maximise(rows, share, floor)
    best = (np.arange(b), np.argmax(_expect(rows, weights, mean, variance)[1], axis=1))
    weights, mean, variance = weights[best], mean[best], variance[best]
    mean = np.where(weights[..., None] > 0, mean + rows.centre, 0.0)
    return Mixture(weights, Gaussians(mean, variance))


@dataclass(frozen=True, eq=False)
class _Rows:
    """The real rows of b clients, each minus its client's mean; the other rows are zeros."""

    centre: FloatArray  # (b, 1, d)
    powers: FloatArray  # (b, n, 2 d): the rows, and their squares
    mask: BoolArray  # (b, 1, 1, n)

    @classmethod
    def of(cls, x: FloatArray, mask: BoolArray) -> _Rows:
        """Of x (b, n, d)."""
        rows = _real_rows(x, mask)
        if not np.isfinite(rows).all():
            raise ValueError("x must be finite")
        centre, d = _mean(rows, mask), rows.shape[-1]
        powers = np.empty((*rows.shape[:-1], 2 * d))
        np.subtract(rows, centre, out=powers[..., :d])
        powers[..., :d][~mask] = 0.0
        np.square(powers[..., :d], out=powers[..., d:])
        return cls(centre, powers, mask[:, None, None])

    @property
    def variance(self) -> FloatArray:
        """(b, d)."""
        d = self.centre.shape[-1]
        variance: FloatArray = _mean(self.powers[..., d:], self.mask[:, 0, 0])[:, 0]
        return variance


def _expect(
    rows: _Rows, weights: FloatArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """``e_step`` for all starts: shares (b, s, K, n), log-likelihoods (b, s) up to a constant.

    ``Σ (x − μ)²/v = x²·(1/v) − 2 x·(μ/v) + Σ μ²/v``: one product with ``rows.powers`` for each
    client, for all its starts and components together.
    """
    b, s, k, d = mean.shape
    factor = np.empty((b, s, k, 2 * d))
    precision = np.divide(1.0, variance, out=factor[..., d:])
    weighted = np.multiply(mean, precision, out=factor[..., :d])
    constant = np.einsum("bskd,bskd->bsk", weighted, mean)
    weighted *= -2.0
    joint = factor.reshape(b, s * k, 2 * d) @ np.swapaxes(rows.powers, 1, 2)
    joint = joint.reshape(b, s, k, rows.powers.shape[1])
    joint += constant[..., None]
    np.maximum(joint, 0.0, out=joint)  # a squared distance
    joint *= -0.5
    with np.errstate(divide="ignore"):
        joint += (np.log(weights) - 0.5 * np.log(variance).sum(axis=-1))[..., None]
    peak = np.max(joint, axis=2, keepdims=True, initial=-np.inf)
    peak[~np.isfinite(peak)] = 0.0
    joint -= peak
    share = np.exp(joint, out=joint)
    total = share.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        evidence = np.where(rows.mask, np.log(total) + peak, 0.0).sum(axis=(2, 3))
    share *= rows.mask / _or_one(total)
    return share, evidence


def _maximise(
    rows: _Rows, share: FloatArray, floor: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``m_step`` for shares (b, s, K, n): weights (b, s, K), means and variances (b, s, K, d)."""
    b, s, k, n = share.shape
    d = rows.centre.shape[-1]
    mass = share.sum(axis=-1)
    mass[mass <= _EMPTY * mass.sum(axis=-1, keepdims=True)] = 0.0
    sums = (share.reshape(b, s * k, n) @ rows.powers).reshape(b, s, k, 2 * d)
    sums /= _or_one(mass)[..., None]
    mean, variance = sums[..., :d], sums[..., d:]
    variance -= np.square(mean)
    np.maximum(variance, floor, out=variance)
    variance[mass == 0] = floor
    return mass / _or_one(mass.sum(axis=-1, keepdims=True)), mean, variance


def one_component(x: FloatArray, mask: BoolArray, floor: float) -> Mixture:
    """What ``fit`` gives for K = 1: the mean and variance of the real rows of x (b, n, d).

    Guarantee: rows are added up one after the other, so a client's result does not depend on how
    many rows it is padded to.
    """
    _check_floor(floor)
    rows = _real_rows(x, mask)
    count = np.sum(mask, axis=-1)  # (b,)
    weights = (count > 0)[:, None].astype(np.float64)
    if rows.shape[-2] == 1:  # a row is its own mean
        return Mixture(weights, Gaussians(rows, np.broadcast_to(floor, rows.shape)))
    mean = _mean(rows, mask)  # (b, 1, d)
    apart = rows - mean
    if not mask.all():
        apart[~mask] = 0.0
    variance = np.maximum(_mean(np.square(apart, out=apart), mask), floor)
    return Mixture(weights, Gaussians(mean, variance))

"""Euclidean projections onto the ball, the simplex, and the PSD cone with a floor.

All work on the last axis (or the last two) and broadcast over the rest. Each is deterministic.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["onto_ball", "onto_psd", "onto_simplex"]

# Taken off the length of a row that is shortened, so that rounding cannot push it out again.
_SLACK = 4 * float(np.finfo(np.float64).eps)


def _finite(name: str, values: FloatArray, least_ndim: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < least_ndim:
        raise ValueError(f"{name} must have at least {least_ndim} axes, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array


def onto_ball(x: FloatArray, radius: float) -> FloatArray:
    """The nearest point of the ball: ``x · min(1, radius / ‖x‖)`` for each row of x (..., D).

    Rows already inside come back bit for bit, so projecting twice is projecting once; with an
    infinite radius all are. A longer row is shortened to ``radius`` less a few ulp.

    Guarantee: ‖result‖ <= radius, up to one ulp of the norm's own summation. A row that is not
    finite is refused, never passed on.
    """
    rows = _finite("x", x, least_ndim=1)
    if not radius >= 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
    # Dividing by the largest coordinate first keeps the squares from over- or underflowing.
    peak = np.max(np.abs(rows), axis=-1, keepdims=True, initial=0.0)
    scaled = rows / np.where(peak > 0, peak, 1.0)
    norm = np.sqrt(np.sum(np.square(scaled), axis=-1, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite radius times 0
        outside = peak * norm > radius
        shortened = scaled / np.where(outside, norm, 1.0) * (radius * (1.0 - _SLACK))
    return np.where(outside, shortened, rows)


def onto_simplex(v: FloatArray) -> FloatArray:
    """The nearest weights: argmin ‖w − v‖ over w >= 0, Σ w = 1, for each row of v (..., K).

    w = max(v − θ, 0), with θ read off the sorted row: the largest j such that
    ``j·v₍j₎ > Σ_{i<=j} v₍i₎ − 1`` gives ``θ = (Σ_{i<=j} v₍i₎ − 1) / j``.

    Guarantee: entries >= 0 that sum to 1 up to rounding, whatever the size of v.
    """
    rows = _finite("v", v, least_ndim=1)
    if rows.shape[-1] == 0:
        raise ValueError("v must have at least one column")
    # Adding a constant changes nothing, and what lies 1 below the largest entry is always 0.
    with np.errstate(over="ignore"):
        rows = np.maximum(rows - np.max(rows, axis=-1, keepdims=True), -1.0)
    descending = -np.sort(-rows, axis=-1)
    excess = np.cumsum(descending, axis=-1) - 1.0
    count = np.arange(1, rows.shape[-1] + 1)
    support = np.sum(count * descending > excess, axis=-1, keepdims=True)
    theta = np.take_along_axis(excess, support - 1, axis=-1) / support
    weights: FloatArray = np.maximum(rows - theta, 0.0)
    return weights


def onto_psd(covariance: FloatArray, floor: float) -> FloatArray:
    """Symmetrise, then raise the eigenvalues of each (..., d, d) to at least ``floor``.

    ``V max(λ, floor) Vᵀ`` is the nearest matrix (Frobenius) among those Σ ⪰ floor·I. A matrix
    whose eigenvalues all reach the floor is only symmetrised.

    Guarantee: exactly symmetric; smallest eigenvalue >= floor up to rounding of ‖Σ‖.
    """
    matrix = _finite("covariance", covariance, least_ndim=2)
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"covariance must be square, got shape {matrix.shape}")
    if not (0 <= floor < np.inf):
        raise ValueError(f"floor must be finite and at least 0, got {floor}")
    symmetric = 0.5 * (matrix + np.swapaxes(matrix, -1, -2))
    values, vectors = np.linalg.eigh(symmetric)
    raised = (vectors * np.maximum(values, floor)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    raised = 0.5 * (raised + np.swapaxes(raised, -1, -2))
    reaches = np.all(values >= floor, axis=-1)[..., None, None]
    return np.where(reaches, symmetric, raised)

"""One symmetric matrix of second moments for all modes of a task.

A unit sends Σ w (x − p)(x − p)ᵀ over its rows, p the prototype of a row's mode, in the leading r₂
public directions: its upper triangle, times √2 so that it is as long as the matrix. From the sums
of all tasks the reader gets M, the pooled covariance W within modes plus a symmetric matrix of
independent noise of known variance v. Of all estimates that keep the eigenvectors of M, the one
nearest to W moves its eigenvalues λ to

    λ_i − 2 v Σ_j (λ_i − λ_j) / ((λ_i − λ_j)² + v),

which undoes how noise drives eigenvalues apart (Bun, Allez, Bouchaud and Potters, 2016). The
eigenvectors are noisy, too, so the result is drawn to its mean eigenvalue as far as noise goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = ["pooled_covariance", "symmetric", "tied_factors"]

FLOOR: Final = 0.1
"""Least variance in any direction, relative to their mean."""
RIDGE: Final = 0.5
"""How far variances are drawn to their mean where noise is much larger than they are."""
_NO_NOISE: Final = 1e-18


def tied_factors(x: FloatArray, examples: Examples, request: Request) -> FloatArray:
    """(b, n, r₂) F of b units with coordinates x (b, n, r): FᵀF is what they send, unclipped."""
    layout = request.layout
    groups = [group[0] for group in request.groups]
    full = request.resolution.full_weight
    places, weights = row_weights(examples.labels, examples.mask, groups, full)
    away = x[..., : layout.tied] - request.prototypes.mean[:, : layout.tied][places]
    away *= np.sqrt(weights * layout.tied_scale)[..., None]
    return away


def symmetric(triangle: FloatArray, directions: int) -> FloatArray:
    """The symmetric matrix (r, r) of an upper triangle (r (r + 1) / 2,)."""
    matrix = np.zeros((directions, directions))
    up, across = np.triu_indices(directions)
    matrix[up, across] = matrix[across, up] = triangle
    return matrix


def row_weights(
    labels: IntArray, mask: BoolArray, groups: Sequence[int], full: int
) -> tuple[IntArray, FloatArray]:
    """(b, n) the place of each row's label among ``groups``, and the weight of the row.

    The rows of a label share its weight, min(n, full) / full.
    """
    places = np.zeros(labels.shape, dtype=np.int64)
    weights = np.zeros(labels.shape)
    for place, label in enumerate(groups):
        mine = mask & (labels == label)
        count = mine.sum(axis=1, keepdims=True)
        places[mine] = place
        weights += mine * (np.minimum(count, full) / (full * np.maximum(count, 1)))
    return places, weights


def pooled_covariance(observed: FloatArray, variance: float, tempered: FloatArray) -> FloatArray:
    """W (d, d) from its observed leading block (r₂, r₂).

    variance: of the noise of an entry. tempered: (d, d) the public shape, which the other
    directions keep, at the scale of the block.
    """
    r, noise = len(observed), max(variance, _NO_NOISE)
    values, vectors = np.linalg.eigh(observed)
    mean = max(float(values.mean()), np.sqrt(_NO_NOISE))
    values = np.maximum(_without_spread(values, noise), FLOOR * mean)
    radius = np.sqrt(r * noise)  # half of how far noise alone spreads eigenvalues
    ridge = RIDGE * radius / (radius + mean)
    values = (1 - ridge) * values + ridge * mean
    whole: FloatArray = tempered * (values.sum() / np.trace(tempered[:r, :r]))
    whole[:r, r:] = whole[r:, :r] = 0.0
    whole[:r, :r] = (vectors * values) @ vectors.T
    return whole


def _without_spread(values: FloatArray, noise: float) -> FloatArray:
    """Eigenvalues (r,) of a symmetric matrix without what noise of its entries did to them."""
    apart = values[:, None] - values
    moved: FloatArray = values - 2 * noise * (apart / (np.square(apart) + noise)).sum(axis=1)
    return moved

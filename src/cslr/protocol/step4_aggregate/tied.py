"""One symmetric matrix of second moments for all modes of a task.

A unit sends Σ w (x − p)(x − p)ᵀ over its rows, p the prototype of a row's mode, in the leading r₂
public directions: its upper triangle, times √2 so that it is as long as the matrix. From the sums
of all tasks the reader gets W, the pooled covariance within modes, entry by entry in the eigenbasis
of the public covariance B within topics: with eigenvalues b_i

    W_ij ~ N(δ_ij s b_i^g, t s² b_i^g b_j^g (1 + δ_ij)),   observed with noise of known size,

s, g and t being the likeliest given all entries. So each entry is trusted as far as it exceeds its
noise, and where noise is heavy W is the public shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import minimize

from cslr.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = ["TiedCovariance", "pooled_covariance", "symmetric", "tied_factors"]

FLOOR: Final = 0.25
"""Least variance in any direction, relative to the fitted public shape."""
USUAL_POWER: Final = 1.0
POWER_UNSURE: Final = 0.3
USUAL_DIFFERENCE: Final = 0.05
"""t: variance of relative differences between a covariance and the public one."""
_BINS: Final = 200
_LEAST: Final = 1e-4
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


@dataclass(frozen=True, eq=False)
class TiedCovariance:
    """The covariance within modes, and how far it is known."""

    covariance: FloatArray  # (d, d) in the public basis
    trust: float
    """From 0, the public shape, to 1: the mean share of its entries that is seen beyond noise."""


def pooled_covariance(
    observed: FloatArray, variance: float, public: FloatArray, tempered: FloatArray
) -> TiedCovariance:
    """W (d, d) from its observed leading block (r₂, r₂).

    variance: of the noise of an entry. public: (d, d) the public
    covariance within topics; tempered: (d, d) the shape that modes have where nothing is known.
    """
    r = len(observed)
    spectrum, basis = np.linalg.eigh(public[:r, :r])
    spectrum = np.maximum(spectrum, _LEAST * spectrum.max())
    seen = basis.T @ observed @ basis
    noise = max(variance, _NO_NOISE)
    shape, difference = _fitted(seen, noise, spectrum)
    signal = difference * np.outer(shape, shape) * (1 + np.eye(r))
    gain = signal / (signal + noise)
    known = np.diag(shape) + gain * (seen - np.diag(shape))
    trust = float(gain.mean())
    block = basis @ _floored(known, shape) @ basis.T
    return TiedCovariance(_whole(block, trust, tempered), trust)


def _floored(matrix: FloatArray, shape: FloatArray) -> FloatArray:
    """``matrix`` with no direction below ``FLOOR`` of diag(shape)."""
    root = np.sqrt(shape)
    values, vectors = np.linalg.eigh(matrix / np.outer(root, root))
    floored: FloatArray = ((vectors * np.maximum(values, FLOOR)) @ vectors.T) * np.outer(root, root)
    return floored


def _whole(block: FloatArray, trust: float, tempered: FloatArray) -> FloatArray:
    """(d, d) the block tempered as far as it is not known, beside the public shape.

    Whitening by a shape trusts directions in which means are mostly noise: the power of the shape
    rises from ½ to 1 as the matrix becomes known.
    """
    r = len(block)
    values, vectors = np.linalg.eigh(block)
    power = 0.5 + 0.5 * trust**4
    powered = np.maximum(values, _LEAST * values.max()) ** power
    powered *= values.sum() / powered.sum()
    whole: FloatArray = tempered * (values.sum() / np.trace(tempered[:r, :r]))
    whole[:r, r:] = whole[r:, :r] = 0.0
    whole[:r, :r] = (vectors * powered) @ vectors.T
    return whole


def _fitted(seen: FloatArray, noise: float, spectrum: FloatArray) -> tuple[FloatArray, float]:
    """(r,) s b^g and t of highest posterior density.

    Off the diagonal a variance depends on b_i b_j alone, so entries are gathered in bins of it.
    """
    logs = np.log(spectrum / spectrum.mean())
    off = np.triu_indices(len(seen), 1)
    products = logs[off[0]] + logs[off[1]]
    edges = np.linspace(products.min(), products.max() + 1e-9, _BINS + 1)
    place = np.clip(np.digitize(products, edges) - 1, 0, _BINS - 1)
    count = np.bincount(place, minlength=_BINS)
    squares = np.bincount(place, weights=np.square(seen[off]), minlength=_BINS)
    middle = (edges[:-1] + edges[1:]) / 2
    diagonal = np.diagonal(seen)

    def loss(found: FloatArray) -> float:
        scale, power, difference = found
        shape = np.exp(scale + power * logs)
        of_bins = np.exp(difference + 2 * scale + power * middle) + noise
        of_diagonal = 2 * np.exp(difference) * np.square(shape) + noise
        misfit = (count * np.log(of_bins) + squares / of_bins).sum()
        misfit += (np.log(of_diagonal) + np.square(diagonal - shape) / of_diagonal).sum()
        away = ((power - USUAL_POWER) / POWER_UNSURE) ** 2
        away += (difference - np.log(USUAL_DIFFERENCE)) ** 2
        return float(misfit + away) / 2

    start = np.log(max(float(np.mean(diagonal)), _LEAST * float(spectrum.mean())))
    found = minimize(loss, [start, USUAL_POWER, np.log(USUAL_DIFFERENCE)], method="Nelder-Mead").x
    return np.exp(found[0] + found[1] * logs), float(np.exp(found[2]))

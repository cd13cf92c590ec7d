"""Functions of vectors and covariances: row by row, projected, shrunk, and factored.

Projections are Euclidean, onto the ball, the simplex, and the PSD cone with a floor. All work on
the last axis (or the last two), broadcast over the rest, and are deterministic.

Shrinkage moves a covariance of few samples towards a multiple of the identity by a closed form. It
keeps the eigenvectors and the trace. Small eigenvalues, which few samples underestimate (as zero if
there are fewer samples than dimensions), are raised, and large ones lowered.
Reference: Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
estimation", IEEE Transactions on Signal Processing 58(10), 2010, eq. (23), the oracle approximating
shrinkage (OAS). Like scikit-learn, it leaves out the terms in 2/d, which vanish in high dimension.

Factored covariances are covariances of K values that share random effects, stored without K × K
matrices. In each of r directions

    C = D + U A Uᵀ,   D diagonal, U (K, q) the loadings of the factors, A diagonal (q, q),

so by Woodbury's identity C⁻¹ = D⁻¹ − D⁻¹ U P Uᵀ D⁻¹ with P = A^½ M⁻¹ A^½ and
M = I + A^½ Uᵀ D⁻¹ U A^½, and log|C| = log|D| + log|M|. A direction costs K q² + q³, while a dense
inverse costs K³; with one effect that all values share, q = 1.

If one effect is constant within each of g disjoint groups of values, it need not be among the
factors: with B = D + a G Gᵀ in place of D, where G (K, g) is the indicator matrix of the groups,

    B⁻¹ = D⁻¹ − D⁻¹ G W Gᵀ D⁻¹,   W = a / (1 + a s) diagonal, s = Gᵀ D⁻¹ 1

(Sherman and Morrison, group by group). A direction then costs K q² + q³ for any number of groups;
among the factors they would cost K g² + g³.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = [
    "FactoredCovariances",
    "GroupedCovariances",
    "Groups",
    "SquareRoots",
    "factored",
    "folded",
    "grouped",
    "membership",
    "onto_ball",
    "onto_psd",
    "onto_simplex",
    "row_by_row",
    "shrunk_covariance",
    "unfolded",
]


def row_by_row(function: Callable[[FloatArray], FloatArray], z: FloatArray) -> FloatArray:
    """``function`` of each row of z (..., a), as (..., b).

    Guarantee: a row of the result depends on that row alone, bit for bit. A product of all rows at
    once would not guarantee this: its rounding of a row can depend on the number of rows.
    """
    rows = z.reshape(-1, z.shape[-1])
    if not len(rows):
        return function(z)
    changed = np.concatenate([function(row[None]) for row in rows])
    return changed.reshape(*z.shape[:-1], changed.shape[-1])


# -- projections -----------------------------------------------------------------------------------

# Relative margin below the radius, so that rounding cannot push a clipped row outside again.
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

    Rows inside the ball are returned bit for bit, so projecting twice changes nothing; with an
    infinite radius all rows are inside. A longer row is shortened to ``radius`` less a few ulp.

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

    w = max(v − θ, 0), with θ computed from the sorted row: the largest j such that
    ``j·v₍j₎ > Σ_{i<=j} v₍i₎ − 1`` gives ``θ = (Σ_{i<=j} v₍i₎ − 1) / j``.

    Guarantee: entries >= 0 that sum to 1 up to rounding, whatever the size of v.
    """
    rows = _finite("v", v, least_ndim=1)
    if rows.shape[-1] == 0:
        raise ValueError("v must have at least one column")
    # A constant shift does not change the result, and entries 1 below the largest become 0.
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


# -- symmetric matrices as triangles ---------------------------------------------------------------


def folded(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices (..., r, r) -> upper triangles of the same norm (entries off the diagonal
    times √2)."""
    places, factors = _triangle(matrices.shape[-1])
    flat = matrices.reshape(*matrices.shape[:-2], -1)
    triangle: FloatArray = flat.take(places, axis=-1)
    triangle *= factors
    return triangle


@lru_cache(maxsize=4)
def _triangle(dimension: int) -> tuple[IntArray, FloatArray]:
    """The indices of the upper triangle in a flat matrix, and the factor of each entry."""
    up, across = np.triu_indices(dimension)
    return up * dimension + across, np.where(up == across, 1.0, np.sqrt(2.0))


def unfolded(triangles: FloatArray, dimension: int) -> FloatArray:
    """The inverse of ``folded``."""
    places, factors = _square(dimension)
    flat: FloatArray = triangles.take(places, axis=-1)
    flat /= factors
    return flat.reshape(*triangles.shape[:-1], dimension, dimension)


@lru_cache(maxsize=4)
def _square(dimension: int) -> tuple[IntArray, FloatArray]:
    """For each entry of a flat matrix its index in the upper triangle, and its factor."""
    up, across = np.triu_indices(dimension)
    places = np.empty((dimension, dimension), dtype=np.int64)
    places[up, across] = places[across, up] = np.arange(len(up))
    factors = np.where(np.eye(dimension, dtype=np.bool_), 1.0, np.sqrt(2.0))
    return places.ravel(), factors.ravel()


# -- square roots ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SquareRoots:
    """A covariance, whose square roots are computed at first use."""

    covariance: FloatArray  # (d, d)

    @cached_property
    def factor(self) -> FloatArray:
        """(d, d) the symmetric square root: white noise times it has this covariance."""
        values, vectors = self._eigen
        return ((vectors * np.sqrt(values)) @ vectors.T).astype(np.float32)

    @property
    def whitening(self) -> FloatArray:
        """(d, d) the inverse of the factor."""
        values, vectors = self._eigen
        whitening: FloatArray = (vectors / np.sqrt(values)) @ vectors.T
        return whitening

    @cached_property
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        values, vectors = np.linalg.eigh(self.covariance)
        return values, vectors


# -- shrinkage of covariances ----------------------------------------------------------------------


def oas_intensity(covariance: FloatArray, samples: float) -> float:
    """ρ in [0, 1], the weight of the identity; if small, about effective rank / samples.

        ρ = (tr S² + tr² S) / ((n + 1) (tr S² − tr² S / d))

    covariance: (d, d) S of ``samples`` n independent samples around a known mean. A multiple of the
    identity, zero included, has ρ = 1, and shrinking does not change it.
    """
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"covariance must be a square matrix, got shape {covariance.shape}")
    if not np.isfinite(covariance).all():
        raise ValueError("covariance must be finite")
    if not samples > 0:
        raise ValueError(f"samples must be greater than 0, not {samples:g}")
    squares = float(np.square(covariance).sum())
    trace_squared = float(np.trace(covariance)) ** 2
    unequal = (samples + 1.0) * (squares - trace_squared / len(covariance))
    if unequal <= 0:
        return 1.0
    return min(1.0, (squares + trace_squared) / unequal)


def shrunk_covariance(covariance: FloatArray, samples: float) -> FloatArray:
    """(d, d) (1 − ρ) S + ρ (tr S / d) I with ρ of ``oas_intensity``; it has the trace of S."""
    intensity = oas_intensity(covariance, samples)
    shrunk: FloatArray = (1.0 - intensity) * covariance
    shrunk[np.diag_indices_from(shrunk)] += intensity * np.trace(covariance) / len(covariance)
    return shrunk


# -- covariances of values that share effects ------------------------------------------------------

NUMBERS: Final = 1 << 21
"""Numbers in memory at a time while factors are summed, for any number of directions."""


@dataclass(frozen=True, eq=False)
class FactoredCovariances:
    """r covariances, factored."""

    factors: FloatArray  # (K, q) U
    ends: IntArray  # (effects + 1,) effect e has the columns of U from ends[e] to ends[e + 1]
    precision: FloatArray  # (r, K) 1 / D
    within: FloatArray  # (r, q, q) Uᵀ D⁻¹ U
    core: FloatArray  # (r, q, q) P
    log_determinant: FloatArray  # (r,)

    def solve(self, vectors: FloatArray) -> FloatArray:
        """(r, K) C⁻¹ v of vectors (r, K)."""
        scaled = self.precision * vectors
        inner = np.matmul(self.core, (scaled @ self.factors)[..., None])[..., 0]  # (r, q)
        solved: FloatArray = scaled - self.precision * (inner @ self.factors.T)
        return solved

    def diagonal_of_inverse(self) -> FloatArray:
        """(r, K) the diagonal of C⁻¹."""
        taken = np.zeros_like(self.precision)
        for some in _pieces(len(taken), self.factors.size):
            taken[some] = ((self.factors @ self.core[some]) * self.factors).sum(axis=-1)
        diagonal: FloatArray = self.precision - np.square(self.precision) * taken
        return diagonal

    def traces(self) -> list[FloatArray]:
        """For each effect (r,) tr(C⁻¹ Z Zᵀ), Z its columns of U."""
        return _traces_of(self.within, self.core, self.ends)


def membership(group: IntArray) -> FloatArray:
    """(K, groups) 1 where a value belongs to a group; group: (K,) numbers from 0 on."""
    members: FloatArray = (group[:, None] == np.arange(int(group.max()) + 1)).astype(np.float64)
    return members


def factored(
    diagonal: FloatArray, effects: Sequence[FloatArray], amounts: Sequence[FloatArray]
) -> FactoredCovariances:
    """C of a diagonal (r, K) and effects: factors (K, ·) of each, and its variance (r,)."""
    together, ends = _side_by_side(diagonal.shape[1], effects)
    precision = 1.0 / diagonal
    within = np.concatenate(
        [
            (together.T * precision[some, None, :]) @ together
            for some in _pieces(len(diagonal), together.size)
        ]
    )
    core, log_capacitance = _capacitance(within, ends, amounts)
    log_determinant = np.log(diagonal).sum(axis=1) + log_capacitance
    return FactoredCovariances(together, ends, precision, within, core, log_determinant)


def _side_by_side(values: int, effects: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """(K, q) the factors of all effects, and (effects + 1,) where the columns of each begin."""
    counts = np.array([factors.shape[1] for factors in effects], dtype=np.int64)
    together = np.concatenate([np.zeros((values, 0)), *effects], axis=1)
    return together, np.concatenate([[0], np.cumsum(counts)])


def _capacitance(
    within: FloatArray, ends: IntArray, amounts: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """P (r, q, q) and log|M| (r,) of Uᵀ D⁻¹ U (r, q, q) and each effect's variance (r,)."""
    directions, q = within.shape[:2]
    each = np.stack([np.zeros(directions), *amounts], axis=1)[:, 1:]  # there may be none
    root = np.sqrt(np.repeat(each, np.diff(ends), axis=1))  # (r, q)
    scaled = root[:, :, None] * within * root[:, None, :] + np.eye(q)
    core: FloatArray = root[:, :, None] * np.linalg.inv(scaled) * root[:, None, :]
    return core, np.linalg.slogdet(scaled)[1]


def _traces_of(within: FloatArray, core: FloatArray, ends: IntArray) -> list[FloatArray]:
    """For each effect (r,) the trace of its block of Uᵀ C⁻¹ U."""
    seen = within - within @ core @ within
    diagonal = np.diagonal(seen, axis1=-2, axis2=-1)  # (r, q)
    spans = pairwise(ends)
    return [diagonal[:, begin:end].sum(axis=1) for begin, end in spans]


def _pieces(directions: int, numbers: int) -> Iterator[slice]:
    """Slices of the directions, of which each needs ``numbers`` numbers in memory."""
    some = max(1, NUMBERS // max(numbers, 1))
    return (slice(begin, begin + some) for begin in range(0, directions, some))


@dataclass(frozen=True, eq=False)
class Groups:
    """Disjoint groups of values that share an effect."""

    of: IntArray  # (K,) the group of each value, numbered from 0 without gaps

    @cached_property
    def count(self) -> int:
        """g, the number of groups."""
        return int(self.of.max()) + 1

    def sums(self, values: FloatArray, axis: int = -1) -> FloatArray:
        """Sums over the values of each group: g numbers instead of K along an axis."""
        order, begin = self._order
        if order is not None:
            values = np.take(values, order, axis=axis)
        added: FloatArray = np.add.reduceat(values, begin, axis=axis)
        return added

    @cached_property
    def _order(self) -> tuple[IntArray | None, IntArray]:
        """The order that sorts values by group (None if they are sorted), and group starts."""
        order = np.argsort(self.of, kind="stable")
        begin = np.searchsorted(self.of[order], np.arange(self.count))
        return (None if (np.diff(order) > 0).all() else order), begin


@dataclass(frozen=True, eq=False)
class GroupedCovariances:
    """r covariances, inverted group by group."""

    groups: Groups
    factors: FloatArray  # (K, q) U
    ends: IntArray  # (effects + 1,) effect e has the columns of U from ends[e] to ends[e + 1]
    precision: FloatArray  # (r, K) 1 / D
    kept: FloatArray  # (r, g) 1 / (1 + a s)
    taken: FloatArray  # (r, g) W
    within: FloatArray  # (r, q, q) Uᵀ B⁻¹ U
    core: FloatArray  # (r, q, q)
    log_determinant: FloatArray  # (r,)

    def solve(self, vectors: FloatArray) -> FloatArray:
        """(r, K) C⁻¹ v of vectors (r, K)."""
        solved = self._group_by_group(vectors)
        inner = np.matmul(self.core, (solved @ self.factors)[..., None])[..., 0]  # (r, q)
        both: FloatArray = solved - self._group_by_group(inner @ self.factors.T)
        return both

    def diagonal_of_inverse(self) -> FloatArray:
        """(r, K) the diagonal of C⁻¹."""
        return self._diagonals[0]

    def traces(self) -> list[FloatArray]:
        """For each effect of U (r,) tr(C⁻¹ Z Zᵀ), Z its columns of U."""
        return _traces_of(self.within, self.core, self.ends)

    def trace_of_groups(self) -> FloatArray:
        """(r,) tr(C⁻¹ G Gᵀ)."""
        return self._diagonals[1]

    @cached_property
    def _diagonals(self) -> tuple[FloatArray, FloatArray]:
        """(r, K) the diagonal of C⁻¹, and (r,) the trace of Gᵀ C⁻¹ G."""
        of, precision = self.groups.of, self.precision
        diagonal = precision - np.square(precision) * self.taken[:, of]
        trace = (self.groups.sums(precision) * self.kept).sum(axis=1)
        for some, scaled, sums in _solved_columns(precision, self.factors, self.groups):
            columns = scaled - precision[some, :, None] * (self.taken[some, :, None] * sums)[:, of]
            diagonal[some] -= ((columns @ self.core[some]) * columns).sum(axis=-1)
            shared = self.kept[some, :, None] * sums
            trace[some] -= ((shared @ self.core[some]) * shared).sum(axis=(1, 2))
        return diagonal, trace

    def _group_by_group(self, vectors: FloatArray) -> FloatArray:
        """(r, K) B⁻¹ v of vectors (r, K)."""
        scaled = self.precision * vectors
        shared = (self.taken * self.groups.sums(scaled))[:, self.groups.of]
        solved: FloatArray = scaled - self.precision * shared
        return solved


def grouped(
    diagonal: FloatArray,
    groups: Groups,
    amount: FloatArray,
    effects: Sequence[FloatArray],
    amounts: Sequence[FloatArray],
) -> GroupedCovariances:
    """C of a diagonal (r, K), groups with a variance (r,), and effects as in ``factored``."""
    factors, ends = _side_by_side(diagonal.shape[1], effects)
    precision = 1.0 / diagonal
    loaded = 1.0 + amount[:, None] * groups.sums(precision)  # (r, g) 1 + a s
    taken = amount[:, None] / loaded
    within = np.empty((len(diagonal), factors.shape[1], factors.shape[1]))
    for some, scaled, sums in _solved_columns(precision, factors, groups):
        shared = np.swapaxes(sums, 1, 2) @ (taken[some, :, None] * sums)
        within[some] = factors.T @ scaled - shared
    core, log_capacitance = _capacitance(within, ends, amounts)
    log_determinant = np.log(diagonal).sum(axis=1) + np.log(loaded).sum(axis=1) + log_capacitance
    return GroupedCovariances(
        groups, factors, ends, precision, 1.0 / loaded, taken, within, core, log_determinant
    )


def _solved_columns(
    precision: FloatArray, factors: FloatArray, groups: Groups
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """For slices of s directions: D⁻¹ U (s, K, q) and Gᵀ D⁻¹ U (s, g, q)."""
    for some in _pieces(len(precision), factors.size):
        scaled = precision[some, :, None] * factors
        yield some, scaled, groups.sums(scaled, axis=1)

"""The client's contribution: one vector of all modes and blocks, clipped once.

For each mode k the client adds up, over the candidates it matched to k,

    weight   w_k                 the client's weight, at most 1 over all modes of a label
    offset   w_k (μ_k − p_k)     relative to the public prototype p_k
    second   w_k (M_k − M_pk)    the same for second moments, as a share of the public spread
    target   w_k (y_k − u_k)     the mean target beyond what is usual for the mode's label

each block times a public scale. The vector of all of them is the unit of clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.gaussian import Gaussians, moments
from cslr.numerics.mixture import Mixture
from cslr.protocol.step1_list import GroupLists, shares_of
from cslr.protocol.step4_aggregate.selection import votes

if TYPE_CHECKING:
    from cslr.protocol.ports import Request

__all__ = [
    "FULL_WEIGHT",
    "Layout",
    "Statistics",
    "folded",
    "full_second_moments",
    "group_statistics",
    "joined",
    "mode_statistics",
    "unfolded",
]

FULL_WEIGHT: Final = 8
"""Examples from which on a client's label counts fully: w = min(n, 8) / 8."""


NO_MATRIX: Final[FloatArray] = np.zeros(0)
"""Of statistics that carry none."""


@dataclass(frozen=True)
class Statistics:
    """Sums over candidates or clients, with any leading axes."""

    weight: FloatArray  # (..., K)
    offset: FloatArray  # (..., K, r)
    second: FloatArray  # (..., K, s), s = 1 (shared), r (diagonal) or r (r + 1) / 2 (full)
    target: FloatArray  # (..., K, outputs), or (..., K, 0) where the label settles the target
    tied: FloatArray = field(default_factory=lambda: NO_MATRIX)
    """(..., r₂ (r₂ + 1) / 2) of all modes together, see ``tied``; empty if there is none."""

    def __post_init__(self) -> None:
        if self.tied is NO_MATRIX:  # with the leading axes of the others
            object.__setattr__(self, "tied", np.zeros((*self.weight.shape[:-1], 0)))


@dataclass(frozen=True)
class Layout:
    """The layout of a contribution: the position and the public scale of each number."""

    modes: int  # K
    dimension: int  # r
    seconds: int  # s
    targets: int  # outputs, or 0
    weight_scale: float
    second_scale: float
    target_scale: float
    tied: int = 0  # r₂
    tied_scale: float = 1.0

    @property
    def held(self) -> int:
        """Numbers of a unit with one row until they are summed: a matrix is not formed."""
        return self.modes * self.width + self.tied

    @property
    def size(self) -> int:
        """D: coordinates of one contribution."""
        return self.modes * self.width + self.tied * (self.tied + 1) // 2

    @property
    def width(self) -> int:
        """Coordinates of one mode."""
        return 1 + self.dimension + self.seconds + self.targets

    def pack(self, statistics: Statistics) -> FloatArray:
        """Statistics (b, K, ·) -> vectors (b, D)."""
        blocks = np.concatenate(
            [
                statistics.weight[..., None] * self.weight_scale,
                statistics.offset,
                statistics.second * self.second_scale,
                statistics.target * self.target_scale,
            ],
            axis=-1,
        )
        vectors: FloatArray = blocks.reshape(*blocks.shape[:-2], self.modes * self.width)
        return np.concatenate([vectors, statistics.tied * self.tied_scale], axis=-1)

    def blocks(self, statistics: Statistics) -> list[FloatArray]:
        """Statistics (b, K, ·) -> its four kinds, (b, ·) each, unscaled: the paper's way."""
        kinds = (
            statistics.weight[..., None],
            statistics.offset,
            statistics.second,
            statistics.target,
        )
        return [kind.reshape(*kind.shape[:-2], -1) for kind in kinds]

    def from_blocks(self, blocks: Sequence[FloatArray]) -> Statistics:
        """The inverse of ``blocks``."""
        weight, offset, second, target = (
            block.reshape(*block.shape[:-1], self.modes, -1) for block in blocks
        )
        return Statistics(weight[..., 0], offset, second, target)

    def unpack(self, vector: FloatArray) -> Statistics:
        """The inverse of ``pack``."""
        vector, tied = np.split(vector, [self.modes * self.width], axis=-1)
        blocks = vector.reshape(*vector.shape[:-1], self.modes, self.width)
        ends = np.cumsum([1, self.dimension, self.seconds])
        weight, offset, second, target = np.split(blocks, ends, axis=-1)
        return Statistics(
            weight[..., 0] / self.weight_scale,
            offset,
            second / self.second_scale,
            target / self.target_scale,
            tied / self.tied_scale,
        )


def group_statistics(
    x: FloatArray, group: GroupLists, ids: IntArray, targets: FloatArray, request: Request
) -> Statistics:
    """Statistics (b, J, ·) of b clients about one group, from their coordinates x (b, n, r).

    ids: (b, L) the canonical ids of their candidates; targets: (b, L, o), see ``mode_statistics``.
    """
    space, seconds, offered = request.space, request.layout.seconds, request.candidates
    lists, place = group.lists, group.place
    return mode_statistics(
        lists,
        ids,
        group.counts,
        targets,
        request.prototypes_of(place),
        SecondMoments(space.spread, seconds),
        request.learner.weight_floor,
        full_weight=request.resolution.full_weight,
        full=full_second_moments(x, group.mine, lists) if seconds > space.dimension else None,
        ballots=None if offered is None else votes(lists.gaussians.mean, offered[place]),
    )


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """PUBLIC. How second moments are sent: relative to ``spread``, as one number or as r."""

    spread: FloatArray  # (r,)
    count: int


def mode_statistics(
    lists: Mixture,
    ids: IntArray,
    counts: IntArray,
    targets: FloatArray,
    prototypes: Gaussians,
    seconds: SecondMoments,
    weight_floor: float,
    *,
    full_weight: int = FULL_WEIGHT,
    full: FloatArray | None = None,
    ballots: FloatArray | None = None,
) -> Statistics:
    """Statistics (b, J, ·) of one label's candidates (b, L, r) matched to prototypes (J, r).

    counts: (b,) examples of each client, which count fully from ``full_weight`` on. targets:
    (b, L, o) the candidates' mean targets beyond the usual one, o = 0 where they are not sent. A
    candidate lighter than ``weight_floor`` (π_min) counts half: it is down-weighted, never dropped.

    full: (b, L, s) the candidates' whole second moments, if they are to be sent. ballots: (b, L, V)
    their votes for public means, if these are selected and not averaged.
    """
    modes = prototypes.mean.shape[-2]
    amount = np.minimum(counts, full_weight) / full_weight
    weight = lists.weights * np.where(lists.weights < weight_floor, 0.5, 1.0) * amount[:, None]
    to_mode = weight[..., None] * (ids[..., None] == np.arange(modes))  # (b, L, J)
    mean, prototype_mean = lists.gaussians.mean, prototypes.mean
    total = to_mode.sum(axis=-2)
    gathered = np.swapaxes(to_mode, -1, -2)  # (b, J, L)
    offset = gathered @ mean - total[..., None] * prototype_mean
    if ballots is not None:
        offset = gathered @ ballots
    if full is not None:  # about the public centre, whatever the prototypes are
        return Statistics(total, offset, gathered @ full, gathered @ targets)
    if not seconds.count:
        return Statistics(total, offset, offset[..., :0], gathered @ targets)
    second, prototype_second = moments(lists.gaussians)[1], moments(prototypes)[1]
    excess = (gathered @ second - total[..., None] * prototype_second) / seconds.spread
    if seconds.count == 1:  # shared: the public shape, and one number for its scale
        excess = excess.mean(axis=-1, keepdims=True)
    return Statistics(total, offset, excess, gathered @ targets)


def full_second_moments(x: FloatArray, mask: BoolArray, lists: Mixture) -> FloatArray:
    """(b, L, r (r + 1) / 2) E[x xᵀ] of each candidate, its upper triangle.

    Entries off the diagonal are times √2, so that the norm is the matrix's own.
    """
    shares = shares_of(lists, x, mask)  # (b, n, L)
    roots = np.sqrt(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12))
    (b, _, size), r = shares.shape, x.shape[-1]
    triangles: FloatArray = np.empty((b, size, r * (r + 1) // 2))
    for client in range(b):
        mine = mask[client]
        for entry, root in enumerate(roots[client, mine].T):
            rows = root[:, None] * x[client, mine]
            triangles[client, entry] = folded(rows.T @ rows)  # one operand: half the products
    return triangles


def folded(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices (..., r, r) -> their upper triangles, of the same norm."""
    places, factors = _triangle(matrices.shape[-1])
    flat = matrices.reshape(*matrices.shape[:-2], -1)
    triangle: FloatArray = flat.take(places, axis=-1)
    triangle *= factors
    return triangle


@lru_cache(maxsize=4)
def _triangle(dimension: int) -> tuple[IntArray, FloatArray]:
    """The places of the upper triangle in a flat matrix, and the factor of each entry."""
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
    """The places of a flat matrix in its upper triangle, and the factor of each entry."""
    up, across = np.triu_indices(dimension)
    places = np.empty((dimension, dimension), dtype=np.int64)
    places[up, across] = places[across, up] = np.arange(len(up))
    factors = np.where(np.eye(dimension, dtype=np.bool_), 1.0, np.sqrt(2.0))
    return places.ravel(), factors.ravel()


def joined(parts: Sequence[Statistics]) -> Statistics:
    """The modes of several labels side by side."""
    return Statistics(
        np.concatenate([part.weight for part in parts], axis=-1),
        np.concatenate([part.offset for part in parts], axis=-2),
        np.concatenate([part.second for part in parts], axis=-2),
        np.concatenate([part.target for part in parts], axis=-2),
    )

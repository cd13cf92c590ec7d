"""The client's contribution: one vector of all modes and blocks, clipped once.

For each mode k the client adds up, over the candidates it matched to k,

    weight   w_k                 the client's weight, at most 1 over all modes of a label
    offset   w_k (μ_k − p_k)     relative to the public prototype p_k
    second   w_k (M_k − M_pk)    the same for second moments, as a share of the public spread
    target   w_k (y_k − u_k)     the mean target beyond what is usual for the mode's label

each block times a public scale. All of them are one vector, which is clipped once. It may also have
one symmetric matrix for all modes of a task (``tied``), Σ w (x − p)(x − p)ᵀ over a unit's rows, p
the prototype of a row's mode, in the leading r₂ public directions: its upper triangle, times √2
since an entry off the diagonal stands for two.

Means may be selected instead of averaged: clients vote among public candidates (paper, Section
4.5). A stable selection needs noise on the votes only, not on the selected candidate (Ghazi, Kumar
and Manurangsi 2021), and the votes replace the offsets in the clipped vector.

The ``Resolution`` of a release is a public function of the plan, computed before any row is read.
The noise does not depend on the number of units, so more units allow more detail. Few large units
(silos) send means, and one number for the spread. Many small units have full weight from their
expected number of rows on, their weights are measured, and if the noise allows it they also send
the matrix. A direction enters it if the noise of an entry after all tasks is at most ``MOST_NOISE``
times its public variance, and if there are enough units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import folded
from cslr.numerics.mixture import Gaussians, Mixture, moments
from cslr.privacy.plan import Plan
from cslr.protocol.step1_list import GroupLists, learn_lists, shares_of

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = [
    "BLOCKS",
    "FEW_UNITS",
    "MOST_ROWS",
    "UNKNOWN_UNITS",
    "Layout",
    "Resolution",
    "Statistics",
    "Units",
    "elected",
    "entry_statistics",
    "full_second_moments",
    "group_statistics",
    "joined",
    "mode_statistics",
    "resolve",
    "row_statistics",
    "tied_factors",
    "votes",
]

BLOCKS: Final = ("weights", "means", "seconds", "targets")
"""The statistics of a contribution, in their order."""
MOST_ROWS: Final = 8
"""Rows of a label from which on a unit has full weight, at most: w = min(n, 8) / 8."""
NO_MATRIX: Final[FloatArray] = np.zeros(0)
"""Placeholder for ``tied`` of statistics without a matrix."""


@dataclass(frozen=True, repr=False)
class Statistics:
    """Sums over candidates or clients, with any leading axes."""

    weight: FloatArray  # (..., K)
    offset: FloatArray  # (..., K, r)
    second: FloatArray  # (..., K, s), s = 1 (shared), r (diagonal) or r (r + 1) / 2 (full)
    target: FloatArray  # (..., K, outputs), or (..., K, 0) if the label determines the target
    tied: FloatArray = field(default_factory=lambda: NO_MATRIX)
    """(..., r₂ (r₂ + 1) / 2) of all modes together, see ``tied_factors``; empty if none."""

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
        """Numbers in memory for a unit with one row, whose matrix is kept as a factor of r₂."""
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
        if not statistics.tied.shape[-1]:
            return vectors
        return np.concatenate([vectors, statistics.tied * self.tied_scale], axis=-1)

    def blocks(self, statistics: Statistics) -> list[FloatArray]:
        """Statistics (b, K, ·) -> a vector (b, ·) for each kind, unscaled as in the paper."""
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


def row_statistics(x: FloatArray, examples: Examples, request: Request) -> Statistics:
    """Statistics (b, K, ·) of units with one row each, from coordinates x (b, 1, r).

    A row has one label, so it is compared with one mode. The result has the same bits as
    ``group_statistics`` of every label, which reads all rows once per label.
    """
    labels = [group[0] for group in request.groups]
    full = request.resolution.full_weight
    places, weights = row_weights(examples.labels, examples.mask, labels, full)
    mine = weights > 0
    lists = learn_lists(x, mine, request.space.spread, request.learner, ())
    mean, covariance = request.prototypes.mean, request.prototypes.covariance
    own = mode_statistics(
        lists,
        np.zeros_like(places),
        mine.sum(axis=1),
        np.zeros((*places.shape, 0)),
        Gaussians(mean[places], covariance[places]),
        SecondMoments(request.space.spread, request.layout.seconds),
        request.learner.weight_floor,
        full_weight=full,
    )
    everyone = np.arange(len(places)), places[:, 0]

    def at_modes(values: FloatArray) -> FloatArray:  # (b, 1, ...) -> (b, K, ...)
        spread = np.zeros((len(values), len(mean), *values.shape[2:]))
        spread[everyone] = values[:, 0]
        return spread

    return Statistics(*map(at_modes, (own.weight, own.offset, own.second, own.target)))


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """PUBLIC. How second moments are sent: relative to ``spread``, ``count`` numbers per mode."""

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
    full_weight: int = MOST_ROWS,
    full: FloatArray | None = None,
    ballots: FloatArray | None = None,
) -> Statistics:
    """Statistics (b, J, ·) of one label's candidates (b, L, r) matched to prototypes (J, r).

    counts: (b,) examples of each client, which has full weight from ``full_weight`` on. targets:
    (b, L, o) the candidates' mean targets minus the usual one; o = 0 if they are not sent. A
    candidate with less weight than ``weight_floor`` (π_min) counts half; it is never dropped.

    full: (b, L, s) the candidates' full second moments, if they are sent. ballots: (b, L, V) their
    votes for public means, if these are selected and not averaged.
    """
    modes = prototypes.mean.shape[-2]
    amount = np.minimum(counts, full_weight) / full_weight
    weight = lists.weights * np.where(lists.weights < weight_floor, 0.5, 1.0) * amount[:, None]
    to_mode = weight[..., None] * (ids[..., None] == np.arange(modes))  # (b, L, J)
    mean, prototype_mean = lists.gaussians.mean, prototypes.mean
    total = to_mode.sum(axis=-2)
    gathered = np.swapaxes(to_mode, -1, -2)  # (b, J, L)
    offset = _by_mode(gathered, mean)
    offset -= total[..., None] * prototype_mean
    if ballots is not None:
        offset = _by_mode(gathered, ballots)
    target = _by_mode(gathered, targets)
    if full is not None:  # relative to the public centre, not to the prototypes
        return Statistics(total, offset, _by_mode(gathered, full), target)
    if not seconds.count:
        return Statistics(total, offset, offset[..., :0], target)
    second, prototype_second = moments(lists.gaussians)[1], moments(prototypes)[1]
    excess = _by_mode(gathered, second) - total[..., None] * prototype_second
    excess /= seconds.spread
    if seconds.count == 1:  # shared: the public shape, and one number for its scale
        excess = excess.mean(axis=-1, keepdims=True)
    return Statistics(total, offset, excess, target)


def _by_mode(gathered: FloatArray, values: FloatArray) -> FloatArray:
    """(b, J, s) the candidates' values (b, L, s), weighted and added up for each mode.

    With one candidate per unit, multiplication gives the same bits without b small products.
    """
    if values.shape[-2] == 1:
        return gathered * values
    summed: FloatArray = gathered @ values
    return summed


def entry_statistics(group: GroupLists, spread: FloatArray) -> Statistics:
    """(b, L, ·) the statistics of a group's lists, per entry, relative to the public centre.

    spread: (r,) the public variances that covariances are compared with.
    """
    weight = group.lists.weights * (group.counts > 0)[:, None]
    gaussians = group.lists.gaussians
    wider = (gaussians.covariance / spread - 1).mean(axis=-1, keepdims=True)
    return Statistics(
        weight,
        weight[..., None] * gaussians.mean,
        weight[..., None] * wider,
        np.zeros((*weight.shape, 0)),
    )


def full_second_moments(x: FloatArray, mask: BoolArray, lists: Mixture) -> FloatArray:
    """(b, L, r (r + 1) / 2) E[x xᵀ] of each candidate, as its upper triangle.

    Entries off the diagonal are multiplied by √2, so that it has the norm of the matrix.
    """
    shares = shares_of(lists, x, mask)  # (b, n, L)
    roots = np.sqrt(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12))
    (b, _, size), r = shares.shape, x.shape[-1]
    triangles: FloatArray = np.empty((b, size, r * (r + 1) // 2))
    for client in range(b):
        mine = mask[client]
        for entry, root in enumerate(roots[client, mine].T):
            rows = root[:, None] * x[client, mine]
            triangles[client, entry] = folded(rows.T @ rows)  # symmetric: BLAS does half the work
    return triangles


def joined(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several labels, concatenated over modes."""
    return Statistics(
        np.concatenate([part.weight for part in parts], axis=-1),
        np.concatenate([part.offset for part in parts], axis=-2),
        np.concatenate([part.second for part in parts], axis=-2),
        np.concatenate([part.target for part in parts], axis=-2),
    )


# -- one matrix of second moments for all modes ----------------------------------------------------


def tied_factors(x: FloatArray, examples: Examples, request: Request) -> FloatArray:
    """(b, n, r₂) F of b units with coordinates x (b, n, r): FᵀF is what they send, unclipped."""
    layout = request.layout
    groups = [group[0] for group in request.groups]
    full = request.resolution.full_weight
    places, weights = row_weights(examples.labels, examples.mask, groups, full)
    away = x[..., : layout.tied] - request.prototypes.mean[:, : layout.tied][places]
    away *= np.sqrt(weights * layout.tied_scale)[..., None]
    return away


def row_weights(
    labels: IntArray, mask: BoolArray, groups: Sequence[int], full: int
) -> tuple[IntArray, FloatArray]:
    """(b, n) the index of each row's label among ``groups``, and the weight of the row.

    The n rows of a label divide its weight, min(n, full) / full, equally.
    """
    places = np.zeros(labels.shape, dtype=np.int64)
    weights = np.zeros(labels.shape)
    for place, label in enumerate(groups):
        mine = mask & (labels == label)
        count = mine.sum(axis=1, keepdims=True)
        places[mine] = place
        weights += mine * (np.minimum(count, full) / (full * np.maximum(count, 1)))
    return places, weights


def votes(mean: FloatArray, candidates: FloatArray) -> FloatArray:
    """(b, L, V) one vote of each list entry (b, L, r), for the nearest candidate (V, r)."""
    squares = np.square(candidates).sum(axis=-1)
    nearest = (squares - 2.0 * mean @ candidates.T).argmin(axis=-1)
    ballots: FloatArray = np.eye(len(candidates))[nearest]
    return ballots


def elected(ballots: FloatArray, candidates: FloatArray, groups: IntArray) -> FloatArray:
    """(K, r) the candidate with most noisy votes (K, V) for each mode; ties go to the first.

    candidates: (G, V, r); groups: (K,) the group of each mode.
    """
    winners: FloatArray = candidates[groups, ballots.argmax(axis=-1)]
    return winners


# -- how much detail a contribution has ------------------------------------------------------------

MANY: Final = 30.0
"""Expected weight of a mode from which on small units are numerous enough to measure weights."""
MOST_NOISE: Final = 0.5
"""Noise of an entry of the matrix, relative to the public variance of its direction."""
LEAST_TIED: Final = 64
"""Least directions of a matrix: a smaller one helps less than its share of the norm costs."""
PER_DIRECTION: Final = 3.0
"""Least contributions per direction of a matrix: with fewer the covariance is mostly chance."""
TIED_NORM: Final = 1.4
"""Expected norm of a small unit's contribution with a matrix, for embeddings of length one."""


@dataclass(frozen=True)
class Units:
    """Public facts about the units of privacy: declared numbers, never counted from rows."""

    count: int  # N, registered
    rows: int = MOST_ROWS
    """Rows that a unit is expected to have of one task."""
    clients_per_person: int = 1
    """The most clients that hold rows of one unit; each clips to an equal share of the bound."""
    tasks: float | None = None
    """Tasks that a unit is expected to have rows of; None: as many as ``rows``."""

    def heard(self, cap: int) -> float:
        """Tasks that a unit is expected to contribute to."""
        return min(cap, max(1.0, self.rows if self.tasks is None else self.tasks))


UNKNOWN_UNITS: Final = Units(1)
"""Units about which nothing is declared; they are treated as few."""


@dataclass(frozen=True)
class Resolution:
    """The contents of a contribution, and the public scale of each block."""

    full_weight: int = MOST_ROWS
    """Rows of a label from which on a unit has full weight: w = min(n, full) / full."""
    weight_scale: float = 0.05
    """Small, as a weight is up to 1 and an offset of a silo about 0.4: most norm is for offsets."""
    weight_unsure: float = 0.25
    """Relative standard deviation of the prior of the sum of weights around its expectation."""
    second_scale: float = 0.5
    tied: int = 0  # r₂
    tied_scale: float = math.sqrt(2)
    """The triangle's factor: an entry off the diagonal stands for two entries of the matrix."""
    simulated_rows: int = 16
    """Rows per label of the simulated units that the clipping bound is learnt from."""
    simulated_labels: int | None = None
    """Labels that a simulated unit has rows of; None: all labels of a task."""

    def share_of_labels(self, labels: int) -> float:
        """The share of a task's labels that a unit is expected to have rows of."""
        return 1.0 if self.simulated_labels is None else min(1.0, self.full_weight / max(labels, 1))

    def facts(self) -> dict[str, object]:
        """For the plan."""
        return asdict(self)


FEW_UNITS: Final = Resolution()


def resolve(
    units: Units, plan: Plan, labels_per_task: int, variances: FloatArray, may_tie: bool
) -> Resolution:
    """The resolution that units, noise and the public variances (r,) of directions allow.

    labels_per_task: the largest number of labels of a task. may_tie: whether a matrix is allowed.
    """
    full = max(1, min(units.rows, MOST_ROWS))
    if expected_weight(units, plan, labels_per_task) < MANY:
        return FEW_UNITS
    if full == MOST_ROWS:  # rows per person are declared, rows per client are not known
        share = units.rows // labels_per_task if plan.budget.unit == "person" else MOST_ROWS
        return replace(FEW_UNITS, full_weight=max(1, min(share, MOST_ROWS)))
    return Resolution(
        full_weight=full,
        weight_scale=0.3,
        weight_unsure=1.0,
        second_scale=0.1,
        tied=_tied(units, plan, variances) if may_tie else 0,
        simulated_rows=full,
        simulated_labels=1,
    )


def expected_weight(units: Units, plan: Plan, labels_per_task: int) -> float:
    """The expected sum of a mode's weights, since a unit with few rows has few labels."""
    share = min(1.0, units.rows / labels_per_task)
    return plan.q * units.count * plan.cap / plan.releases * share


def _tied(units: Units, plan: Plan, variances: FloatArray) -> int:
    """r₂: directions in which noise and the number of units allow a matrix; 0 if too few."""
    heard = plan.q * units.count * units.heard(plan.cap)
    sigma = 0.0 if plan.sigma is None else plan.sigma * units.clients_per_person
    noise = sigma * TIED_NORM * math.sqrt(plan.releases / 2) / heard
    directions = min(int((MOST_NOISE * variances >= noise).sum()), int(heard / PER_DIRECTION))
    return directions if directions >= LEAST_TIED else 0

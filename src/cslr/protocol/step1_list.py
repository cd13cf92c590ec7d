"""Step 1: the list learner (paper, Section 4.1), on the device.

L candidates are fitted by EM from several seeded starts. A list always has exactly L entries; empty
ones have weight 0, because the length of a list must not reveal anything about the data.

Each candidate has a target (line 3): the mean of y over its examples, that is a distribution over
labels, intent frequencies or tag frequencies. A mean of vectors in a ball lies in the ball, so
clipping y to B_y bounds it. A client sends its difference from the target that is usual for the
mode. Where the label of a mode determines the target, as in classification, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, overload

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_ball
from cslr.numerics.mixture import Gaussians, Mixture, e_step, fit, m_step, one_component
from cslr.protocol.head import label_targets
from cslr.seeding import Seeds

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = [
    "GroupLists",
    "ListLearner",
    "Streams",
    "candidate_targets",
    "clip_embeddings",
    "coordinates_of",
    "group_lists",
    "group_targets",
    "learn_lists",
    "shares_of",
    "steadied",
]

_Array = TypeVar("_Array", FloatArray, IntArray, BoolArray)
Streams = Sequence[np.random.Generator]
"""One random stream for each client."""
LEADING: Final = 64
"""Leading directions in which EM runs: with a few dozen examples it overfits in hundreds."""
_CACHED: Final = 2**19
"""Coordinates that are processed at a time, over clients and examples: 4 MB."""


@dataclass(frozen=True)
class ListLearner:
    """Public settings of step 1."""

    size: int = 1  # L
    starts: int = 3
    iterations: int = 12
    weight_floor: float = 0.05  # π_min
    pseudo_count: float = 8.0
    """Weight of the public variances in ``steadied``, as a number of examples."""

    def __post_init__(self) -> None:
        if min(self.size, self.starts, self.iterations) < 1:
            raise ValueError("size, starts and iterations must be at least 1")


def clip_embeddings(z: FloatArray, bound: float = 1.0) -> FloatArray:
    """Embeddings (..., d) clipped to norm B_z; 1 is the norm of a sentence encoder's output."""
    norm = np.sqrt(np.einsum("...i,...i->...", z, z))[..., None] / bound
    longer = norm > 1.0 + 1e-5  # row by row, so that no client's rows affect another's
    return z / np.where(longer, norm, 1.0) if longer.any() else z


def learn_lists(
    x: FloatArray,
    mask: BoolArray,
    spectrum: FloatArray,
    learner: ListLearner,
    rngs: Streams,
) -> Mixture:
    """Lists of b clients from coordinates x (b, n, r): weights (b, L), Gaussians (b, L, r).

    Weights sum to 1 for a client with examples, and are all 0 for one without. With L = 1 the
    candidate is the client's mean and variance.
    """
    floor = 1e-6 * float(spectrum.mean())
    if learner.size == 1:
        return one_component(x, mask, floor)
    starts = _starts(x[..., :LEADING], mask, learner, rngs)

    def of(some: slice) -> Mixture:
        rows, real = x[some], mask[some]
        leading = rows[..., :LEADING]
        lists = fit(leading, real, starts[:, some], learner.iterations, floor)
        if x.shape[-1] <= LEADING:
            return lists
        # Responsibilities are found in the leading directions, then moments in all of them.
        return m_step(shares_of(lists, leading, real), rows, real, floor)

    # No operation mixes clients, so a few are processed at a time to stay in the cache.
    few = max(1, _CACHED // max(1, x.shape[1] * x.shape[2]))
    parts = [of(slice(begin, begin + few)) for begin in range(0, max(1, len(x)), few)]
    mean, covariance = (
        np.concatenate([getattr(part.gaussians, name) for part in parts])
        for name in ("mean", "covariance")
    )
    return Mixture(np.concatenate([part.weights for part in parts]), Gaussians(mean, covariance))


def shares_of(lists: Mixture, x: FloatArray, mask: BoolArray) -> FloatArray:
    """(b, n, L) responsibilities of each client's candidates for its examples x (b, n, r)."""
    gaussians = lists.gaussians
    mean, covariance = gaussians.mean[..., :LEADING], gaussians.covariance[..., :LEADING]
    leading = Mixture(lists.weights, Gaussians(mean, covariance))
    shares, _ = e_step(leading, x[..., :LEADING], mask)
    return shares


@dataclass(frozen=True, eq=False, repr=False)
class GroupLists:
    """PRIVATE. The lists of b clients about one group of labels."""

    place: int  # index of the group
    group: tuple[int, ...]
    places: IntArray | None  # (b, n) indices of the examples used; None: all of them, in order
    mine: BoolArray  # (b, n) which of those belong to the group
    lists: Mixture  # (b, L, r)
    rngs: Streams

    @property
    def counts(self) -> IntArray:
        """(b,) examples of the group that each client has."""
        counts: IntArray = self.mine.sum(axis=1)
        return counts

    @property
    def first_ids(self) -> IntArray:
        """(b, L) zeros: the id of every candidate if its group has one mode."""
        return np.zeros(self.lists.weights.shape, dtype=np.int64)

    def of(self, values: _Array) -> _Array:
        """Of values (b, n, ...) of all examples, those of the examples used."""
        return _at(values, self.places)


def coordinates_of(examples: Examples, request: Request) -> FloatArray:
    """(b, n, r) the released coordinates of the embeddings, clipped to B_z."""
    longest = 1.0 if request.paper is None else request.paper.b_z
    return request.space.into(clip_embeddings(examples.z, longest))


def group_lists(
    examples: Examples, request: Request, coordinates: FloatArray | None = None
) -> Iterator[tuple[FloatArray, GroupLists]]:
    """Line 2 of Algorithm 1, on the device: coordinates x (b, n, r) and lists, group by group.

    With one candidate each group reads only its own rows, so that all groups together read every
    row about once. The padded length then depends on other clients. That changes no bit of a mean
    or a variance, but it could change the rounding of EM and matrix products, so where these are
    needed a group reads all rows.
    """
    x = coordinates_of(examples, request) if coordinates is None else coordinates
    whole_moments = request.layout.seconds > request.space.dimension
    sums_alone = request.learner.size == 1 and request.head is None and not whole_moments
    seeds = Seeds(request.seed).under("task", request.task)
    by_group = _RowsByGroup.of(examples, request.groups)
    for index, group in enumerate(request.groups):
        rows, mask = by_group.rows_of(index) if sums_alone else (None, by_group.numbers == index)
        group_x = _at(x, rows)
        rngs = _ClientStreams(seeds.under("label", group[0], "client"), examples.clients)
        lists = learn_lists(group_x, mask, request.space.spread, request.learner, rngs)
        yield group_x, GroupLists(index, group, rows, mask, lists, rngs)


@dataclass(frozen=True, eq=False, repr=False)
class _RowsByGroup:
    """PRIVATE. The rows of b clients sorted by group, all groups at once."""

    numbers: IntArray  # (b, n) index of the row's group; len(groups) if it is in none
    order: IntArray  # (b, n) indices of a client's rows, group by group
    begins: IntArray  # (b, groups + 2) where each group begins in that order

    @classmethod
    def of(cls, examples: Examples, groups: Sequence[Sequence[int]]) -> _RowsByGroup:
        """Sort the rows of examples by group; groups must not have a label in common."""
        labels = [label for group in groups for label in group]
        if len(set(labels)) < len(labels):
            raise ValueError("groups must not have a label in common")
        most = max([int(examples.labels.max(initial=0)), *labels])
        number = np.full(most + 1, len(groups))
        for index, group in enumerate(groups):
            number[list(group)] = index
        numbers = np.where(examples.mask, number[examples.labels], len(groups))
        b, kinds = len(numbers), len(groups) + 1
        flat = (np.arange(b)[:, None] * kinds + numbers).ravel()
        counts = np.bincount(flat, minlength=b * kinds).reshape(b, kinds)
        begins = np.concatenate([np.zeros((b, 1), dtype=np.int64), counts.cumsum(axis=1)], axis=1)
        return cls(numbers, np.argsort(numbers, axis=1, kind="stable"), begins)

    def rows_of(self, index: int) -> tuple[IntArray | None, BoolArray]:
        """Indices (b, n') of the rows of a group, None for all n, and the mask of those in it."""
        begin, n = self.begins[:, index, None], self.numbers.shape[1]
        counts = self.begins[:, index + 1, None] - begin
        longest = max(1, int(counts.max(initial=0)))
        if longest >= n:
            return None, self.numbers == index
        steps = np.arange(longest)
        rows = np.take_along_axis(self.order, np.minimum(begin + steps, n - 1), axis=1)
        return rows, steps < counts


def _at(values: _Array, rows: IntArray | None) -> _Array:
    """The rows (b, n') of values (b, n, ...); None: all of them."""
    if rows is None:
        return values
    chosen: _Array = values[np.arange(len(rows))[:, None], rows]
    return chosen


class _ClientStreams(Sequence[np.random.Generator]):
    """The random streams of b clients, opened at first use because most lists need none."""

    def __init__(self, seeds: Seeds, clients: Sequence[int]) -> None:
        self._seeds, self._clients = seeds, clients
        self._open: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @overload
    def __getitem__(self, index: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.random.Generator]: ...

    def __getitem__(self, index: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        client = self._clients[index]
        if index not in self._open:
            self._open[index] = self._seeds.at(client)
        return self._open[index]


def _starts(x: FloatArray, mask: BoolArray, learner: ListLearner, rngs: Streams) -> FloatArray:
    """(s, b, L, r) starting points of EM: examples that each client's own stream picks."""
    starts = np.zeros((learner.starts, len(x), learner.size, x.shape[-1]))
    for i in np.flatnonzero(mask.any(axis=1)).tolist():
        rows = np.flatnonzero(mask[i])
        rows = rows[np.argsort(x[i, rows, 0], kind="stable")]  # independent of storage order
        starts[:, i] = x[i, rngs[i].choice(rows, size=(learner.starts, learner.size))]
    return starts


def steadied(lists: Mixture, counts: IntArray, spectrum: FloatArray, pseudo: float) -> Gaussians:
    """The candidates with variances shrunk towards the public ones, for signatures.

    Densities whose variances are estimated from a few examples in hundreds of directions cannot be
    compared. pseudo: the weight of the public variances, in examples. counts: (b,) examples of each
    client.
    """
    support = lists.weights * counts[:, None]
    share = (support / (support + pseudo))[..., None]
    covariance = share * lists.gaussians.covariance + (1 - share) * spectrum
    return Gaussians(lists.gaussians.mean, covariance)


# -- the targets of candidates ---------------------------------------------------------------------


def group_targets(
    examples: Examples, x: FloatArray, group: GroupLists, request: Request
) -> FloatArray:
    """(b, L, sent) the targets of b clients' candidates for a group; x: the group's coordinates.

    They are made of the examples' targets, or of a head's clipped logits if the request has a head.
    """
    if request.paper is not None:
        return _written_targets(examples, x, group, request)
    y, sent = examples.targets, request.layout.targets
    usual = request.family.usual_of(group.group)
    if request.head is not None:
        logits = request.head.scores(group.of(examples.z))
        logits = logits - logits.mean(axis=-1, keepdims=True)
        y, usual = onto_ball(logits, 1.0), np.zeros(logits.shape[-1])
    elif y is not None and sent:  # else the label determines the target
        y = group.of(y)
    return candidate_targets(y, x, group.mine, group.lists, usual, sent)


def _written_targets(
    examples: Examples, x: FloatArray, group: GroupLists, request: Request
) -> FloatArray:
    """(b, L, outputs) the paper's: mean logits clipped to B_g, tag frequencies or intent masks.

    In classification without a head they are label frequencies.
    """
    assert request.paper is not None
    family, y = request.family, examples.targets
    logits = family.name == "classification" and request.head is not None
    if logits and request.head is not None:
        y = request.head.scores(examples.z)
    elif y is None and family.outputs == family.labels:
        y = label_targets(examples.labels.ravel(), family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    nothing = np.zeros(family.outputs)
    mean = candidate_targets(y, x, group.mine, group.lists, nothing, family.outputs)
    return onto_ball(mean, request.paper.b_g) if logits else mean


def candidate_targets(
    y: FloatArray | None,
    x: FloatArray,
    mask: BoolArray,
    lists: Mixture,
    usual: FloatArray,
    sent: int,
) -> FloatArray:
    """(b, L, sent) each candidate's mean target minus the usual one, (outputs,).

    y: (b, n, outputs) the targets of the examples x (b, n, r) under ``mask``, averaged with the
    candidates' responsibilities. None: all are the usual one.
    """
    if y is None or not sent:
        return np.zeros((*lists.weights.shape, sent))
    beyond = (y - usual) * mask[..., None]
    if lists.weights.shape[-1] == 1:
        counts = np.maximum(mask.sum(axis=-1), 1)[:, None, None]
        alone: FloatArray = beyond.sum(axis=1, keepdims=True) / counts
        return alone
    shares = shares_of(lists, x, mask)
    mass = np.swapaxes(shares, -1, -2)  # (b, L, n)
    mean: FloatArray = mass @ beyond / np.maximum(mass.sum(axis=-1, keepdims=True), 1e-12)
    return mean

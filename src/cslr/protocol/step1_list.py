"""Step 1: the list learner (paper, Section 4.1), on the device.

L candidates by EM from several seeded starts, always exactly L: an empty one has weight 0 and
stays, because the length of a list must not tell anything about the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.gaussian import Gaussians
from cslr.numerics.mixture import Mixture, e_step, fit, m_step
from cslr.seeding import Seeds

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = [
    "GroupLists",
    "ListLearner",
    "clip_embeddings",
    "group_lists",
    "learn_lists",
    "shares_of",
    "steadied",
]


LEADING: Final = 64
"""Directions in which EM runs: in hundreds of them a few dozen examples only find themselves."""


@dataclass(frozen=True)
class ListLearner:
    """Public settings of step 1."""

    size: int = 1  # L
    starts: int = 3
    iterations: int = 12
    weight_floor: float = 0.05  # π_min
    pseudo_count: float = 8.0
    """Public examples by which a candidate's variances are steadied."""

    def __post_init__(self) -> None:
        if min(self.size, self.starts, self.iterations) < 1:
            raise ValueError("size, starts and iterations must be at least 1")


def clip_embeddings(z: FloatArray, bound: float = 1.0) -> FloatArray:
    """Embeddings (..., d) no longer than B_z; 1 is the norm of any sentence encoder's output."""
    norm = np.sqrt(np.einsum("...i,...i->...", z, z))[..., None] / bound
    longer = norm > 1.0 + 1e-5  # row by row: no client's rows may decide about another's
    return z / np.where(longer, norm, 1.0) if longer.any() else z


def learn_lists(
    x: FloatArray,
    mask: BoolArray,
    spectrum: FloatArray,
    learner: ListLearner,
    rngs: list[np.random.Generator],
) -> Mixture:
    """Lists of b clients from coordinates x (b, n, r): weights (b, L), Gaussians (b, L, r).

    Weights sum to 1 for a client with examples, and are all 0 for one without. With L = 1 the
    candidate is the client's mean and variance.
    """
    floor = 1e-6 * float(spectrum.mean())
    if learner.size == 1:
        return _one_candidate(x, mask, floor)
    leading = x[..., :LEADING]
    lists = fit(leading, mask, _starts(leading, mask, learner, rngs), learner.iterations, floor)
    if x.shape[-1] <= LEADING:
        return lists
    # What belongs together is found where topics differ most; then all directions are described.
    return m_step(shares_of(lists, leading, mask), x, mask, floor)


def _one_candidate(x: FloatArray, mask: BoolArray, floor: float) -> Mixture:
    """The mean and the variance of each client's examples; weight 0 for a client without any."""
    count = mask.sum(axis=1)[:, None, None]
    divisor = np.maximum(count, 1)
    real = mask[..., None]
    mean = np.where(real, x, 0.0).sum(axis=1, keepdims=True) / divisor
    apart = np.where(real, x - mean, 0.0)
    variance = np.square(apart).sum(axis=1, keepdims=True) / divisor
    weights = (count[..., 0] > 0).astype(np.float64)
    return Mixture(weights, Gaussians(mean, np.maximum(variance, floor)))


def shares_of(lists: Mixture, x: FloatArray, mask: BoolArray) -> FloatArray:
    """(b, n, L) how the examples x (b, n, r) are shared among their client's candidates."""
    gaussians = lists.gaussians
    mean, covariance = gaussians.mean[..., :LEADING], gaussians.covariance[..., :LEADING]
    leading = Mixture(lists.weights, Gaussians(mean, covariance))
    shares, _ = e_step(leading, x[..., :LEADING], mask)
    return shares


@dataclass(frozen=True, eq=False)
class GroupLists:
    """PRIVATE. The lists of b clients about one group of labels."""

    place: int
    group: tuple[int, ...]
    mine: BoolArray  # (b, n) the examples they are about
    lists: Mixture  # (b, L, r)
    rngs: list[np.random.Generator]

    @property
    def counts(self) -> IntArray:
        """(b,) examples of each client."""
        counts: IntArray = self.mine.sum(axis=1)
        return counts


def group_lists(examples: Examples, request: Request) -> Iterator[tuple[FloatArray, GroupLists]]:
    """Line 2 of Algorithm 1, on the device: coordinates x (b, n, r) and lists, group by group."""
    longest = 1.0 if request.paper is None else request.paper.b_z
    x = request.space.into(clip_embeddings(examples.z, longest))
    # One candidate starts nowhere, and only the random matcher draws lots: most need no streams.
    chance = request.learner.size > 1 or request.matcher == "random"
    for place, group in enumerate(request.groups):
        mine = examples.mask & np.isin(examples.labels, group)
        rngs = [
            Seeds(request.seed).at("task", request.task, "label", group[0], "client", client)
            for client in (examples.clients if chance else ())
        ]
        lists = learn_lists(x, mine, request.space.spread, request.learner, rngs)
        yield x, GroupLists(place, group, mine, lists, rngs)


def _starts(
    x: FloatArray, mask: BoolArray, learner: ListLearner, rngs: list[np.random.Generator]
) -> FloatArray:
    """(s, b, L, r): for each client its own stream picks examples to begin at."""
    starts = np.zeros((learner.starts, len(x), learner.size, x.shape[-1]))
    for i, rng in enumerate(rngs):
        rows = np.flatnonzero(mask[i])
        rows = rows[np.argsort(x[i, rows, 0], kind="stable")]  # however they were stored
        if rows.size:
            starts[:, i] = x[i, rng.choice(rows, size=(learner.starts, learner.size))]
    return starts


def steadied(lists: Mixture, counts: IntArray, spectrum: FloatArray, pseudo: float) -> Gaussians:
    """The candidates with variances steadied by ``pseudo`` public examples, for signatures.

    A variance estimated from five examples in hundreds of directions is no density to compare by.
    counts: (b,) examples of each client.
    """
    support = lists.weights * counts[:, None]
    share = (support / (support + pseudo))[..., None]
    covariance = share * lists.gaussians.covariance + (1 - share) * spectrum
    return Gaussians(lists.gaussians.mean, covariance)

"""Lines 2 to 8 of Algorithm 1 on the device, as written.

A list entry is (π, μ, M, y): mixture weight, mean, second moment E[x xᵀ] and target, each clipped
separately. Coordinates are x = Vᵀ(z − c), a public isometry if all directions are kept, so that
densities at the anchors are those of the paper.

Guarantee: with L entries in all and K modes, a client moves the four sums by at most ``bounds``
and its list has norm at most ``list_bound``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_ball
from cslr.paper_constants import PaperConstants
from cslr.protocol.step1_list import GroupLists, group_lists, group_targets
from cslr.protocol.step3_match import canonical_ids
from cslr.protocol.step4_aggregate.contribution import (
    Statistics,
    full_second_moments,
    joined,
    votes,
)

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = [
    "WrittenLists",
    "bounds",
    "list_bound",
    "list_entries",
    "mode_sums",
    "written_lists",
    "written_sums",
]


@dataclass(frozen=True, eq=False, repr=False)
class WrittenLists:
    """PRIVATE. The lists of b clients about one group of labels, and their clipped entries."""

    group: GroupLists
    entries: Statistics  # (b, L, ·)


def bounds(paper: PaperConstants, entries: int, modes: int) -> tuple[float, float, float, float]:
    """S_π, S_μ, S_M, S_y: bounds on what one client adds to each sum, over all modes of a task.

    π sums to at most one over all modes. The others are clipped entry by entry, and a client
    contributes to at most min(L, K) modes; if they are weighted by π, the single bound B is enough.
    """
    most = 1.0 if paper.division == "weights" else math.sqrt(min(entries, modes))
    return paper.b_pi, most * paper.b_mu, most * paper.b_m, most * paper.b_y


def list_bound(paper: PaperConstants, entries: int) -> float:
    """A bound on the norm of a list with this many entries."""
    each = paper.b_mu**2 + paper.b_m**2 + paper.b_y**2
    return math.sqrt(paper.b_pi**2 + entries * each)


def list_entries(
    x: FloatArray, group: GroupLists, targets: FloatArray, paper: PaperConstants
) -> Statistics:
    """(b, L, ·) the entries of b clients with coordinates x (b, n, r); empty ones are zeros.

    targets: (b, L, o) the entries' mean targets, not clipped yet.
    """
    lists = group.lists
    weight = lists.weights * (group.counts > 0)[:, None]
    there = (weight > 0)[..., None]
    second = full_second_moments(x, group.mine, lists)
    return Statistics(
        onto_ball(weight, paper.b_pi),
        onto_ball(lists.gaussians.mean * there, paper.b_mu),
        onto_ball(second * there, paper.b_m),
        onto_ball(targets * there, paper.b_y),
    )


def written_lists(
    examples: Examples, request: Request, coordinates: FloatArray | None = None
) -> list[WrittenLists]:
    """Lines 2 and 3: the lists of b clients, group by group; both messages are made from them."""
    paper = request.paper
    assert paper is not None
    lists = []
    for x, group in group_lists(examples, request, coordinates):
        targets = group_targets(examples, x, group, request)
        lists.append(WrittenLists(group, list_entries(x, group, targets, paper)))
    return lists


def written_sums(examples: Examples, request: Request, lists: Sequence[WrittenLists]) -> Statistics:
    """Lines 4 to 8: what b clients with these lists add to each mode, group by group."""
    parts = []
    for each in lists:
        ids = canonical_ids(examples, each.group, request)
        parts.append(mode_sums(each, ids, request))
    return joined(parts)


def mode_sums(lists: WrittenLists, ids: IntArray, request: Request) -> Statistics:
    """(b, J, ·) what b clients add to each mode; ids: (b, L) the modes of their entries.

    An entry below π_min counts half. If means are selected, votes are sent in their place.
    """
    paper, group, entries = request.paper, lists.group, lists.entries
    assert paper is not None
    modes = request.sub_modes
    weight = entries.weight * np.where(entries.weight < paper.pi_min, 0.5, 1.0)
    to_mode = np.swapaxes(weight[..., None] * (ids[..., None] == np.arange(modes)), -1, -2)
    total = to_mode.sum(axis=-1)  # (b, J)
    if paper.division == "cohort":  # the mean of a client's entries of one mode
        to_mode = to_mode / np.where(total > 0, total, 1.0)[..., None]
    offset = entries.offset
    if request.candidates is not None:
        offset = votes(group.lists.gaussians.mean, request.candidates[group.place])
    return Statistics(total, to_mode @ offset, to_mode @ entries.second, to_mode @ entries.target)

"""NON-PRIVATE, for studies: how well the ids of candidates agree with the true modes.

Clients do not know the true modes (the topics within a label, or the labels if lists are pooled).
In a study they are known, which measures the quality of a matcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.federation.simulation import SimulatedCohort
from cslr.protocol.ports import Examples, Request
from cslr.protocol.step1_list import GroupLists, group_lists, shares_of, steadied
from cslr.protocol.step2_sign import hit_rate, least_margin, signatures, standardised
from cslr.protocol.step3_match import canonical_ids

__all__ = ["Alignment", "align", "summary"]

GAMMA: Final = 0.5
"""γ: the margin by which standardised signatures must differ."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """The candidates of one task and group; their kind is the true mode."""

    table: FloatArray  # (J, kinds) weight of candidates by assigned mode and true kind
    signed: FloatArray  # (N, m) their signatures
    kinds: IntArray  # (N,) the true kind of most of a candidate's examples


def align(cohort: SimulatedCohort, request: Request) -> list[Alignment]:
    """The true kinds of a cohort's candidates, and the modes they were assigned to."""
    candidates: dict[int, list[tuple[IntArray, IntArray, FloatArray, FloatArray]]] = {}
    for batch in cohort.batches():
        if batch.kinds is None:
            return []
        for x, group in group_lists(batch, request):
            ids = canonical_ids(batch, group, request)
            shares = shares_of(group.lists, x, group.mine)  # (b, n, L)
            kinds = np.arange(int(batch.kinds.max(initial=0)) + 1)
            is_kind = (group.of(batch.kinds)[..., None] == kinds).astype(np.float64)
            mass = np.einsum("bnl,bnk->blk", shares, is_kind)
            signed = _signed(batch, group, request)
            real = group.lists.weights > 0
            candidates.setdefault(group.place, []).append(
                (ids[real], mass.argmax(axis=-1)[real], mass.max(axis=-1)[real], signed[real])
            )
    return [_gathered(parts, request.sub_modes) for parts in candidates.values()]


def _signed(batch: Examples, group: GroupLists, request: Request) -> FloatArray:
    """(b, L, m) signatures of the released lists, or of the clients' own if none was released."""
    if request.signed is not None and request.names is not None:
        row_of = {client: number for number, client in enumerate(request.names)}
        rows = [row_of[client] for client in batch.clients]
        return standardised(request.signed[rows, group.place])
    space = request.space
    steady = steadied(group.lists, group.counts, space.spread, request.learner.pseudo_count)
    return signatures(steady, space.anchors)


def _gathered(
    parts: list[tuple[IntArray, IntArray, FloatArray, FloatArray]], modes: int
) -> Alignment:
    ids, kinds, weight, signed = (np.concatenate([part[i] for part in parts]) for i in range(4))
    table = np.zeros((modes, int(kinds.max(initial=0)) + 1))
    np.add.at(table, (ids, kinds), weight)
    return Alignment(table, signed, kinds)


def summary(alignments: Sequence[Alignment]) -> dict[str, float]:
    """Means over tasks and groups that have more than one true kind; empty if none has.

    alignment: the share of weight whose kind is the most frequent one of its mode (purity);
    by_chance: the same if all had one mode; hit_rate and margin: as in Theorem 2, between
    candidates of different kinds.
    """
    several = [each for each in alignments if (each.table.sum(axis=0) > 0).sum() > 1]
    if not several:
        return {}
    figures = [
        {
            "alignment": float(each.table.max(axis=1).sum() / each.table.sum()),
            "by_chance": float(each.table.sum(axis=0).max() / each.table.sum()),
            "hit_rate": hit_rate(each.signed, each.kinds, GAMMA),
            "margin": least_margin(each.signed, each.kinds),
        }
        for each in several
    ]
    return {name: float(np.mean([each[name] for each in figures])) for name in figures[0]}

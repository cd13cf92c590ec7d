"""Lines 4 to 6 of Algorithm 1 at the server: released lists get canonical ids. Post-processing.

Signatures are computed from the released lists. They are clustered, or matched to running
prototypes at the least total cost; the ablations match released parameters to the same prototypes.
Prototypes start at the public ones and move to the mean of the entries that were matched to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.assignment import entropic_transport, hungarian, nearest, stable_clusters
from cslr.numerics.linear_algebra import onto_simplex, unfolded
from cslr.numerics.mixture import Gaussians, from_moments, log_density, log_density_of_moments
from cslr.protocol.step2_sign import standardised
from cslr.protocol.step3_match import squared_distances
from cslr.protocol.step4_aggregate.contribution import Statistics
from cslr.seeding import Seeds

if TYPE_CHECKING:
    from cslr.paper_constants import PaperConstants
    from cslr.protocol.ports import Request

__all__ = ["Named", "named"]

PASSES: Final = 2
"""Rounds of matching: to the public prototypes, then to the prototypes that resulted."""


@dataclass(frozen=True, eq=False)
class Named:
    """PUBLIC. Released entries of b clients, with their canonical ids."""

    ids: IntArray  # (b, groups, L)
    mean: FloatArray  # (b, groups, L, r)
    signed: FloatArray | None  # (b, groups, L, m), if the matcher uses signatures


@dataclass(frozen=True, eq=False)
class _Prototypes:
    """J running prototypes of one group."""

    weights: FloatArray  # (J,)
    gaussians: Gaussians  # (J, r), full


def named(lists: Statistics, request: Request) -> Named:
    """The ids of released lists (b, groups × L, ·), group by group."""
    paper = request.paper
    assert paper is not None
    groups, size, r = len(request.groups), request.learner.size, request.space.dimension
    shape = (len(lists.weight), groups, size)
    weight = lists.weight.reshape(shape)
    mean = lists.offset.reshape(*shape, r)
    second = lists.second.reshape(*shape, -1)
    parts, signed = [], []
    for group in range(groups):
        entries = mean[:, group]
        seen = None
        if request.matcher == "signature":
            seen = _released_signatures(entries, second[:, group], request)
            signed.append(seen)
        if seen is not None and paper.canonicalise == "cluster":
            parts.append(_clustered(seen, request.sub_modes))
            continue
        if request.matcher in ("signature", "optimal-transport"):
            candidates = from_moments(entries, unfolded(second[:, group], r), paper.lambda_min)
        else:
            candidates = Gaussians(entries, np.ones_like(entries))
        weights = onto_simplex(weight[:, group])
        parts.append(_matched(weights, candidates, seen, group, request))
    ids = np.stack(parts, axis=1)
    return Named(ids, mean, np.stack(signed, axis=1) if signed else None)


def _released_signatures(mean: FloatArray, second: FloatArray, request: Request) -> FloatArray:
    """(b, L, m) signatures from released means (b, L, r) and folded second moments."""
    assert request.paper is not None
    r, floor, anchors = mean.shape[-1], request.paper.lambda_min, request.space.anchors
    densities = [
        log_density_of_moments(mu, unfolded(folded, r), floor, anchors).T
        for mu, folded in zip(mean, second, strict=True)
    ]
    return _as_asked(np.stack(densities), request)


def _signatures(candidates: Gaussians, request: Request) -> FloatArray:
    """(..., L, m) log densities at the anchors, standardised if ``paper.standardise``."""
    densities = np.swapaxes(log_density(candidates, request.space.anchors), -1, -2)
    return _as_asked(densities, request)


def _as_asked(densities: FloatArray, request: Request) -> FloatArray:
    standard = request.paper is not None and request.paper.standardise
    return standardised(densities) if standard else densities


def _clustered(signed: FloatArray, modes: int) -> IntArray:
    """(b, L) clusters of the signatures (b, L, m), all clients together."""
    points = signed.reshape(-1, signed.shape[-1])
    centred = points - points.mean(axis=0)
    distance = np.sqrt(squared_distances(centred, centred))
    return stable_clusters((distance + distance.T) / 2, modes).reshape(signed.shape[:-1])


def _matched(
    weights: FloatArray,
    candidates: Gaussians,
    signed: FloatArray | None,
    group: int,
    request: Request,
) -> IntArray:
    """(b, L) ids by running prototypes, or at random."""
    modes = request.sub_modes
    if request.matcher == "random":
        streams = Seeds(request.seed).under("task", request.task, "names", group)
        return np.stack(
            [
                streams.at("client", i).integers(modes, size=weights.shape[1])
                for i in range(len(weights))
            ]
        )
    public = request.prototypes_of(group)
    spread = public.covariance
    if candidates.is_full:
        spread = np.eye(spread.shape[-1]) * spread[:, None, :]
    prototypes = _Prototypes(np.full(modes, 1.0 / modes), Gaussians(public.mean, spread))
    ids = np.zeros(weights.shape, dtype=np.int64)
    for _ in range(PASSES):
        ids = _closest(weights, candidates, signed, prototypes, request)
        prototypes = _moved(prototypes, weights, candidates, ids)
    return ids


def _closest(
    weights: FloatArray,
    candidates: Gaussians,
    signed: FloatArray | None,
    prototypes: _Prototypes,
    request: Request,
) -> IntArray:
    assert request.paper is not None
    if signed is not None:
        return hungarian(squared_distances(signed, _signatures(prototypes.gaussians, request)))
    cost = squared_distances(candidates.mean, prototypes.gaussians.mean)
    if request.matcher == "nearest-mean":
        return nearest(cost)
    if request.matcher == "hungarian":
        return hungarian(cost)
    return _transported(cost, weights, candidates, prototypes, request.paper)


def _transported(
    cost: FloatArray,
    weights: FloatArray,
    candidates: Gaussians,
    prototypes: _Prototypes,
    paper: PaperConstants,
) -> IntArray:
    """min ⟨P, c⟩ + λ_OT Σ P log P over P ∈ Π(w, w̄), c = ‖μ − μ̄‖² + τ‖Σ − Σ̄‖²_F."""

    def flat(gaussians: Gaussians) -> FloatArray:
        return gaussians.covariance.reshape(*gaussians.mean.shape[:-1], -1)

    cost = cost + paper.tau * squared_distances(flat(candidates), flat(prototypes.gaussians))
    columns = np.broadcast_to(prototypes.weights, (len(cost), cost.shape[-1]))
    return entropic_transport(cost, weights, columns, paper.lambda_ot)


def _moved(
    prototypes: _Prototypes, weights: FloatArray, candidates: Gaussians, ids: IntArray
) -> _Prototypes:
    """Prototypes at the weighted mean of their entries; one without entries stays."""
    modes = len(prototypes.weights)
    to_mode = weights[..., None] * (ids[..., None] == np.arange(modes))  # (b, L, J)
    total = to_mode.sum(axis=(0, 1))
    share = to_mode / np.where(total > 0, total, 1.0)
    mean = np.einsum("blj,blr->jr", share, candidates.mean)
    whole = np.tensordot(share, candidates.covariance, axes=([0, 1], [0, 1]))
    before, met = prototypes.gaussians, total > 0
    mean = np.where(met[:, None], mean, before.mean)
    covariance = np.where(met.reshape(-1, *[1] * (whole.ndim - 1)), whole, before.covariance)
    running = np.where(met, total, prototypes.weights * weights.sum())
    return _Prototypes(running / running.sum(), Gaussians(mean, covariance))

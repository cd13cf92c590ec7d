"""Step 3: canonical ids (paper, Section 4.4).

A list is unordered, so its entries are identified by their signatures: each is matched to the
prototype with the nearest signature. The other matchers are the paper's ablations.

In ``sum`` mode this runs on the device, against public or already released prototypes; nothing
of the list leaves the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.assignment import entropic_transport, hungarian, nearest
from cslr.numerics.mixture import Gaussians, Mixture
from cslr.protocol.step1_list import GroupLists, Streams, steadied
from cslr.protocol.step2_sign import signatures

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = ["MATCHERS", "Matcher", "canonical_ids", "match", "squared_distances"]

Matcher = Callable[[Mixture, Gaussians, FloatArray, Streams], IntArray]

TRANSPORT_SMOOTHING: Final = 0.05
"""λ_OT, relative to the largest cost."""


def canonical_ids(examples: Examples, group: GroupLists, request: Request) -> IntArray:
    """(b, L) the mode of each candidate: matched on the device, or as the server assigned it.

    A client that sent no list has no assigned ids: its candidates get −1 and count for no mode.
    """
    if request.one_mode:
        return group.first_ids
    if request.names is not None:
        nameless = np.full((len(request.groups), request.learner.size), -1)
        names = [request.names.get(client, nameless) for client in examples.clients]
        return np.stack([name[group.place] for name in names])
    space, learner = request.space, request.learner
    # Signatures compare densities, which a few examples in hundreds of directions do not determine.
    steady = steadied(group.lists, group.counts, space.spread, learner.pseudo_count)
    candidates = Mixture(group.lists.weights, steady)
    prototypes = request.prototypes_of(group.place)
    return match(candidates, prototypes, space.anchors, request.matcher, group.rngs)


def match(
    lists: Mixture,
    prototypes: Gaussians,
    anchors: FloatArray,
    matcher: str,
    rngs: Streams,
) -> IntArray:
    """Ids (b, L) in 0..J−1 of the candidates (b, L, r) among the prototypes (J, r).

    rngs: one stream per client, used by the random matcher alone.

    Guarantee: permuting a list permutes its ids alike. With one prototype every entry is 0.
    """
    if prototypes.mean.shape[-2] == 1:
        return np.zeros(lists.weights.shape, dtype=np.int64)
    return MATCHERS[matcher](lists, prototypes, anchors, rngs)


def _by_signature(
    lists: Mixture, prototypes: Gaussians, anchors: FloatArray, rngs: Streams
) -> IntArray:
    return nearest(
        squared_distances(signatures(lists.gaussians, anchors), signatures(prototypes, anchors))
    )


def _by_mean(lists: Mixture, prototypes: Gaussians, anchors: FloatArray, rngs: Streams) -> IntArray:
    return nearest(squared_distances(lists.gaussians.mean, prototypes.mean))


def _by_hungarian(
    lists: Mixture, prototypes: Gaussians, anchors: FloatArray, rngs: Streams
) -> IntArray:
    return hungarian(squared_distances(lists.gaussians.mean, prototypes.mean))


def _by_transport(
    lists: Mixture, prototypes: Gaussians, anchors: FloatArray, rngs: Streams
) -> IntArray:
    """The paper's cost ‖μ − μ̄‖² + τ‖Σ − Σ̄‖²_F with τ = 1, diagonal covariances.

    Costs are divided by the client's own largest, so that no client can change another's ids.
    """
    cost = squared_distances(lists.gaussians.mean, prototypes.mean)
    cost = cost + squared_distances(lists.gaussians.covariance, prototypes.covariance)
    modes = prototypes.mean.shape[-2]
    columns = np.full((*lists.weights.shape[:-1], modes), 1.0 / modes)
    largest = np.maximum(cost.max(axis=(-2, -1), keepdims=True), 1e-12)
    return entropic_transport(cost / largest, lists.weights, columns, TRANSPORT_SMOOTHING)


def _at_random(
    lists: Mixture, prototypes: Gaussians, anchors: FloatArray, rngs: Streams
) -> IntArray:
    modes, size = prototypes.mean.shape[-2], lists.weights.shape[-1]
    return np.stack([rng.integers(modes, size=size) for rng in rngs])


MATCHERS: Final[dict[str, Matcher]] = {
    "signature": _by_signature,
    "nearest-mean": _by_mean,
    "hungarian": _by_hungarian,
    "optimal-transport": _by_transport,
    "random": _at_random,
}


def squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """‖a_l − b_k‖² for a (..., L, p) and b (K, p): (..., L, K)."""
    cross = a @ np.swapaxes(b, -1, -2)
    squares = np.square(a).sum(-1)[..., None] + np.square(b).sum(-1)[..., None, :]
    distances: FloatArray = np.maximum(squares - 2.0 * cross, 0.0)
    return distances

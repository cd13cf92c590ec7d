"""``list`` mode, the paper's main protocol: clients release noisy lists, the server assigns ids.

The server knows the sender of a list, so each client adds the noise itself (local privacy) and
there is no amplification by sampling. The server clusters the signatures of the lists
(post-processing) and sends the canonical ids back. The sum that follows is a second message, made
from raw statistics, and is charged separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.assignment import stable_clusters
from cslr.numerics.mixture import Gaussians, Mixture
from cslr.privacy.values import Bounded, Grid, bound
from cslr.protocol.agreement import Agreement
from cslr.protocol.literal.device import WrittenLists, written_lists
from cslr.protocol.literal.naming import Named, named
from cslr.protocol.ports import Ask, Examples, Request
from cslr.protocol.step1_list import group_lists
from cslr.protocol.step2_sign import signatures
from cslr.protocol.step3_match import match
from cslr.protocol.step4_aggregate.contribution import Layout, Statistics, entry_statistics, joined
from cslr.seeding import Seeds

__all__ = ["list_ask", "list_of", "list_statistics", "with_names"]


def list_statistics(
    examples: Examples, request: Request, lists: Sequence[WrittenLists] | None = None
) -> Statistics:
    """(b, groups × L, ·) the statistics of a list, per entry, relative to the public centre.

    lists: those of the paper's protocol, if they are computed already.
    """
    if request.paper is not None:
        return joined([each.entries for each in lists or written_lists(examples, request)])
    spread = request.space.spread
    return joined([entry_statistics(group, spread) for _, group in group_lists(examples, request)])


def list_of(
    examples: Examples, ask: Ask[Request], lists: Sequence[WrittenLists] | None = None
) -> Bounded:
    """On the device: the list as one vector, clipped once; noise follows before it is sent."""
    statistics = list_statistics(examples, ask.request, lists)
    return bound(ask.request.layout.pack(statistics), ask.grid)


def list_ask(request: Request, agreement: Agreement) -> Ask[Request]:
    """Line 1: the request for the lists of a task."""
    of_lists = replace(request, layout=agreement.list_layout(len(request.groups)))
    return Ask(f"task {request.task} list", "list", of_lists, Grid(agreement.list_bound))


def with_names(request: Request, lists: FloatArray, layout: Layout) -> Request:
    """Lines 5 and 6: the request with the ids of the clients' noisy lists (b, 1 + D)."""
    clients = lists[:, 0].astype(int).tolist()
    if request.paper is not None:
        return _written_names(request, clients, named(layout.unpack(lists[:, 1:]), request))
    ids = server_ids(layout.unpack(lists[:, 1:]), request)
    names = dict(zip(clients, ids, strict=True))
    # Clusters have no prototypes, so sums are relative to the mean prototype of each group.
    middles = [
        request.prototypes_of(group).mean.mean(axis=0) for group in range(len(request.groups))
    ]
    means = np.repeat(np.stack(middles), request.sub_modes, axis=0)
    return replace(request, names=names, prototypes=Gaussians(means, request.prototypes.covariance))


def _written_names(request: Request, clients: list[int], released: Named) -> Request:
    """As ``with_names``, for the paper's protocol; selection is among the released means."""
    names = dict(zip(clients, released.ids, strict=True))
    answered = replace(request, names=names, signed=released.signed)
    if request.candidates is None:
        return answered
    union = np.moveaxis(released.mean, 1, 0).reshape(
        len(request.groups), -1, released.mean.shape[-1]
    )
    return replace(
        answered, candidates=union, layout=replace(request.layout, dimension=union.shape[1])
    )


def server_ids(lists: Statistics, request: Request) -> IntArray:
    """(b, groups, L) ids of released lists (b, groups × L, ·), by clustering their signatures.

    The other matchers compare the released parameters with the public prototypes, as they do on
    the device in ``sum`` mode.
    """
    groups, size = len(request.groups), request.learner.size
    shape = (len(lists.weight), groups, size)
    weight = np.maximum(lists.weight, 0.0).reshape(shape)
    steady = np.maximum(weight, 1.0 / size)[..., None]
    mean = lists.offset.reshape(*shape, -1) / steady
    wider = lists.second.reshape(*shape, 1) / steady
    covariance = request.space.spread * np.clip(1.0 + wider, 0.25, 4.0)
    ids = np.zeros(shape, dtype=np.int64)
    for group in range(groups):
        candidates = Gaussians(mean[:, group], covariance[:, group])
        if request.matcher == "signature":
            ids[:, group] = _clustered(candidates, request)
        else:
            rngs = [
                Seeds(request.seed).at("task", request.task, "names", group, "client", client)
                for client in range(len(ids))
            ]
            mixture = Mixture(weight[:, group], candidates)
            prototypes = request.prototypes_of(group)
            ids[:, group] = match(mixture, prototypes, request.space.anchors, request.matcher, rngs)
    return ids


def _clustered(candidates: Gaussians, request: Request) -> IntArray:
    """(b, L) the cluster of each candidate's signature; all clients are clustered together."""
    signed = signatures(candidates, request.space.anchors)
    points = signed.reshape(-1, signed.shape[-1])
    squares = np.square(points).sum(axis=1)
    distance = squares[:, None] + squares - 2.0 * points @ points.T
    distance = np.sqrt(np.maximum(distance, 0.0))
    return stable_clusters(distance, request.sub_modes).reshape(signed.shape[:-1])

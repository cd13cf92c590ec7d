"""The clipping bound, from simulated clients on the public corpus."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.numerics.mixture import Gaussians
from cslr.privacy.values import joint_norms
from cslr.protocol.agreement import BOUND_QUANTILE, Agreement, simulated_clients
from cslr.protocol.list_mode import list_statistics
from cslr.protocol.literal.device import bounds, list_bound
from cslr.protocol.round import statistics_of
from cslr.protocol.step1_list import coordinates_of
from cslr.protocol.step4_aggregate.tied import tied_factors
from cslr.seeding import Seeds

__all__ = ["with_bound"]

TARGET_BOUND: Final = 1.0
"""B_y of targets that are clipped by themselves: public sentences have none to learn it from."""


def with_bound(agreement: Agreement, public: FloatArray, labels_per_task: int) -> Agreement:
    """The agreement with S and the share of weight that survives clipping to it.

    public: (n, d) the embedded public corpus. The simulated clients are compared with prototypes
    at the public centre, not with those of the labels.
    """
    if agreement.paper is not None:
        return _written_bounds(agreement)
    resolution = agreement.resolution
    labels_per_task = resolution.simulated_labels or labels_per_task
    examples = simulated_clients(
        public, labels_per_task, Seeds(agreement.seed), resolution.simulated_rows
    )
    sub_modes = len(agreement.modes.group) // len(agreement.modes.groups)
    labels = tuple(range(labels_per_task))
    groups = (labels,) if agreement.modes.pooled else tuple((label,) for label in labels)
    count, r = len(groups) * sub_modes, agreement.space.dimension
    offered = agreement.modes.candidates
    request = replace(
        agreement.request(0, ()),
        groups=groups,
        prototypes=Gaussians(
            np.zeros((count, r)), np.broadcast_to(agreement.space.spread, (count, r))
        ),
        layout=agreement.layout(count),
        candidates=None if offered is None else offered[: len(groups)],
    )
    x = coordinates_of(examples, request)
    statistics = statistics_of(examples, request, x)
    list_norms = np.linalg.norm(
        agreement.list_layout(len(groups)).pack(list_statistics(examples, request)), axis=1
    )
    list_bound = float(np.quantile(list_norms, BOUND_QUANTILE))
    agreement = replace(agreement, list_bound=list_bound)
    if agreement.clipping == "separate":
        *norms, _ = (np.linalg.norm(each, axis=1) for each in request.layout.blocks(statistics))
        bounds = [float(np.quantile(norm, BOUND_QUANTILE)) for norm in norms]
        kept = float(np.minimum(1.0, bounds[0] / norms[0]).mean())
        return replace(agreement, bounds=(*bounds, TARGET_BOUND), kept=kept)
    factors = tied_factors(x, examples, request)  # no column where there is no matrix
    joint = joint_norms(request.layout.pack(statistics), factors)
    bound = float(np.quantile(joint, BOUND_QUANTILE))
    kept = float(np.minimum(1.0, bound / joint).mean())
    # Several clients may hold rows of one unit: together they move a sum by at most the bound.
    return replace(agreement, bounds=(bound * agreement.clients_per_person,), kept=kept)


def _written_bounds(agreement: Agreement) -> Agreement:
    """The paper's: B of each statistic, and what follows from it for a whole contribution."""
    paper = agreement.paper
    assert paper is not None
    modes = len(agreement.modes.group) // len(agreement.modes.groups)  # a task is one group
    entries = agreement.learner.size
    return replace(
        agreement,
        bounds=bounds(paper, entries, modes),
        list_bound=list_bound(paper, entries),
    )

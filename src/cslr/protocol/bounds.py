"""The clipping bound, from simulated clients on the public corpus."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cslr.numerics.gaussian import Gaussians
from cslr.protocol.agreement import BOUND_QUANTILE, Agreement, simulated_clients
from cslr.protocol.round import statistics_of
from cslr.seeding import Seeds
from cslr.types import FloatArray

__all__ = ["with_bound"]


def with_bound(agreement: Agreement, public: FloatArray, labels_per_task: int) -> Agreement:
    """The agreement with S and the share of weight that survives clipping to it.

    public: (n, d) the embedded public corpus. The simulated clients are compared with prototypes
    at the public centre, whatever the labels' own are.
    """
    examples = simulated_clients(public, labels_per_task, Seeds(agreement.seed))
    sub_modes = len(agreement.modes.labels) // len(np.unique(agreement.modes.labels))
    count, r = labels_per_task * sub_modes, agreement.space.dimension
    request = replace(
        agreement.request(0, ()),
        labels=tuple(range(labels_per_task)),
        prototypes=Gaussians(
            np.zeros((count, r)), np.broadcast_to(agreement.space.spread, (count, r))
        ),
        layout=agreement.layout(count),
    )
    norms = np.linalg.norm(request.layout.pack(statistics_of(examples, request)), axis=1)
    bound = float(np.quantile(norms, BOUND_QUANTILE))
    return replace(agreement, bound=bound, kept=float(np.minimum(1.0, bound / norms).mean()))

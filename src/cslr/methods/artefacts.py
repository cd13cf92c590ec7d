"""The arrays of a replay that a run saves."""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray
from cslr.protocol.agreement import Agreement
from cslr.protocol.step4_aggregate.estimate import Replay

__all__ = ["replay_arrays"]


def replay_arrays(replay: Replay, agreement: Agreement) -> dict[str, FloatArray]:
    """Q_{1:t} as arrays: enough to draw from it without anything else."""
    return {
        "weights": replay.weights,
        "mean": replay.mean,
        "variance": replay.gaussians(agreement.space).covariance
        if replay.covariance is None
        else replay.covariance,
        "labels": replay.labels.astype(np.float64),
        "tasks": replay.tasks.astype(np.float64),
        "targets": replay.targets,
        "known": replay.known.astype(np.float64),
        "centre": agreement.space.centre,
        "basis": agreement.space.basis,
    }

"""Q_{1:t} of the paper's protocol: the modes that were read from each task's sums, concatenated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cslr.arrays import IntArray
from cslr.protocol.head import Family
from cslr.protocol.public_space import Modes
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease

__all__ = ["written_replay"]


def written_replay(releases: Sequence[TaskRelease], modes: Modes, family: Family) -> Replay:
    """Q_{1:t}: the modes of all tasks, each task with the same total weight."""
    written = [release.written for release in releases if release.written is not None]
    chosen: IntArray = np.concatenate([release.modes for release in releases])
    mean = np.concatenate([each.gaussians.mean for each in written])
    labels = [label for group in modes.group[chosen].tolist() for label in modes.groups[group]]
    return Replay(
        weights=np.concatenate([each.weights for each in written]) / len(written),
        mean=mean,
        centre=np.zeros_like(mean),
        relative=np.ones((len(mean), 1)),
        labels=modes.labels[chosen],
        heard=np.isin(np.arange(family.labels), labels),
        pooled=modes.pooled,
        tasks=np.repeat([release.task for release in releases], [len(r.modes) for r in releases]),
        targets=np.concatenate([each.targets for each in written]),
        covariance=np.concatenate([each.gaussians.covariance for each in written]),
        known=np.ones(len(mean), dtype=np.bool_),
        trust=np.ones(len(mean)),
        floored=float(np.mean([each.floored for each in written])),
    )

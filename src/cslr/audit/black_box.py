"""Black box: what Q_{1:t} alone reveals about the sums it was estimated from.

Each mean of Q depends on its mode's sum, shrunk more in some directions than in others. The attack
takes the difference of the means from the expected ones, scales all directions to the same size,
and uses it as the difference of the sums. It is simple and not the best attack: the estimator could
be inverted more accurately, so its result is a measurement and no evidence of privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cslr.protocol.agreement import Agreement
from cslr.protocol.step4_aggregate.contribution import Statistics
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease, estimate_replay

__all__ = ["shifts_of"]


def shifts_of(
    replay: Replay, expected: Sequence[TaskRelease], agreement: Agreement
) -> list[Statistics]:
    """By task, the estimated difference of the sums behind ``replay`` from the expected ones.

    expected: releases as they would be on average, without noise. Only offsets are estimated;
    weights, second moments and targets are zero.
    """
    usual = estimate_replay(expected, agreement.modes, agreement.space, agreement.family)
    moved = replay.released().mean - usual.released().mean  # (K, r)
    size = np.sqrt(np.square(moved).mean(axis=0))
    offsets = moved / np.where(size > 0, size, 1.0)
    ends = np.cumsum([len(release.modes) for release in expected])[:-1]
    return [
        replace(
            release.sums,
            weight=np.zeros_like(release.sums.weight),
            offset=offset,
            second=np.zeros_like(release.sums.second),
            target=np.zeros_like(release.sums.target),
        )
        for release, offset in zip(expected, np.split(offsets, ends), strict=True)
    ]

"""What a report draws of a replay: a plane of the public space, and signal beside noise.

Everything here is public or made of releases, so it is free and may be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.round import Session
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease

__all__ = ["BLOCK_NAMES", "picture_arrays"]

BLOCK_NAMES: Final = ("weight", "offset", "second", "target", "tied")
"""Blocks of a release, in the order of ``blocks``."""


def picture_arrays(session: Session, replay: Replay) -> dict[str, FloatArray]:
    """Arrays to draw Q_{1:t} by.

    plane (d, 2) and origin (d,): how an embedding z is drawn, (z − origin) @ plane. anchors,
    prototypes, means: (·, 2) drawn so; covariance (K, 2, 2). blocks (T, 5) and directions (T, r):
    signal to noise of each block of a release, and of its means by direction; NaN: not sent, or
    sent without noise.
    """
    space, modes = session.agreement.space, session.agreement.modes
    prototypes = modes.prototypes.mean
    plane = _plane(prototypes, space)
    centre = prototypes.mean(axis=0)
    releases = [release.value for release in session.releases]
    return {
        "plane": space.basis[:, : space.dimension] @ plane,
        "origin": space.centre + space.basis[:, : space.dimension] @ centre,
        "anchors": (space.anchors - centre) @ plane,
        "prototypes": (prototypes - centre) @ plane,
        "means": (replay.mean - centre) @ plane,
        "covariance": _drawn_covariance(replay, space, plane),
        "labels": replay.labels.astype(np.float64),
        "known": replay.known.astype(np.float64),
        "tasks": replay.tasks.astype(np.float64),
        "blocks": np.array([_blocks(release) for release in releases]).reshape(-1, 5),
        "directions": _directions(releases, space.dimension),
    }


def _plane(prototypes: FloatArray, space: PublicSpace) -> FloatArray:
    """(r, 2) the two directions in which prototypes differ most; else the public leading ones."""
    apart = prototypes - prototypes.mean(axis=0)
    _, sizes, rows = np.linalg.svd(apart, full_matrices=False)
    rows = rows[sizes > 1e-9][:2]
    while len(rows) < min(2, space.dimension):
        rest = np.eye(space.dimension) - rows.T @ rows
        best = rest[np.argmax(np.linalg.norm(rest, axis=1))]
        rows = np.concatenate([rows, [best / np.linalg.norm(best)]])
    return np.pad(rows, ((0, 2 - len(rows)), (0, 0))).T


def _drawn_covariance(replay: Replay, space: PublicSpace, plane: FloatArray) -> FloatArray:
    """(K, 2, 2)"""
    covariance = replay.covariance
    if covariance is None:
        covariance = replay.gaussians(space).covariance
    whole = covariance if covariance.ndim == 3 else np.eye(len(plane)) * covariance[:, None]
    return plane.T @ whole @ plane


def _blocks(release: TaskRelease) -> list[float]:
    sums, noise = release.sums, release.noise
    pairs = [(getattr(sums, name), getattr(noise, name)) for name in BLOCK_NAMES]
    return [_ratio(np.asarray(block), deviation) for block, deviation in pairs]


def _ratio(values: FloatArray, deviation: float) -> float:
    """Root of the signal's mean square, as far as it exceeds the noise's, over the noise."""
    if not values.size or deviation == 0:
        return float("nan")
    power = float(np.square(values / deviation).mean())
    return float(np.sqrt(max(power - 1.0, 0.0)))


def _directions(releases: Sequence[TaskRelease], dimension: int) -> FloatArray:
    """(T, r)"""
    rows = [
        [_ratio(release.sums.offset[:, j], release.noise.offset) for j in range(dimension)]
        if release.sums.offset.shape[-1] == dimension
        else [float("nan")] * dimension
        for release in releases
    ]
    return np.array(rows).reshape(-1, dimension)

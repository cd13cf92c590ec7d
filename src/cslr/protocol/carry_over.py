"""Carry releases of one encoder over to the space of another: post-processing, at no cost.

A ridge map predicts the other encoder's embedding of a text from this one's, so it takes the mean
of a mode to the mean of the same texts.

``carried`` maps a release, so that later ones can be combined with it; its noise is mapped too and
grows or shrinks with the map. ``lifted`` maps a replay that was already estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import ConfigError
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease
from cslr.protocol.translation import Affine

__all__ = ["Carry", "Passage", "carried", "lifted", "passage", "raw_passage"]

Carry = Literal["mapped", "dropped", "raw"]
"""What happens to earlier releases: they are mapped, dropped, or, for comparison, their numbers are
reused as if they were coordinates of the new encoder."""


@dataclass(frozen=True, eq=False)
class Passage:
    """x (…, r) in the old space -> x matrix + offset (…, r') in the new one."""

    matrix: FloatArray  # (r, r')
    offset: FloatArray  # (r',)
    matters: FloatArray  # (r',) public variance between topics along each new direction

    @property
    def loudness(self) -> float:
        """The factor by which isotropic noise grows under the map.

        The root mean square over the new directions, weighted by ``matters``: a map amplifies most
        where encoders agree most, and those directions separate topics.
        """
        grown = np.square(self.matrix).sum(axis=0)
        return float(np.sqrt(self.matters @ grown / self.matters.sum()))


def passage(old: PublicSpace, new: PublicSpace, between: Affine) -> Passage:
    """From the released coordinates of one space to those of another.

    between: the map from the old encoder's embeddings to the new one's, without its last step to
    unit length: a mean has no unit length.
    """
    down = old.basis[:, : old.dimension].T  # (r, d)
    up = new.basis[:, : new.dimension]  # (d', r')
    start = old.centre @ between.matrix + between.offset - new.centre
    matters = new.between[: new.dimension]
    return Passage(down @ between.matrix @ up, start @ up, matters)


def raw_passage(old: PublicSpace, new: PublicSpace) -> Passage:
    """For comparison only: coordinates are reused unchanged."""
    matrix, matters = np.eye(old.dimension, new.dimension), new.between[: new.dimension]
    return Passage(matrix, np.zeros(new.dimension), matters)


def carried(release: TaskRelease, way: Passage) -> TaskRelease:
    """The release as if clients had computed their statistics in the new space."""
    if release.sums.second.shape[-1] > 1:
        raise ConfigError(
            "replay.second_moments must be 'shared' to carry releases over to another "
            "encoder: per-direction variances have no meaning in another embedding space"
        )
    elected = None if release.elected is None else release.elected @ way.matrix + way.offset
    return replace(
        release,
        prototypes=release.prototypes @ way.matrix + way.offset,
        sums=replace(release.sums, offset=release.sums.offset @ way.matrix),
        noise=replace(release.noise, offset=release.noise.offset * way.loudness),
        elected=elected,
    )


def lifted(replay: Replay, way: Passage) -> Replay:
    """Q_{1:t} in the new space; modes keep their weights, targets and scales."""
    if replay.covariance is not None or replay.relative.shape[1] > 1:
        raise ConfigError(
            "replay.second_moments must be 'shared' to lift a replay into another encoder's space"
        )
    return replace(
        replay,
        mean=replay.mean @ way.matrix + way.offset,
        centre=replay.centre @ way.matrix + way.offset,
    )

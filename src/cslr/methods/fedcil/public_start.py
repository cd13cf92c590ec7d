"""Public initialisation: coordinates, and rows sampled from the label prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cslr.arrays import FloatArray
from cslr.methods.fedcil.networks import Shapes
from cslr.methods.fedcil.pools import Pool
from cslr.methods.method import MethodContext
from cslr.protocol.head import Head
from cslr.protocol.public_space import PublicSpace, declare_modes
from cslr.protocol.step4_aggregate.estimate import estimate_replay
from cslr.protocol.step5_rehearse import Sampler

__all__ = ["Coordinates", "prior_rows"]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The first r public directions, scaled to unit variance on average."""

    directions: FloatArray  # (d, r)
    centre: FloatArray  # (d,)

    @classmethod
    def of(cls, space: PublicSpace, count: int) -> Coordinates:
        """``count`` directions of a space, or all if it has fewer."""
        scale = np.sqrt(space.spread[:count].mean())
        return cls(space.basis[:, : min(count, space.dimension)] / scale, space.centre)

    def into(self, z: FloatArray) -> FloatArray:
        """Embeddings (..., d) -> coordinates (..., r)."""
        x: FloatArray = ((z - self.centre) @ self.directions).astype(np.float32)
        return x

    def head(self, model: FloatArray, shapes: Shapes) -> Head:
        """The critic's classifier as a head over embeddings."""
        weights1, bias1, weights2, bias2 = shapes.split(model)[6:]
        into = self.directions @ weights1
        arrays = (into, bias1[0] - self.centre @ into, weights2[:, 1:], bias2[0, 1:])
        return Head(*(array.astype(np.float32) for array in arrays))

    def critic(self, head: Head) -> FloatArray:
        """The layers of a critic whose classifier is a head over embeddings, as one vector.

        The part of the head outside the directions is lost. The real-or-fake output is zero.
        """
        scale = float(np.square(self.directions[:, 0]).sum())
        layers = (
            self.directions.T @ head.weights1 / scale,
            head.bias1 + self.centre @ head.weights1,
            np.concatenate([np.zeros((len(head.weights2), 1)), head.weights2], axis=1),
            np.concatenate([[0.0], head.bias2]),
        )
        return np.concatenate([layer.ravel() for layer in layers]).astype(np.float32)


def prior_rows(
    context: MethodContext, space: PublicSpace, coordinates: Coordinates, count: int
) -> Pool | None:
    """About ``count`` rows from the label prior, labels with their publicly expected frequencies.

    None without a label prior.
    """
    if context.replay.prior != "labels":
        return None
    family, rng = context.family, context.seeds.at("prior rows")
    modes = declare_modes(
        space, context.public, context.label_texts, 1, "labels", context.seeds.at("prototypes")
    )
    sampler = Sampler.of(estimate_replay((), modes, space, family), space)
    most = int(np.ceil(count * family.shares.max()))
    z, targets = sampler.draw(most, rng)
    labels = np.repeat(np.arange(family.labels), most)
    share = family.shares[labels] / family.shares.max()
    chosen = np.arange(len(labels)) % most < np.round(share * most)
    return Pool(
        torch.from_numpy(coordinates.into(z[chosen])),
        torch.from_numpy(labels[chosen]),
        torch.from_numpy(targets[chosen]),
    )

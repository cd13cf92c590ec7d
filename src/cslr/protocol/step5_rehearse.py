"""Step 5: a head that learns from the replay (paper, Section 4.6).

The default head sees samples of Q_{1:t} and nothing else, so whatever it says is post-processing:
its end-to-end ε is that of the replay release.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cslr.protocol.head import Batch, Head, HeadSettings, train_head
from cslr.protocol.public import PublicSpace
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.protocol.targets import label_targets
from cslr.seeding import Seeds
from cslr.types import FloatArray, IntArray

__all__ = ["Sampler", "rehearse"]

SHAPE_POWER: Final = 0.5
"""Replay samples spread around their mode as the public within-topic covariance to this power.

With 1 a head whitens, and so trusts the directions in which the means are mostly noise; with 0 it
ignores what is publicly known about the shape of a class."""
OVERLAP: Final = 2.0
"""Distance of a mode from the public centre, in standard deviations of its samples."""


def rehearse(
    replay: Replay,
    space: PublicSpace,
    start: Head,
    settings: HeadSettings,
    samples: int,
    passes: int,
    seeds: Seeds,
) -> Head:
    """A head trained on ``passes`` fresh draws of the replay, from the best linear rule on."""
    sampler = Sampler.of(replay, space)
    labels = len(start.bias2)
    start = sampler.linear_start(start)

    def draws() -> Iterator[Batch]:
        for number in range(passes):
            yield sampler.draw(samples, labels, seeds.at("replay", number))

    # A draw is one batch: cut up, it would lose the balance between its classes.
    whole = replace(settings, batch=samples * len(np.unique(replay.labels)))
    return train_head(start, draws(), whole, seeds.at("batches"))


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws (z, y) from Q_{1:t}, lifted back to embeddings.

    Released directions have the replay's means; the others have the public centre. All means are
    brought to one distance from the centre: how far noise and shrinkage left a mean says nothing
    about its class, but a head would read it as a bias for or against it. At ``OVERLAP`` standard
    deviations the classes overlap as real ones do, so that a head has to find the best direction
    between them and not just any that separates.
    """

    replay: Replay
    mean: FloatArray  # (K, d) embeddings
    factor: FloatArray  # (d, d) white noise -> noise in the public basis
    scale: FloatArray  # (K, d) standard deviations relative to the public ones
    basis: FloatArray  # (d, d)
    centre: FloatArray  # (d,)

    @classmethod
    def of(cls, replay: Replay, space: PublicSpace) -> Sampler:
        """The sampler of a replay in a public space."""
        d, r = len(space.centre), replay.mean.shape[1]
        values, vectors = np.linalg.eigh(space.within)
        values = np.maximum(values, 1e-3 * values.max()) ** SHAPE_POWER
        values *= (space.between.sum() + np.trace(space.within)) / values.sum()
        whitening = (vectors / np.sqrt(values)) @ vectors.T
        coordinates = np.zeros((len(replay.mean), d))
        coordinates[:, :r] = replay.mean
        distance = np.linalg.norm(coordinates @ whitening, axis=1, keepdims=True)
        coordinates *= OVERLAP / np.maximum(distance, 1e-12)
        relative = np.repeat(replay.relative.mean(axis=1, keepdims=True), d, axis=1)
        relative[:, :r] = replay.relative
        return cls(
            replay,
            space.lift(coordinates).astype(np.float32),
            ((vectors * np.sqrt(values)) @ vectors.T).astype(np.float32),
            np.sqrt(relative).astype(np.float32),
            space.basis.astype(np.float32),
            space.centre,
        )

    def draw(self, samples: int, labels: int, rng: np.random.Generator) -> Batch:
        """``samples`` (n_r) embeddings of each label, with targets over ``labels`` labels.

        Labels are drawn equally often, modes within a label by their weights: a label's share in
        the sums counts clients, not how often it will be met. The labels share their noise, and
        every noise vector comes with its negative, so that chance does not move one class's
        samples against another's.
        """
        known = np.unique(self.replay.labels)
        modes = np.stack([self._modes_of(int(label), samples, rng) for label in known])
        half = rng.standard_normal((-(-samples // 2), self.mean.shape[1]), dtype=np.float32)
        noise = np.concatenate([half, -half])[:samples] @ self.factor
        if (self.scale == self.scale[:, :1]).all():  # one scale per mode commutes with the basis
            spread = (noise @ self.basis.T) * self.scale[modes, :1]
        else:
            spread = (noise * self.scale[modes]) @ self.basis.T
        z = (self.mean[modes] + spread).reshape(-1, self.mean.shape[1])
        return z, label_targets(self.replay.labels[modes.ravel()], labels)

    def linear_start(self, head: Head) -> Head:
        """``head`` with the linear rule that is best if every label had one mode.

        The rule uses two hidden units per label, since u = relu(u) − relu(−u); the others keep
        their random input and are silent at first. A head too narrow for it is left as it is.
        """
        known = np.unique(self.replay.labels)
        units = 2 * len(known)
        if units > len(head.bias1):
            return head
        precision = np.linalg.inv(self.factor.astype(np.float64) @ self.factor) @ self.basis.T
        rules, offsets = [], []
        for label in known:
            mine = self.replay.labels == label
            mean = self.mean[mine].mean(axis=0).astype(np.float64)
            direction = self.basis @ (precision @ (mean - self.centre))
            direction /= float(np.mean(np.square(self.scale[mine])))
            rules.append(direction)
            offsets.append(-direction @ (self.centre + mean) / 2)
        rule, offset = np.stack(rules, axis=1), np.array(offsets)
        weights1, bias1 = head.weights1.copy(), head.bias1.copy()
        weights2, bias2 = np.zeros_like(head.weights2), np.zeros_like(head.bias2)
        weights1[:, :units] = np.concatenate([rule, -rule], axis=1)
        bias1[:units] = np.concatenate([offset, -offset])
        weights2[np.arange(units), np.tile(known, 2)] = np.repeat([1.0, -1.0], len(known))
        return Head(weights1, bias1, weights2, bias2)

    def _modes_of(self, label: int, samples: int, rng: np.random.Generator) -> IntArray:
        modes = np.flatnonzero(self.replay.labels == label)
        weights = self.replay.weights[modes]
        total = weights.sum()
        share = weights / total if total > 0 else np.full(len(modes), 1 / len(modes))
        return rng.choice(modes, size=samples, p=share)

"""Step 5: a head that learns from the replay (paper, Section 4.6).

The default head sees samples of Q_{1:t} and nothing else, so whatever it says is post-processing:
its end-to-end ε is that of the replay release.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cslr.numerics.gaussian import sample
from cslr.protocol.head import Batch, Head, HeadSettings, initial_head, train_head
from cslr.protocol.public import PublicSpace
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.protocol.targets import label_targets
from cslr.seeding import Seeds
from cslr.types import IntArray

__all__ = ["draw_replay", "rehearse"]


def rehearse(
    replay: Replay,
    space: PublicSpace,
    labels: int,
    settings: HeadSettings,
    samples: int,
    passes: int,
    seeds: Seeds,
) -> Head:
    """A head for ``labels`` labels trained on ``passes`` fresh draws of the replay."""
    start = initial_head(len(space.centre), labels, settings, seeds.at("initial head"))

    def draws() -> Iterator[Batch]:
        for number in range(passes):
            yield draw_replay(replay, space, labels, samples, seeds.at("replay", number))

    return train_head(start, draws(), settings, seeds.at("batches"))


def draw_replay(
    replay: Replay, space: PublicSpace, labels: int, samples: int, rng: np.random.Generator
) -> Batch:
    """(z, y) ~ Q_{1:t}: ``samples`` (n_r) embeddings of each label, with its targets.

    Labels are drawn equally often, modes within a label by their weights: a label's share in the
    sums counts clients, not how often it will be met.
    """
    modes = np.concatenate(
        [_modes_of(replay, int(label), samples, rng) for label in np.unique(replay.labels)]
    )
    z = space.lift(sample(replay.gaussians, modes, rng))
    return z, label_targets(replay.labels[modes], labels)


def _modes_of(replay: Replay, label: int, samples: int, rng: np.random.Generator) -> IntArray:
    modes = np.flatnonzero(replay.labels == label)
    weights = replay.weights[modes]
    total = weights.sum()
    share = weights / total if total > 0 else np.full(len(modes), 1 / len(modes))
    return rng.choice(modes, size=samples, p=share)

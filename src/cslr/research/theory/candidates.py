"""NON-PRIVATE. All candidates of a stream's simulated clients.

Steps 1 to 3 as a device runs them, before anything is released: a list per client, task and label,
with the canonical id of each entry. In ``sum`` mode no server ever sees these lists; a study of
anchors needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.data.stream import assign_clients
from cslr.errors import DataError
from cslr.numerics.mixture import Gaussians, Mixture
from cslr.protocol.public_space import PublicSpace, build_space, declare_modes
from cslr.protocol.step1_list import ListLearner, clip_embeddings, learn_lists, steadied
from cslr.protocol.step3_match import match
from cslr.runs.embedded import EmbeddedStream
from cslr.seeding import Seeds

__all__ = ["Candidates", "simulated_candidates"]

MOST: Final = 400
"""Candidates that are compared at most, since pairs grow quadratically; of more, a sample."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """List entries with examples, of all clients, tasks and labels."""

    gaussians: Gaussians  # (N, r), variances steadied as for signatures
    ids: IntArray  # (N,) one number a task, label and sub-mode
    clients: IntArray  # (N,)
    total: int
    """How many there were before sampling."""
    space: PublicSpace
    rows: FloatArray  # (n, r) coordinates of what the clients hold


def simulated_candidates(config: Config, embedded: EmbeddedStream, most: int = MOST) -> Candidates:
    """The candidates of the configuration's first seed, with its partition and its anchors."""
    seeds = Seeds(config.seeds[0])
    device = _Device.of(config, embedded, seeds)
    owners, rows = assign_clients(embedded.stream, config.stream, seeds.at("partition"))
    x = device.space.into(clip_embeddings(embedded.train.z))
    entries = [
        entry
        for client in np.unique(owners).tolist()
        for entry in device.entries(
            client, _examples(embedded, rows[owners == client]), x, embedded
        )
    ]
    if not entries:
        raise DataError(f"stream {embedded.stream.name!r} has no train rows, so there are no lists")
    means, variances, ids, clients = (np.array(part) for part in zip(*entries, strict=True))
    chosen = np.sort(seeds.at("candidates looked at").permutation(len(ids))[:most])
    return Candidates(
        Gaussians(means[chosen], variances[chosen]),
        ids[chosen],
        clients[chosen],
        len(ids),
        device.space,
        x[_examples(embedded, np.unique(rows))],
    )


_Entry = tuple[FloatArray, FloatArray, int, int]
"""Mean (r,), variances (r,), id and client."""


@dataclass(frozen=True, eq=False)
class _Device:
    """The public settings that every client gets before the first release."""

    space: PublicSpace
    prototypes: tuple[Gaussians, ...]  # of each label: (J, r)
    learner: ListLearner
    matcher: str
    seeds: Seeds

    @classmethod
    def of(cls, config: Config, embedded: EmbeddedStream, seeds: Seeds) -> _Device:
        replay = config.replay
        count, sub_modes = config.paper.m, replay.sub_modes or 1
        rng = seeds.at("anchors")
        space = build_space(embedded.public, embedded.encoder, replay.directions, count, rng)
        rng = seeds.at("prototypes")
        modes = declare_modes(
            space, embedded.public, embedded.label_texts, sub_modes, replay.prior, rng
        )
        means, spreads = modes.prototypes.mean, modes.prototypes.covariance
        of_label = [modes.labels == label for label in range(embedded.family.labels)]
        return cls(
            space,
            tuple(Gaussians(means[of_one], spreads[of_one]) for of_one in of_label),
            ListLearner(size=config.paper.list_size or (1 if sub_modes == 1 else 2 * sub_modes)),
            replay.matching,
            seeds,
        )

    def entries(
        self, client: int, own_rows: IntArray, x: FloatArray, embedded: EmbeddedStream
    ) -> Iterator[_Entry]:
        """The entries of one client's lists, without those that have no example."""
        tasks, labels = embedded.train.tasks[own_rows], embedded.train.labels[own_rows]
        for task, label in np.unique(np.stack([tasks, labels]), axis=1).T.tolist():
            rows = x[own_rows[(tasks == task) & (labels == label)]]
            rng = self.seeds.at("task", task, "label", label, "client", client)
            seen, ids = self._listed(rows, label, rng)
            first = (task * embedded.family.labels + label) * len(self.prototypes[label].mean)
            for entry in np.flatnonzero(seen.weights[0] > 0):
                mean, variance = seen.gaussians.mean[0, entry], seen.gaussians.covariance[0, entry]
                yield mean, variance, first + int(ids[entry]), client

    def _listed(
        self, rows: FloatArray, label: int, rng: np.random.Generator
    ) -> tuple[Mixture, IntArray]:
        """A list of L candidates from coordinates (n, r), with steadied variances; its ids (L,)."""
        spread, every = self.space.spread, np.ones((1, len(rows)), dtype=np.bool_)
        lists = learn_lists(rows[None], every, spread, self.learner, [rng])
        steady = steadied(lists, np.array([len(rows)]), spread, self.learner.pseudo_count)
        seen = Mixture(lists.weights, steady)
        ids = match(seen, self.prototypes[label], self.space.anchors, self.matcher, [rng])
        return seen, ids[0]


def _examples(embedded: EmbeddedStream, rows: IntArray) -> IntArray:
    """The indices of the examples of these rows: one per text, or one per word of a sentence."""
    starts = embedded.train.starts
    parts = [np.arange(starts[row], starts[row + 1]) for row in rows]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

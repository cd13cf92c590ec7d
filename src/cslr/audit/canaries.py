"""Canaries: artificial units among the honest ones whose presence the auditor guesses.

A canary is a unit that the plan protects: a client, or a person inside one. Each is included or
not by a secret fair coin. Included canaries send the worst allowed vector: in a direction of its
own, with the clipping bound as its norm, in as many tasks as a unit may contribute to. A person
with rows in k clients sends it from each of them, clipped to 1/k of the bound there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.federation.simulation import SimulatedCohort
from cslr.privacy.values import Bounded, Grid, Summed, bound, plain_sum
from cslr.protocol.ports import Ask

__all__ = ["Canaries", "CohortWithCanaries", "draw_canaries", "surest"]

BEYOND: Final = 4.0
"""Norm of a canary's vector before the clip, in clipping bounds, to detect a missing clip."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """m canaries with the direction of each in each task; known to the auditor."""

    count: int  # m
    speakers: tuple[IntArray, ...]  # (m_t,) the canaries that contribute to each task
    directions: tuple[FloatArray, ...]  # (m_t, D_t) of each task, unit rows

    def sent(self, task: int, included: BoolArray, bound_: float) -> FloatArray:
        """(b, D_t) what included canaries send, before the clip; without any, a row of zeros."""
        rows = self.directions[task][included[self.speakers[task]]]
        if not len(rows):
            return np.zeros((1, self.directions[task].shape[1]))
        sent: FloatArray = BEYOND * bound_ * rows
        return sent

    @cached_property
    def overlaps(self) -> FloatArray:
        """(m, m) inner products of the vectors of two canaries over all tasks, in bounds²."""
        overlaps = np.zeros((self.count, self.count))
        for clients, rows in zip(self.speakers, self.directions, strict=True):
            overlaps[np.ix_(clients, clients)] += rows @ rows.T
        return overlaps

    def projections(self, released: Sequence[FloatArray]) -> FloatArray:
        """(m,) inner products of the releases (D_t,), in bounds, with each canary's vectors."""
        total = np.zeros(self.count)
        for clients, rows, vector in zip(self.speakers, self.directions, released, strict=True):
            total[clients] += rows @ vector
        return total

    def half(self, task: int) -> FloatArray:
        """(D_t,) the expected contribution of all canaries to a sum, in bounds."""
        half: FloatArray = self.directions[task].sum(axis=0) / 2
        return half

    def scores(self, projections: FloatArray, sigma: float) -> FloatArray:
        """Scores of canaries: positive for a guess of "in", larger in magnitude if it is surer.

        projections: (m, ...) minus the expected ones. A score is the best linear estimate of the
        coin minus ½, with noise of σ bounds; it accounts for directions that are not orthogonal.
        """
        # Coins with covariance I/4 are observed as G × coins + noise of covariance σ²G, G overlaps.
        seen = self.overlaps / 4 + sigma**2 * np.eye(self.count)
        scores: FloatArray = np.linalg.solve(seen, projections) / 4
        return scores


def draw_canaries(count: int, sizes: Sequence[int], cap: int, rng: np.random.Generator) -> Canaries:
    """Canary i contributes to ``cap`` tasks from task i on, in a direction of its own in each.

    sizes: D of each task. If D is large enough, the directions of a task are orthogonal.
    """
    tasks = len(sizes)
    order = np.arange(count)
    speakers = tuple(order[(task - order) % tasks < cap] for task in range(tasks))
    directions = tuple(
        _directions(len(clients), size, rng) for clients, size in zip(speakers, sizes, strict=True)
    )
    return Canaries(count, speakers, directions)


def _directions(count: int, size: int, rng: np.random.Generator) -> FloatArray:
    """(count, size) unit rows: orthonormal, or several orthonormal bases if count > size."""
    bases = [np.zeros((0, size))]
    for first in range(0, count, size):
        most = min(size, count - first)
        bases.append(np.linalg.qr(rng.standard_normal((size, most)))[0].T)
    return np.concatenate(bases)


def surest(scores: FloatArray, guesses: int, included: BoolArray) -> int:
    """How many of the ``guesses`` surest guesses are correct."""
    order = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return int(((scores > 0) == included)[order].sum())


@dataclass(frozen=True, eq=False)
class CohortWithCanaries:
    """The units of a round and the canaries, which the server cannot distinguish."""

    cohort: SimulatedCohort
    vectors: FloatArray  # (b, D)
    grid: Grid

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum over all of them; a canary is clipped like any unit, in each of its clients."""
        sent = np.repeat(self.vectors, self.grid.share, axis=0)
        return plain_sum([*self.cohort.answers(ask), bound(sent, self.grid)])

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], list[Bounded]]:
        """The units' answers; canaries send no lists, as only rounds with one sum are audited."""
        return self.cohort.each(ask)

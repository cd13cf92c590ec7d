"""Faults before the noise: who takes part, how a contribution is bounded, what it is divided by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import numpy as np

from cslr.federation.simulation import SimulatedCohort
from cslr.privacy.mechanism import poisson_cohort
from cslr.privacy.values import _SEAL, Bounded, Grid, bound, plain_sum
from cslr.protocol.agreement import FILLED, Agreement
from cslr.protocol.round import contribute, statistics_of
from cslr.protocol.updates import UpdateId

from .lab import everywhere, instead


def _on_grid(vectors: np.ndarray, grid: Grid) -> Bounded:
    """Whatever it is, in grid steps."""
    with np.errstate(invalid="ignore"):
        rows = np.trunc(vectors / grid.bound * grid.steps).astype(np.int64)
    return Bounded(rows, grid, _SEAL)


def _clipped(vectors: np.ndarray, limit: float, axes: tuple[int, ...]) -> np.ndarray:
    """The textbook clip, through which a NaN walks: it is not greater than any limit."""
    norm = np.sqrt(np.square(vectors).sum(axis=axes, keepdims=True))
    with np.errstate(invalid="ignore"):
        return np.where(norm > limit, vectors * (limit / np.maximum(norm, 1e-300)), vectors)


def clip_skipped() -> AbstractContextManager[None]:
    return everywhere(bound, _on_grid)


def nan_through_the_clip() -> AbstractContextManager[None]:
    def fault(vectors, grid):
        return _on_grid(_clipped(vectors, grid.bound * (1 - 1e-12), (1,)), grid)

    return everywhere(bound, fault)


def clip_by_block() -> AbstractContextManager[None]:
    """Weights, offsets, second moments and targets each get the whole bound."""

    def fault(examples, ask):
        request, grid = ask.request, ask.grid
        layout = request.layout
        packed = layout.pack(statistics_of(examples, request))
        modes = packed.reshape(len(packed), layout.modes, layout.width)  # (b, K, ·)
        blocks = np.split(modes, np.cumsum([1, layout.dimension, layout.seconds]), axis=-1)
        clipped = [_clipped(block, grid.bound, (1, 2)) for block in blocks]
        return _on_grid(np.concatenate(clipped, axis=-1).reshape(packed.shape), grid)

    return everywhere(contribute, fault)


def clip_by_mode() -> AbstractContextManager[None]:
    """Every mode gets the whole bound."""

    def fault(examples, ask):
        request, grid = ask.request, ask.grid
        layout = request.layout
        packed = layout.pack(statistics_of(examples, request))
        modes = packed.reshape(len(packed), layout.modes, layout.width)
        return _on_grid(_clipped(modes, grid.bound, (2,)).reshape(packed.shape), grid)

    return everywhere(contribute, fault)


def everybody_takes_part() -> AbstractContextManager[None]:
    """The coins are never tossed."""
    return everywhere(poisson_cohort, lambda clients, q, coins: np.ones(clients, dtype=np.bool_))


def client_counted_twice() -> AbstractContextManager[None]:
    """A client stands in two batches."""
    honest = SimulatedCohort.batches

    def fault(self, ask):
        batches = list(honest(self, ask))
        once = batches[0]
        rows = {name: value[:1] for name, value in vars(once).items() if value is not None}
        yield from [*batches, replace(once, **rows)]

    return instead(SimulatedCohort, "batches", fault)


@contextmanager
def divided_by_who_came() -> Iterator[None]:
    """Averages are over the clients that were summed, whose number is private."""
    came = [0]

    def counting(contributions):
        contributions = list(contributions)
        came[0] = sum(len(each.rows(_SEAL)) for each in contributions)
        return plain_sum(contributions)

    with (
        everywhere(plain_sum, counting),
        instead(UpdateId, "expected", lambda self, plan: came[0]),
        instead(Agreement, "expected_weight", property(lambda self: FILLED * self.kept * came[0])),
    ):
        yield

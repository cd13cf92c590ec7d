"""Step 5 of the paper: clients train the head on their own rows and on the replay.

Each round a cohort starts at the server's head, takes a few steps and sends the difference. Without
noise that costs ε = ∞ end to end, whatever the replay cost; with it (``dp-fedavg``) the updates are
releases like any other.

    L_total = L_task(D_i; θ) + λ L_replay(Q; θ)

Some clients of a cohort are trained at once: their heads are stacked, and no operation mixes two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.protocol.head import (
    Adam,
    Batch,
    Family,
    Head,
    contrast_slope,
    cross_entropy_slope,
    label_targets,
    sigmoid,
    softmax,
)
from cslr.protocol.ports import Examples
from cslr.seeding import Seeds

__all__ = ["LocalTraining", "applied", "local_updates"]

STEPS: Final = 5
"""Steps a client takes in a round."""
ROWS: Final = 32
"""Rows of its own it takes each time, drawn at random."""
TEMPERATURE: Final = 0.2
"""Of the contrastive loss."""
SILENT: Final = -1e4
"""Score of a label that no task has shown yet."""
NUMBERS: Final = 1 << 18
"""Weights of the clients that are trained together, so that all their steps stay in the cache."""


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """The request for a round of local training. Public: released values only."""

    head: Head
    family: Family
    heard: BoolArray  # (c,) labels of the tasks so far
    replay: Batch | None
    """Draws from earlier tasks, with their targets."""
    teacher: Head | None
    """The head before this task, for distillation."""
    taught: BoolArray  # (c,) labels of the tasks before this one
    loss: str
    weight: float  # λ
    learning_rate: float
    last_layer: bool
    """Whether only the last layer is trained: fewer numbers, less noise."""
    seeds: Seeds

    @property
    def parts(self) -> tuple[str, ...]:
        """The arrays of a head that are trained."""
        every = ("weights1", "bias1", "weights2", "bias2")
        return every[2:] if self.last_layer else every

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) how each client would change the head; zeros for one without rows."""
        return local_updates(examples, self)


def applied(head: Head, update: FloatArray, training: LocalTraining) -> Head:
    """``head`` moved by an update (D,)."""
    arrays = dict(vars(head))
    for name in training.parts:
        size = arrays[name].size
        step, update = update[:size], update[size:]
        moved = arrays[name].astype(np.float64) + step.reshape(arrays[name].shape)
        arrays[name] = moved.astype(np.float32)
    return Head(**arrays)


def local_updates(examples: Examples, training: LocalTraining) -> FloatArray:
    """(b, D) the differences after STEPS steps of Adam; zero for a client without rows."""
    rows = _drawn_rows(examples, training.seeds)  # (STEPS, b, ROWS)
    y = examples.targets
    if y is None:
        y = label_targets(examples.labels.ravel(), training.family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    has_rows: FloatArray = np.asarray(examples.mask.any(axis=1), dtype=np.float32)
    replay = _Replay.of(training)
    size = sum(vars(training.head)[name].size for name in training.parts)
    updates: FloatArray = np.empty((len(rows[0]), size))
    together = max(1, min(NUMBERS // size, len(updates)))
    heads = _Heads.of(training, together)
    for begin in range(0, len(updates), together):
        some = slice(begin, begin + together)
        clients = np.arange(len(updates))[some, None]
        if len(clients) < together:
            heads = _Heads.of(training, len(clients))
        z = np.asarray(examples.z[clients, rows[:, some]], dtype=np.float32)
        wanted = np.asarray(y[clients, rows[:, some]], dtype=np.float32)
        heads.train(training, replay, z, wanted, has_rows[some])
        heads.differences(updates[some])
    updates[has_rows == 0] = 0.0
    return updates


def _drawn_rows(examples: Examples, seeds: Seeds) -> IntArray:
    """(STEPS, b, ROWS) indices of rows that each client draws with its own random stream."""
    drawn = np.zeros((STEPS, len(examples.clients), ROWS), dtype=np.int64)
    for i, client in enumerate(examples.clients):
        mine = np.flatnonzero(examples.mask[i])
        if mine.size:
            drawn[:, i] = mine[seeds.at("client", client).integers(mine.size, size=(STEPS, ROWS))]
    return drawn


@dataclass(frozen=True, eq=False)
class _Heads:
    """The heads of b clients; layers that are not trained are one array for all of them."""

    start: tuple[FloatArray, ...]
    adam: Adam
    fixed: tuple[FloatArray, ...]  # the first layer, where the last alone is trained
    silent: IntArray  # outputs about labels that no task has shown yet

    @classmethod
    def of(cls, training: LocalTraining, b: int) -> _Heads:
        arrays = vars(training.head)
        own = [np.broadcast_to(arrays[name], (b, *arrays[name].shape)) for name in training.parts]
        fixed = [arrays[name] for name in arrays if name not in training.parts]
        return cls(
            tuple(own),
            Adam(own, training.learning_rate),
            tuple(np.asarray(array, dtype=np.float32) for array in fixed),
            np.flatnonzero(~training.heard[training.family.label_of_output()]),
        )

    def train(
        self,
        training: LocalTraining,
        replay: _Replay | None,
        z: FloatArray,
        wanted: FloatArray,
        has_rows: FloatArray,
    ) -> None:
        """From the start, on rows (STEPS, b, ROWS, d) with targets (STEPS, b, ROWS, o)."""
        self.adam.restart(self.start)
        for step in range(STEPS):
            hidden, scores = self.forward(z[step])
            slope = cross_entropy_slope(scores, wanted[step], training.family.sigmoid)
            self.add_gradients(z[step], hidden, slope, has_rows, first=True)
            if replay is not None:
                replay.add_gradients(self, step, np.float32(training.weight) * has_rows)
            self.adam.step()

    def differences(self, updates: FloatArray) -> None:
        """Fill (b, D) with how far the heads are from their start."""
        end = 0
        for reached, first in zip(self.adam.parameters, self.start, strict=True):
            begin, end = end, end + first[0].size
            updates[:, begin:end] = (reached - first).reshape(len(updates), -1)

    @property
    def _arrays(self) -> list[FloatArray]:
        return [*self.fixed, *self.adam.parameters]

    def forward(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Hidden (b, n, h) and scores (b, n, o) of z (b, n, d) or (n, d) under b heads."""
        weights1, bias1, weights2, bias2 = self._arrays
        hidden = z @ weights1
        hidden += bias1[..., None, :]
        np.maximum(hidden, 0.0, out=hidden)
        scores = hidden @ weights2
        scores += bias2[..., None, :]
        if self.silent.size:
            scores[..., self.silent] = SILENT
        return hidden, scores

    def add_gradients(
        self,
        z: FloatArray,
        hidden: FloatArray,
        slope: FloatArray,
        weights: FloatArray,
        first: bool = False,
    ) -> None:
        """Those of clients' losses, weighted (b,), whose gradient by scores is (b, n, o).

        first: in place of what was added in the step before.
        """
        if self.silent.size:
            slope[..., self.silent] = 0.0
        slope *= weights[:, None, None]
        *_, to_weights2, to_bias2 = self.adam.gradients
        _add(np.matmul, (np.swapaxes(hidden, -1, -2), slope), to_weights2, first)
        _add(np.add.reduce, (slope, -2), to_bias2, first)
        if not self.fixed:
            weights2 = self.adam.parameters[2]
            self.add_below(z, hidden, slope @ np.swapaxes(weights2, -1, -2), first)

    def add_below(
        self, z: FloatArray, hidden: FloatArray, below: FloatArray, first: bool = False
    ) -> None:
        """Those of the first layer, for a gradient by hidden units (b, n, h)."""
        to_weights1, to_bias1, *_ = self.adam.gradients
        below *= hidden > 0
        _add(np.matmul, (np.swapaxes(z, -1, -2), below), to_weights1, first)
        _add(np.add.reduce, (below, -2), to_bias1, first)


def _add(
    function: Callable[..., Any], given: tuple[Any, ...], total: FloatArray, first: bool
) -> None:
    """What a function gives, added to a total, or written there if it is the first."""
    if first:
        function(*given, out=total)
    else:
        total += function(*given)


@dataclass(frozen=True, eq=False)
class _Replay:
    """The replay term of the loss."""

    training: LocalTraining
    z: FloatArray  # (n, d)
    wanted: FloatArray  # (n, o)

    @classmethod
    def of(cls, training: LocalTraining) -> _Replay | None:
        if training.replay is None or not len(training.replay[0]) or training.weight == 0:
            return None
        z, wanted = training.replay
        if training.loss == "distillation" and training.teacher is not None:
            heard = training.taught[training.family.label_of_output()]
            scores = np.where(heard, training.teacher.scores(z), SILENT).astype(np.float32)
            wanted = sigmoid(scores) if training.family.sigmoid else softmax(scores)
        return cls(training, z.astype(np.float32), wanted.astype(np.float32))

    def add_gradients(self, heads: _Heads, step: int, weights: FloatArray) -> None:
        """Those of the loss on the step's share of the samples, weighted (b,)."""
        part = slice(step, None, STEPS)
        z, wanted = np.ascontiguousarray(self.z[part]), self.wanted[part]
        hidden, scores = heads.forward(z)
        if self.training.loss != "contrastive":
            slope = cross_entropy_slope(scores, wanted, self.training.family.sigmoid)
            heads.add_gradients(z, hidden, slope, weights)
        elif not heads.fixed:  # it is about hidden units, which nothing else moves
            below = contrast_slope(hidden, wanted.argmax(axis=-1), TEMPERATURE)
            heads.add_below(z, hidden, below * weights[:, None, None])

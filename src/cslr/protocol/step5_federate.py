"""Step 5 of the paper: clients train the head on their own rows and on the replay.

Each round a cohort starts at the server's head, takes a few steps and sends the difference. Without
noise that costs ε = ∞ end to end, whatever the replay cost; with it (``dp-fedavg``) the updates are
releases like any other.

    L_total = L_task(D_i; θ) + λ L_replay(Q; θ)

All clients of a cohort are trained at once: their heads are stacked, and no operation mixes two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.protocol.adam import Adam
from cslr.protocol.head import Batch, Head
from cslr.protocol.losses import contrast_slope, cross_entropy_slope, sigmoid, softmax
from cslr.protocol.ports import Examples
from cslr.protocol.targets import Family, label_targets
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
    b = len(examples.clients)
    rows = _drawn_rows(examples, training.seeds)  # (STEPS, b, ROWS)
    clients = np.arange(b)[:, None]
    y = examples.targets
    if y is None:
        y = label_targets(examples.labels.ravel(), training.family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    heads = _Heads.of(training, b)
    start = [array.copy() for array in heads.adam.parameters]
    has_rows: FloatArray = np.asarray(examples.mask.any(axis=1), dtype=np.float32)
    replay = _Replay.of(training)
    for step, chosen in enumerate(rows):
        for gradient in heads.adam.gradients:
            gradient[:] = 0.0
        z = np.ascontiguousarray(examples.z[clients, chosen], dtype=np.float32)
        wanted = np.ascontiguousarray(y[clients, chosen], dtype=np.float32)
        hidden, scores = heads.forward(z)
        slope = cross_entropy_slope(scores, wanted, training.family.sigmoid)
        heads.add_gradients(z, hidden, slope, has_rows)
        if replay is not None:
            replay.add_gradients(heads, step, np.float32(training.weight) * has_rows)
        heads.adam.step()
    moved = [
        (array - before).reshape(b, -1) * has_rows[:, None]
        for array, before in zip(heads.adam.parameters, start, strict=True)
    ]
    return np.concatenate(moved, axis=1).astype(np.float64)


def _drawn_rows(examples: Examples, seeds: Seeds) -> IntArray:
    """(STEPS, b, ROWS) indices of rows that each client draws with its own random stream."""
    drawn = np.zeros((STEPS, len(examples.clients), ROWS), dtype=np.int64)
    for i, client in enumerate(examples.clients):
        mine = np.flatnonzero(examples.mask[i])
        if mine.size:
            drawn[:, i] = seeds.at("client", client).choice(mine, size=(STEPS, ROWS))
    return drawn


@dataclass(frozen=True, eq=False)
class _Heads:
    """The heads of b clients; layers that are not trained are one array for all of them."""

    adam: Adam
    fixed: tuple[FloatArray, ...]  # the first layer, where the last alone is trained
    silent: BoolArray  # (o,) outputs about labels that no task has shown yet

    @classmethod
    def of(cls, training: LocalTraining, b: int) -> _Heads:
        arrays = vars(training.head)
        own = [np.broadcast_to(arrays[name], (b, *arrays[name].shape)) for name in training.parts]
        fixed = [arrays[name] for name in arrays if name not in training.parts]
        return cls(
            Adam(own, training.learning_rate),
            tuple(np.asarray(array, dtype=np.float32) for array in fixed),
            ~training.heard[training.family.label_of_output()],
        )

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
        scores[..., self.silent] = SILENT
        return hidden, scores

    def add_gradients(
        self, z: FloatArray, hidden: FloatArray, slope: FloatArray, weights: FloatArray
    ) -> None:
        """Those of clients' losses, weighted (b,), whose gradient by scores is (b, n, o)."""
        slope[..., self.silent] = 0.0
        slope *= weights[:, None, None]
        *_, to_weights2, to_bias2 = self.adam.gradients
        to_weights2 += np.swapaxes(hidden, -1, -2) @ slope
        to_bias2 += slope.sum(axis=-2)
        if not self.fixed:
            weights2 = self.adam.parameters[2]
            self.add_below(z, hidden, slope @ np.swapaxes(weights2, -1, -2))

    def add_below(self, z: FloatArray, hidden: FloatArray, below: FloatArray) -> None:
        """Those of the first layer, for a gradient by hidden units (b, n, h)."""
        to_weights1, to_bias1, *_ = self.adam.gradients
        below *= hidden > 0
        to_weights1 += np.swapaxes(z, -1, -2) @ below
        to_bias1 += below.sum(axis=-2)


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

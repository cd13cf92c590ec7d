"""Step 5 of the paper: clients train the head on their own rows and on the replay.

Each round a cohort starts at the server's head, takes a few steps and sends the difference. Without
noise that costs ε = ∞ end to end, whatever the replay cost; with noise (``dp-fedavg``) the updates
are charged releases.

    L_total = L_task(D_i; θ) + λ L_replay(Q; θ)

Several clients are trained at once: their heads are stacked, and no operation mixes two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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
"""Steps of a client in a round."""
ROWS: Final = 32
"""Rows of a client in a step, drawn at random with replacement."""
TEMPERATURE: Final = 0.2
"""Of the contrastive loss."""
SILENT: Final = -1e4
"""Score of a label that no task has had yet."""
NUMBERS: Final = 1 << 18
"""Trained weights of the clients of a stack, which fit into the cache."""


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """The request for a round of local training. Public: released values only."""

    head: Head
    family: Family
    heard: BoolArray  # (c,) labels of the tasks so far
    replay: Batch | None
    """Replay samples of earlier tasks, with their targets."""
    teacher: Head | None
    """The head before this task, for distillation."""
    taught: BoolArray  # (c,) labels of the tasks before this one
    loss: str
    weight: float  # λ
    learning_rate: float
    last_layer: bool
    """Whether only the last layer is trained: with fewer parameters there is less noise."""
    seeds: Seeds

    @property
    def parts(self) -> tuple[str, ...]:
        """The arrays of a head that are trained."""
        every = ("weights1", "bias1", "weights2", "bias2")
        return every[2:] if self.last_layer else every

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) each client's update of the head; zeros for a client without rows."""
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
    drawn = _drawn_rows(examples, training.seeds)  # (STEPS, b, ROWS)
    y = examples.targets
    if y is None:
        y = label_targets(examples.labels.ravel(), training.family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    replay = _Replay.of(training)
    size = sum(vars(training.head)[name].size for name in training.parts)
    updates: FloatArray = np.empty((len(examples.clients), size), dtype=np.float32)
    together = max(1, min(NUMBERS // size, len(updates)))
    heads = _Heads.of(training, together)
    for begin in range(0, len(updates), together):
        some = slice(begin, begin + together)
        own = _OwnRows.of(examples.z[some], y[some], examples.mask[some], drawn[:, some])
        if len(own.weights[0]) < together:
            heads = _Heads.of(training, len(own.weights[0]))
        heads.train(own, replay)
        heads.differences(updates[some])
    updates[~examples.mask.any(axis=1)] = 0.0
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
class _Rows:
    """Rows of a step, their targets, and the weights of their losses."""

    z: FloatArray  # (b, n, d) or (n, d)
    wanted: FloatArray  # (b, n, o) or (n, o)
    weights: FloatArray  # (b, n) or (n,)


@dataclass(frozen=True, eq=False, repr=False)
class _OwnRows:
    """PRIVATE. What b clients drew of their own rows for each step.

    Rows are drawn with replacement. Clients with few rows keep each of them once, weighted by how
    often it was drawn: fewer products, and the same sums up to rounding.
    """

    z: FloatArray  # (1 or STEPS, b, n, d)
    wanted: FloatArray  # (1 or STEPS, b, n, o)
    weights: FloatArray  # (STEPS, b, n), adding up to 1 over the rows of a step

    @classmethod
    def of(cls, z: FloatArray, y: FloatArray, mask: BoolArray, drawn: IntArray) -> _OwnRows:
        """From rows (b, n, d), targets (b, n, o) and the indices ``drawn`` (STEPS, b, ROWS)."""
        b, n = mask.shape
        if n > ROWS:
            clients = np.arange(b)[:, None]
            alike = np.full(drawn.shape, 1.0 / ROWS, dtype=np.float32)
            z, y = z[clients, drawn], y[clients, drawn]
            return cls(z.astype(np.float32, copy=False), y.astype(np.float32, copy=False), alike)
        rows = np.arange(STEPS * b)[:, None] * n + drawn.reshape(-1, ROWS)
        counts = np.bincount(rows.ravel(), minlength=STEPS * b * n)
        real = np.where(mask[..., None], z, 0.0).astype(np.float32, copy=False)
        wanted = y.astype(np.float32, copy=False)
        weights = (counts / ROWS).astype(np.float32).reshape(STEPS, b, n)
        return cls(real[None], wanted[None], weights)

    def at(self, step: int) -> _Rows:
        """Those of one step."""
        place = step % len(self.z)
        return _Rows(self.z[place], self.wanted[place], self.weights[step])


@dataclass(frozen=True, eq=False)
class _Heads:
    """The heads of b clients; layers that are not trained are one array for all of them."""

    start: tuple[FloatArray, ...]
    adam: Adam
    fixed: tuple[FloatArray, ...]  # the first layer, where the last alone is trained
    silent: IntArray  # outputs of labels that no task has had yet
    one_by_one: bool  # sigmoids instead of a softmax

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
            training.family.sigmoid,
        )

    def train(self, own: _OwnRows, replay: _Replay | None) -> None:
        """STEPS steps from the start."""
        self.adam.restart(self.start)
        for step in range(STEPS):
            rows = own.at(step)
            if replay is None:
                self.take_gradients(rows)
            elif step == 0:  # all heads are equal, and so are their replay gradients
                self.take_gradients(rows)
                for total, first in zip(self.adam.gradients, replay.first, strict=True):
                    total += first
            elif replay.contrastive:
                self.take_gradients(rows)
                replay.contrast(self, step)
            else:
                self.take_gradients(replay.beside(rows, step))
            self.adam.step()

    def differences(self, updates: FloatArray) -> None:
        """Fill (b, D) with the differences of the heads from their start."""
        end = 0
        for reached, first in zip(self.adam.parameters, self.start, strict=True):
            begin, end = end, end + first[0].size
            many, one = reached.reshape(len(updates), -1), first[0].ravel()
            np.subtract(many, one, out=updates[:, begin:end])

    @property
    def _arrays(self) -> list[FloatArray]:
        return [*self.fixed, *self.adam.parameters]

    def hidden(self, z: FloatArray) -> FloatArray:
        """Hidden units (b, n, h) of z (b, n, d) or (n, d) under b heads."""
        weights1, bias1, *_ = self._arrays
        hidden = z @ weights1
        hidden += bias1[..., None, :]
        np.maximum(hidden, 0.0, out=hidden)
        return hidden

    def take_gradients(self, rows: _Rows) -> None:
        """Compute the gradients of the rows' weighted losses, replacing those of the last step."""
        weights2, bias2 = self.adam.parameters[-2:]
        hidden = self.hidden(rows.z)
        scores = hidden @ weights2
        scores += bias2[..., None, :]
        if self.silent.size:
            scores[..., self.silent] = SILENT
        slope = cross_entropy_slope(scores, rows.wanted, self.one_by_one, rows.weights)
        if self.silent.size:
            slope[..., self.silent] = 0.0
        *_, to_weights2, to_bias2 = self.adam.gradients
        np.matmul(np.swapaxes(hidden, -1, -2), slope, out=to_weights2)
        np.add.reduce(slope, -2, out=to_bias2)
        if not self.fixed:
            to_weights1, to_bias1, *_ = self.adam.gradients
            below = slope @ np.swapaxes(weights2, -1, -2)
            below *= hidden > 0
            np.matmul(np.swapaxes(rows.z, -1, -2), below, out=to_weights1)
            np.add.reduce(below, -2, out=to_bias1)


@dataclass(frozen=True, eq=False)
class _Replay:
    """The replay term of the loss, with a part of the samples for each step."""

    steps: tuple[_Rows, ...]
    weight: float  # λ
    contrastive: bool
    first: tuple[FloatArray, ...] = ()
    """Gradients of the first step, where every client's head is the server's."""

    @classmethod
    def of(cls, training: LocalTraining) -> _Replay | None:
        if training.replay is None or not len(training.replay[0]) or training.weight == 0:
            return None
        z, wanted = training.replay
        if training.loss == "distillation" and training.teacher is not None:
            heard = training.taught[training.family.label_of_output()]
            scores = np.where(heard, training.teacher.scores(z), SILENT).astype(np.float32)
            wanted = sigmoid(scores) if training.family.sigmoid else softmax(scores)
        steps = []
        for step in range(STEPS):
            of_step = np.ascontiguousarray(z[step::STEPS], dtype=np.float32)
            weights = np.full(len(of_step), training.weight / max(len(of_step), 1), np.float32)
            steps.append(_Rows(of_step, wanted[step::STEPS].astype(np.float32), weights))
        replay = cls(tuple(steps), training.weight, training.loss == "contrastive")
        return replace(replay, first=replay._of_start(_Heads.of(training, 1)))

    def _of_start(self, start: _Heads) -> tuple[FloatArray, ...]:
        """The gradients of the first step's samples under one head."""
        if self.contrastive:
            self.contrast(start, 0)
        else:
            rows = self.steps[0]
            start.take_gradients(_Rows(rows.z[None], rows.wanted[None], rows.weights[None]))
        return tuple(start.adam.gradients)

    def beside(self, own: _Rows, step: int) -> _Rows:
        """The rows (b, n, d) of b clients, followed by the step's replay samples."""
        rows = self.steps[step]
        return _Rows(
            _below(own.z, rows.z),
            _below(own.wanted, rows.wanted),
            _below(own.weights, rows.weights),
        )

    def contrast(self, heads: _Heads, step: int) -> None:
        """Add the gradients of the contrastive loss on the step's samples.

        They concern the first layer alone, so there are none if only the last layer is trained.
        """
        if heads.fixed:
            return
        rows = self.steps[step]
        hidden = heads.hidden(rows.z)
        below = contrast_slope(hidden, rows.wanted.argmax(axis=-1), TEMPERATURE)
        below *= np.float32(self.weight)
        below *= hidden > 0
        to_weights1, to_bias1, *_ = heads.adam.gradients
        to_weights1 += rows.z.T @ below
        to_bias1 += np.add.reduce(below, -2)


def _below(above: FloatArray, shared: FloatArray) -> FloatArray:
    """Arrays (b, n, ...), each followed by the same array (m, ...): (b, n + m, ...)."""
    n = above.shape[1]
    both = np.empty((len(above), n + len(shared), *above.shape[2:]), dtype=np.float32)
    both[:, :n], both[:, n:] = above, shared
    return both

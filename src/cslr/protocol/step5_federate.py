"""Step 5 as the paper has it: clients train the head on their own rows and on the replay.

Each round a cohort starts at the server's head, takes a few steps and sends the difference. Without
noise that costs ε = ∞ end to end, whatever the replay cost; with it (``dp-fedavg``) the updates are
releases like any other.

    L_total = L_task(D_i; θ) + λ L_replay(Q; θ)

All clients of a cohort are trained at once: their heads are stacked, and no operation mixes two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.protocol.head import Batch, Head
from cslr.protocol.ports import Examples
from cslr.protocol.targets import Family, label_targets
from cslr.seeding import Seeds

if TYPE_CHECKING:
    import torch

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
    """What every client is told for a round. Public: released values or none at all."""

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
    import torch

    b = len(examples.clients)
    rows = _drawn_rows(examples, training.seeds)  # (STEPS, b, ROWS)
    clients = np.arange(b)[:, None]
    y = examples.targets
    if y is None:
        y = label_targets(examples.labels.ravel(), training.family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    start = {
        name: torch.tensor(np.array(array), dtype=torch.float32)
        for name, array in vars(training.head).items()
    }
    stacked = {
        name: value.expand(b, *value.shape).clone().requires_grad_(name in training.parts)
        for name, value in start.items()
    }
    optimizer = torch.optim.Adam(
        [stacked[name] for name in training.parts], lr=training.learning_rate
    )
    has_rows = torch.from_numpy(examples.mask.any(axis=1).astype(np.float32))
    replay = _Replay.of(training, start)
    for step, chosen in enumerate(rows):
        z = torch.from_numpy(np.ascontiguousarray(examples.z[clients, chosen], dtype=np.float32))
        wanted = torch.from_numpy(np.ascontiguousarray(y[clients, chosen], dtype=np.float32))
        _, scores = _forward(stacked, z, training)
        loss = (_cross_entropy(scores, wanted, training).mean(dim=1) * has_rows).sum()
        if replay is not None:
            loss = loss + training.weight * (replay.loss(stacked, step) * has_rows).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    moved = [
        ((stacked[name].detach() - start[name]) * has_rows.view(-1, *[1] * start[name].dim()))
        for name in training.parts
    ]
    flat: FloatArray = torch.cat([m.reshape(b, -1) for m in moved], dim=1).numpy()
    return flat.astype(np.float64)


def _drawn_rows(examples: Examples, seeds: Seeds) -> IntArray:
    """(STEPS, b, ROWS) places of a client's own rows, by its own stream."""
    drawn = np.zeros((STEPS, len(examples.clients), ROWS), dtype=np.int64)
    for i, client in enumerate(examples.clients):
        mine = np.flatnonzero(examples.mask[i])
        if mine.size:
            drawn[:, i] = seeds.at("client", client).choice(mine, size=(STEPS, ROWS))
    return drawn


def _forward(
    head: dict[str, torch.Tensor], z: torch.Tensor, training: LocalTraining
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden (b, n, h) and scores (b, n, o) of z (b, n, d) or (n, d) under b heads."""
    import torch

    hidden = torch.relu(z @ head["weights1"] + head["bias1"].unsqueeze(-2))
    scores = hidden @ head["weights2"] + head["bias2"].unsqueeze(-2)
    silent = torch.from_numpy(~training.heard[training.family.label_of_output()])
    return hidden, scores.masked_fill(silent, SILENT)


def _cross_entropy(
    scores: torch.Tensor, wanted: torch.Tensor, training: LocalTraining
) -> torch.Tensor:
    """(b, n) of scores (b, n, o) against targets (b, n, o) or (n, o)."""
    import torch
    from torch.nn import functional

    if training.family.sigmoid:
        target = wanted.expand_as(scores)
        return functional.binary_cross_entropy_with_logits(scores, target, reduction="none").mean(
            dim=-1
        )
    return -(wanted * torch.log_softmax(scores, dim=-1)).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class _Replay:
    """The replay's part of the loss."""

    training: LocalTraining
    z: torch.Tensor  # (n, d)
    wanted: torch.Tensor  # (n, o)

    @classmethod
    def of(cls, training: LocalTraining, start: dict[str, torch.Tensor]) -> _Replay | None:
        import torch

        if training.replay is None or not len(training.replay[0]) or training.weight == 0:
            return None
        z = torch.from_numpy(np.ascontiguousarray(training.replay[0], dtype=np.float32))
        wanted = torch.from_numpy(np.ascontiguousarray(training.replay[1], dtype=np.float32))
        if training.loss == "distillation" and training.teacher is not None:
            heard = training.taught[training.family.label_of_output()]
            scores = np.where(heard, training.teacher.scores(training.replay[0]), SILENT)
            answers = torch.from_numpy(scores.astype(np.float32))
            soft = torch.sigmoid(answers) if training.family.sigmoid else answers.softmax(dim=-1)
            wanted = soft
        return cls(training, z, wanted)

    def loss(self, heads: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        """(b,) on the step's share of the samples."""
        part = slice(step, None, STEPS)
        hidden, scores = _forward(heads, self.z[part], self.training)
        if self.training.loss == "contrastive":
            return self._contrast(hidden, self.wanted[part].argmax(dim=-1))
        return _cross_entropy(scores, self.wanted[part], self.training).mean(dim=1)

    def _contrast(self, hidden: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """(b,) samples of one label alike, of others apart (Khosla et al. 2020)."""
        import torch
        from torch.nn import functional

        unit = functional.normalize(hidden, dim=-1)
        alike = unit @ unit.transpose(-1, -2) / TEMPERATURE  # (b, n, n)
        itself = torch.eye(len(label), dtype=torch.bool)
        chance = torch.log_softmax(alike.masked_fill(itself, -1e9), dim=-1)
        same = (label[:, None] == label) & ~itself
        count = same.sum(dim=-1).clamp(min=1)
        return -((chance * same).sum(dim=-1) / count).mean(dim=-1)

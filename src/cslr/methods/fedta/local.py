"""Local training: epochs of Adam on each client's rows, all clients at once.

The loss of a client is the mean over its batch of

    cross-entropy over the task's outputs + 0.2 · E · InfoNCE(h, prototypes) − 0.1 · cos(z, key)

with E rounds per task and τ = 0.2. InfoNCE is used once there are prototypes, and has no negatives
in a task's last round. A client's random draws follow from its number and dropout is common to all,
so what it learns in a round depends only on its own rows and on what the server sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cslr.arrays import IntArray
from cslr.methods.fedta.parts import DROPOUT, Adapter, TaskHead, read
from cslr.methods.fedta.task_rows import TaskRows
from cslr.seeding import Seeds

__all__ = ["AdapterTraining", "Aim", "contrast", "train"]

TEMPERATURE: Final = 0.2
CONTRAST: Final = 0.2
KEY_PULL: Final = 0.1
WEIGHT_DECAY: Final = 1e-3


@dataclass(frozen=True)
class AdapterTraining:
    """Training schedule of clients on a task."""

    rounds: int  # E
    epochs: int
    batch: int
    most: int | None
    """Most examples of a client in an epoch, drawn anew for each; None: all it has."""
    learning_rate: float
    key_rate: float


@dataclass(frozen=True)
class Aim:
    """The targets of InfoNCE: the prototypes that the server has chosen so far."""

    prototypes: Tensor  # (p, 2d)
    of_slot: Tensor  # (s,) the prototype of each of the task's slots, −1 if there is none yet
    negatives: bool
    weight: float


def train(
    rows: TaskRows,
    adapter: Adapter,
    head: TaskHead,
    aim: Aim,
    recipe: AdapterTraining,
    seeds: Seeds,
) -> tuple[Adapter, TaskHead]:
    """The adapters and heads of the task's clients after a round.

    For Adam each client has parameters of its own, so that a client without rows left in an epoch
    has no gradient and does not change.
    """
    stacks = [part.clone() for part in (*adapter, *head)]
    per_client = [stack.unbind() for stack in stacks]
    optimizer = _adam(per_client, recipe)
    for chosen, dropout in _batches(rows, head.bias1.shape[-1], recipe, seeds):
        live = [stack[: len(chosen)].detach().requires_grad_() for stack in stacks]
        loss = _loss(Adapter(*live[:2]), TaskHead(*live[2:]), rows, chosen, dropout, aim)
        optimizer.zero_grad()
        for parts, gradient in zip(per_client, torch.autograd.grad(loss, live), strict=True):
            for part, client_gradient in zip(parts, gradient.contiguous().unbind(), strict=False):
                part.grad = client_gradient  # contiguous: fused Adam reads memory in order
        optimizer.step()
    return Adapter(*stacks[:2]), TaskHead(*stacks[2:])


def _adam(per_client: list[tuple[Tensor, ...]], recipe: AdapterTraining) -> torch.optim.Adam:
    rates = {"keys": recipe.key_rate}
    groups = [
        {"params": parts, "lr": rates.get(name, recipe.learning_rate)}
        for name, parts in zip((*Adapter._fields, *TaskHead._fields), per_client, strict=True)
    ]
    return torch.optim.Adam(groups, weight_decay=WEIGHT_DECAY, fused=True)


def _batches(
    rows: TaskRows, hidden: int, recipe: AdapterTraining, seeds: Seeds
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches (k, b) of rows, −1 where a client has fewer, and hidden units (b, w) to keep.

    Clients are sorted by size, so those with rows left are always the first k.
    """
    sizes = rows.sizes if recipe.most is None else np.minimum(rows.sizes, recipe.most)
    for epoch in range(recipe.epochs):
        order = torch.from_numpy(_shuffled(rows, sizes, seeds.under(epoch)))
        coins = seeds.at(epoch, "dropout")
        for begin in range(0, int(sizes[0]), recipe.batch):
            dropout = coins.random((recipe.batch, hidden), dtype=np.float32) >= DROPOUT
            chosen = order[: int((sizes > begin).sum()), begin : begin + recipe.batch]
            yield chosen, torch.from_numpy(dropout[: chosen.shape[1]])


def _shuffled(rows: TaskRows, sizes: IntArray, seeds: Seeds) -> IntArray:
    """(k, n) each client's rows of an epoch in random order, −1 after the last."""
    order = np.full((len(sizes), int(sizes[0])), -1, dtype=np.int64)
    for index, (client, held) in enumerate(zip(rows.clients, rows.held, strict=True)):
        order[index, : sizes[index]] = seeds.at(client).permutation(held)[: sizes[index]]
    return order


def _loss(
    adapter: Adapter, head: TaskHead, rows: TaskRows, chosen: Tensor, dropout: Tensor, aim: Aim
) -> Tensor:
    """The sum of the clients' losses; the gradient of each client's parts is its own loss's."""
    reading = read(adapter, head, rows.x[chosen])
    logits = reading.logits(head, dropout)
    each = _cross_entropy(logits, rows.targets[chosen], rows.sigmoid)
    each = each - KEY_PULL * reading.similarity
    if len(aim.prototypes):
        each = each + aim.weight * contrast(reading.tails(head), aim, rows.slots[chosen])
    mask = (chosen >= 0).to(each.dtype)
    return (each * mask / mask.sum(dim=1, keepdim=True)).sum()


def _cross_entropy(logits: Tensor, targets: Tensor, sigmoid: bool) -> Tensor:
    """(k, b) the cross-entropy over the outputs of the task alone."""
    if sigmoid:
        measure = functional.binary_cross_entropy_with_logits
        return measure(logits, targets, reduction="none").mean(dim=-1)
    return -(targets * functional.log_softmax(logits, dim=-1)).sum(dim=-1)


def contrast(tails: Tensor, aim: Aim, slots: Tensor) -> Tensor:
    """(k, b) InfoNCE of h (k, b, 2d) of classes ``slots``; 0 for those without a prototype."""
    prototypes = functional.normalize(aim.prototypes, dim=-1)
    scores = functional.normalize(tails, dim=-1) @ prototypes.T / TEMPERATURE
    if aim.negatives:
        scores = functional.log_softmax(scores, dim=-1)
    positive = aim.of_slot[slots]
    found = scores.gather(-1, positive.clamp(min=0)[..., None])[..., 0]
    return torch.where(positive >= 0, -found, torch.zeros_like(found))

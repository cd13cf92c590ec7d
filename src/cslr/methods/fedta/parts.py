"""The trained parts of clients, stacked over clients, and their forward pass.

A slot is a class of a task: it has a key, by which it is found, and a tail anchor, which is put
behind the embedding. Adapters and class means of h are shown to the server, nothing else is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cslr.arrays import FloatArray
from cslr.seeding import Seeds

__all__ = [
    "Adapter",
    "Person",
    "Reading",
    "TaskHead",
    "adapted",
    "initial_adapter",
    "initial_head",
    "leading",
    "one_of",
    "read",
    "scaled",
]

HIDDEN: Final = 512
ADAPTER_WIDTH: Final = 32
DIRECTIONS: Final = 100
"""Of the embeddings that are read: parameters and time fall with them."""
DROPOUT: Final = 0.5


class Adapter(NamedTuple):
    """x ↦ x + relu(x D) U, of k clients: the input enhancement."""

    down: Tensor  # (k, d, 32)
    up: Tensor  # (k, 32, d)


class TaskHead(NamedTuple):
    """Slots and head of one task, of k clients; the head has w = 512 hidden units."""

    keys: Tensor  # (k, s, d)
    anchors: Tensor  # (k, s, d)
    of_embedding: Tensor  # (k, d, w) the first layer's half for z
    of_anchor: Tensor  # (k, d, w) and its half for the anchor
    bias1: Tensor  # (k, 1, w)
    weights2: Tensor  # (k, w, o)
    bias2: Tensor  # (k, 1, o)


Parts = TypeVar("Parts", Adapter, TaskHead)


@dataclass(frozen=True, eq=False)
class Person:
    """A client as it stands, all it answers with; stacks of one."""

    adapter: Adapter
    heads: Mapping[int, TaskHead]
    """Of each task it has learnt."""


def one_of(parts: Parts, index: int) -> Parts:
    """The parts of client ``index`` of the stack, as a stack of one."""
    return type(parts)(*(part[index : index + 1] for part in parts))


def leading(public: FloatArray, most: int = DIRECTIONS) -> FloatArray:
    """(d, w) the directions in which public sentences (n, d) are longest; all if d ≤ ``most``.

    Signs are settled, so that machines agree.
    """
    width = public.shape[1]
    if width <= most:
        return np.eye(width, dtype=np.float32)
    _, vectors = np.linalg.eigh(public.T.astype(np.float64) @ public)
    chosen = vectors[:, ::-1][:, :most]
    signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(most)])
    directions: FloatArray = (chosen * signs).astype(np.float32)
    return directions


def scaled(z: FloatArray, directions: FloatArray) -> Tensor:
    """Embeddings (n, d) along (d, w) directions, at the length of anchors, √w.

    So neither half of h drowns the other; which key is nearest does not depend on lengths.
    """
    x = torch.from_numpy(np.ascontiguousarray(z @ directions, dtype=np.float32))
    return functional.normalize(x, dim=-1) * math.sqrt(x.shape[-1])


def initial_adapter(width: int, seeds: Seeds) -> Adapter:
    """One adapter that changes nothing yet."""
    down = _uniform(seeds.at("adapter"), width, width, ADAPTER_WIDTH)
    return Adapter(down, torch.zeros(1, ADAPTER_WIDTH, width))


def initial_head(
    clients: Sequence[int], width: int, slots: int, outputs: int, hidden: int, seeds: Seeds
) -> TaskHead:
    """Keys uniform in (−1, 1) and anchors standard normal, each client's own; heads begin alike."""
    rng = seeds.at("head")
    layers = (
        _uniform(rng, 2 * width, width, hidden),
        _uniform(rng, 2 * width, width, hidden),
        _uniform(rng, 2 * width, 1, hidden),
        _uniform(rng, max(hidden, 1), hidden, outputs),
        _uniform(rng, max(hidden, 1), 1, outputs),
    )
    client_rngs = [seeds.at("slots", client) for client in clients]
    keys = np.stack([rng.uniform(-1.0, 1.0, (slots, width)) for rng in client_rngs])
    anchors = np.stack([rng.standard_normal((slots, width)) for rng in client_rngs])
    return TaskHead(
        torch.from_numpy(keys.astype(np.float32)),
        torch.from_numpy(anchors.astype(np.float32)),
        *(layer.repeat(len(clients), 1, 1) for layer in layers),
    )


def _uniform(rng: np.random.Generator, fan_in: int, *shape: int) -> Tensor:
    limit = 1.0 / math.sqrt(fan_in)
    return torch.from_numpy(rng.uniform(-limit, limit, (1, *shape)).astype(np.float32))


def adapted(adapter: Adapter, x: Tensor) -> Tensor:
    """x (k, b, d) with the adapter's correction."""
    return x + torch.relu(x @ adapter.down) @ adapter.up


@dataclass(frozen=True)
class Reading:
    """b embeddings of each of k clients, with the slots whose keys are nearest in cosine."""

    z: Tensor  # (k, b, d) adapted
    picked: Tensor  # (k, b, s) one-hot
    similarity: Tensor  # (k, b) cosine with the picked key

    def tails(self, head: TaskHead) -> Tensor:
        """h = [z; anchor], (k, b, 2d)."""
        return torch.cat([self.z, self.picked @ head.anchors], dim=-1)

    def logits(self, head: TaskHead, dropout: Tensor | None = None) -> Tensor:
        """(k, b, o) of the MLP over h; dropout: (b, w) hidden units that are kept, None: all.

        The anchor's half of the first layer is computed once a slot, not once an example.
        """
        tail = self.picked @ (head.anchors @ head.of_anchor)
        hidden = torch.relu(self.z @ head.of_embedding + tail + head.bias1)
        if dropout is not None:
            hidden = hidden * (dropout / (1.0 - DROPOUT))
        return hidden @ head.weights2 + head.bias2


def read(adapter: Adapter, head: TaskHead, x: Tensor, z: Tensor | None = None) -> Reading:
    """x (k, b, d) with its slots; keys are compared with the frozen embedding, not the adapted.

    z: x adapted, where that is known already.
    """
    cosines = functional.normalize(x, dim=-1) @ functional.normalize(head.keys, dim=-1).mT
    similarity, nearest = cosines.max(dim=-1)
    picked = functional.one_hot(nearest, cosines.shape[-1]).to(x.dtype)
    return Reading(adapted(adapter, x) if z is None else z, picked, similarity)

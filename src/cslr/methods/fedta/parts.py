"""The trained parts of clients, stacked over clients, and their forward pass.

A slot is a class of a task. It has a key, by which it is selected, and a tail anchor, which is
appended to the embedding. The server sees adapters and class means of h, and nothing else.
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
"""Directions of the embeddings that are used, to save parameters and time."""
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
    """The current model of a client; its parts are stacks of one."""

    adapter: Adapter
    heads: Mapping[int, TaskHead]
    """The head of each task it has learnt."""


def one_of(parts: Parts, index: int) -> Parts:
    """The parts of client ``index`` of the stack, as a stack of one."""
    return type(parts)(*(part[index : index + 1] for part in parts))


def leading(public: FloatArray, most: int = DIRECTIONS) -> FloatArray:
    """(d, w) the leading directions of public sentences (n, d), not centred; all if d ≤ ``most``.

    Signs are normalised, so that they are the same on all machines.
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
    """Embeddings (n, d) along (d, w) directions, scaled to the length of anchors, √w.

    Both halves of h then have the same length; the nearest key does not depend on lengths.
    """
    x = torch.from_numpy(np.ascontiguousarray(z @ directions, dtype=np.float32))
    return functional.normalize(x, dim=-1) * math.sqrt(x.shape[-1])


def initial_adapter(width: int, seeds: Seeds) -> Adapter:
    """One adapter, initially the identity."""
    down = _uniform(seeds.at("adapter"), width, width, ADAPTER_WIDTH)
    return Adapter(down, torch.zeros(1, ADAPTER_WIDTH, width))


def initial_head(
    clients: Sequence[int], width: int, slots: int, outputs: int, hidden: int, seeds: Seeds
) -> TaskHead:
    """Keys uniform in (−1, 1) and anchors standard normal, by client; equal layers for all."""
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
    """x (k, b, d) plus the adapter's correction."""
    return x + torch.relu(x @ adapter.down) @ adapter.up


@dataclass(frozen=True)
class Reading:
    """b embeddings of each of k clients, with the slots whose keys have the largest cosine."""

    z: Tensor  # (k, b, d) adapted
    picked: Tensor  # (k, b, s) one-hot, the selected slot
    similarity: Tensor  # (k, b) cosine with its key

    def tails(self, head: TaskHead) -> Tensor:
        """h = [z; anchor], (k, b, 2d)."""
        return torch.cat([self.z, self.picked @ head.anchors], dim=-1)

    def logits(self, head: TaskHead, dropout: Tensor | None = None) -> Tensor:
        """(k, b, o) logits of the MLP over h; dropout: (b, w) hidden units to keep, None: all.

        The anchor's half of the first layer is computed per slot, not per example.
        """
        tail = self.picked @ (head.anchors @ head.of_anchor)
        hidden = torch.relu(self.z @ head.of_embedding + tail + head.bias1)
        if dropout is not None:
            hidden = hidden * (dropout / (1.0 - DROPOUT))
        return hidden @ head.weights2 + head.bias2


def read(adapter: Adapter, head: TaskHead, x: Tensor, z: Tensor | None = None) -> Reading:
    """The slots of x (k, b, d); keys are compared with the frozen embedding, not the adapted one.

    z: x adapted, if it is computed already.
    """
    cosines = functional.normalize(x, dim=-1) @ functional.normalize(head.keys, dim=-1).mT
    similarity, nearest = cosines.max(dim=-1)
    picked = functional.one_hot(nearest, cosines.shape[-1]).to(x.dtype)
    return Reading(adapted(adapter, x) if z is None else z, picked, similarity)

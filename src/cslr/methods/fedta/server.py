"""The server step: choose a prototype per class, and fuse the adapters.

It sees the clients' class means and adapters without noise: there is no privacy here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cslr.methods.fedta.parts import Adapter, TaskHead, adapted, one_of, read
from cslr.methods.fedta.task_rows import TaskRows
from cslr.seeding import Seeds

__all__ = ["ClassMeans", "Prototypes", "candidates_of", "choose", "fuse"]

APART: Final = 0.25
"""A prototype is frozen if its mean cosine with other classes is at most this."""
FUSION_EPOCHS: Final = 10
FUSION_BATCH: Final = 16
FUSION_RATE: Final = 1e-3


@dataclass(frozen=True)
class Prototypes:
    """One prototype per slot of the whole stream; a frozen one does not change again."""

    centres: Tensor  # (S, 2d)
    known: Tensor  # (S,)
    frozen: Tensor  # (S,)

    @staticmethod
    def none(slots: int, width: int) -> Prototypes:
        """No prototype chosen yet, for embeddings of dimension ``width``."""
        unset = torch.zeros(slots, dtype=torch.bool)
        return Prototypes(torch.zeros(slots, 2 * width), unset, unset)


@dataclass(frozen=True)
class ClassMeans:
    """Class means of h, one for each client and class that it has."""

    centres: Tensor  # (m, 2d)
    slots: Tensor  # (m,) indices in the whole stream


@torch.no_grad()
def candidates_of(rows: TaskRows, adapter: Adapter, head: TaskHead, first: int) -> ClassMeans:
    """The class means of a task whose slots begin at ``first``."""
    centres, slots = [], []
    for index, held in enumerate(rows.held):
        client_rows = torch.from_numpy(held)
        client_head = one_of(head, index)
        reading = read(one_of(adapter, index), client_head, rows.x[client_rows][None])
        tails = reading.tails(client_head)[0]  # (n, 2d)
        member = functional.one_hot(rows.slots[client_rows], head.keys.shape[1]).to(tails.dtype)
        sizes = member.sum(dim=0)
        present = sizes.nonzero()[:, 0]
        centres.append((member.T @ tails)[present] / sizes[present, None])
        slots.append(first + present)
    return ClassMeans(torch.cat(centres), torch.cat(slots))


def choose(before: Prototypes, candidates: ClassMeans, closing: bool) -> Prototypes:
    """For each class that is not frozen, the candidate with the least mean cosine with all others.

    Others are the candidates of other classes and the prototypes of classes without candidates.
    The choice is frozen if that cosine is at most ``APART``; ``closing`` freezes all known ones.
    """
    likeness = _likeness(before, candidates)
    centres, known, frozen = before.centres.clone(), before.known.clone(), before.frozen.clone()
    open_ = ~before.frozen[candidates.slots]
    for slot in sorted(set(candidates.slots[open_].tolist())):
        rivals = (candidates.slots == slot).nonzero()[:, 0]
        best = rivals[likeness[rivals].argmin()]
        centres[slot] = candidates.centres[best]
        known[slot] = True
        frozen[slot] = likeness[best] <= APART
    return Prototypes(centres, known, known.clone() if closing else frozen)


def _likeness(before: Prototypes, candidates: ClassMeans) -> Tensor:
    """(m,) each candidate's mean cosine with all others; 0 if there are none."""
    elsewhere = before.known.clone()
    elsewhere[candidates.slots] = False
    slots = torch.cat([candidates.slots, elsewhere.nonzero()[:, 0]])
    directions = functional.normalize(candidates.centres, dim=-1)
    others = torch.cat([directions, functional.normalize(before.centres[elsewhere], dim=-1)])
    foreign = (candidates.slots[:, None] != slots).to(directions.dtype)
    return (directions @ others.T * foreign).sum(dim=1) / foreign.sum(dim=1).clamp(min=1.0)


def fuse(adapters: Adapter, anchors: Tensor, seeds: Seeds) -> Adapter:
    """One adapter fitted to the mean output of the clients' adapters on public anchors (m, d).

    Fitting to the mean also minimises the mean squared distance to all clients' outputs.
    """
    with torch.no_grad():
        target = adapted(adapters, anchors[None]).mean(dim=0)
    parts = [part.mean(dim=0, keepdim=True).requires_grad_() for part in adapters]
    optimizer = torch.optim.Adam(parts, lr=FUSION_RATE)
    for epoch in range(FUSION_EPOCHS):
        order = torch.from_numpy(seeds.at(epoch).permutation(len(anchors)))
        for begin in range(0, len(order), FUSION_BATCH):
            batch = order[begin : begin + FUSION_BATCH]
            fused = adapted(Adapter(*parts), anchors[batch][None])[0]
            loss = functional.mse_loss(fused, target[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return Adapter(*(part.detach() for part in parts))

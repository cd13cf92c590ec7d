"""Rounds of local training and server steps, task by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cslr.arrays import FloatArray
from cslr.methods.fedta.local import CONTRAST, AdapterTraining, Aim, train
from cslr.methods.fedta.parts import (
    HIDDEN,
    Adapter,
    Person,
    TaskHead,
    initial_adapter,
    initial_head,
    leading,
    one_of,
    scaled,
)
from cslr.methods.fedta.server import Prototypes, candidates_of, choose, fuse
from cslr.methods.fedta.task_rows import TaskRows, rows_of
from cslr.methods.method import MethodContext
from cslr.seeding import Seeds

__all__ = ["RECIPE", "Learner", "begin", "learn_task"]

RECIPE: Final = AdapterTraining(
    rounds=3, epochs=10, batch=32, most=256, learning_rate=1e-3, key_rate=0.1
)


@dataclass(frozen=True)
class Learner:
    """All clients and the server after some tasks."""

    tasks: int
    people: Mapping[int, Person]
    """Clients that have learnt some task, by number."""
    shared: Adapter
    prototypes: Prototypes
    directions: FloatArray
    """(d, w) the directions of embeddings that are used; public."""


def begin(context: MethodContext) -> Learner:
    """Before any task: an adapter that is the identity, and no prototype."""
    directions = leading(context.public)
    width = directions.shape[1]
    slots = sum(len(labels) for labels in context.tasks)
    shared = initial_adapter(width, context.seeds.under("fedta"))
    return Learner(0, {}, shared, Prototypes.none(slots, width), directions)


def learn_task(context: MethodContext, recipe: AdapterTraining, before: Learner) -> Learner:
    """The learner after the next task, trained by all clients that have rows of it."""
    seeds = context.seeds.under("fedta", before.tasks)
    rows = rows_of(context, before.tasks, before.directions)
    anchors = _anchors(context, before.directions)
    shared, prototypes, people = before.shared, before.prototypes, before.people
    if rows.clients:
        slots = len(context.tasks[before.tasks])
        first = sum(len(labels) for labels in context.tasks[: before.tasks])
        head = _first_head(rows, slots, seeds)
        for number in range(recipe.rounds):
            adapters = Adapter(*(part.repeat(len(rows.clients), 1, 1) for part in shared))
            aim = _aim(prototypes, first, slots, number, recipe.rounds)
            adapters, head = train(rows, adapters, head, aim, recipe, seeds.under("round", number))
            candidates = candidates_of(rows, adapters, head, first)
            prototypes = choose(prototypes, candidates, closing=number >= recipe.rounds - 2)
            shared = fuse(adapters, anchors, seeds.under("fusion", number))
        people = {**people, **_trained_clients(before, rows, adapters, head)}
    return Learner(before.tasks + 1, people, shared, prototypes, before.directions)


def _first_head(rows: TaskRows, slots: int, seeds: Seeds) -> TaskHead:
    """The initial heads; without hidden units for one class, whose softmax is constant."""
    outputs = rows.targets.shape[1]
    hidden = HIDDEN if outputs > 1 or rows.sigmoid else 0
    return initial_head(rows.clients, rows.x.shape[1], slots, outputs, hidden, seeds)


def _trained_clients(
    before: Learner, rows: TaskRows, adapters: Adapter, head: TaskHead
) -> dict[int, Person]:
    """The task's clients with their new adapters and heads."""
    people = {}
    for index, client in enumerate(rows.clients):
        heads = before.people[client].heads if client in before.people else {}
        after = {**heads, before.tasks: one_of(head, index)}
        people[client] = Person(one_of(adapters, index), after)
    return people


def _anchors(context: MethodContext, directions: FloatArray) -> Tensor:
    """Random public sentences, as many as CSLR has anchors."""
    order = context.seeds.at("fedta", "anchors").permutation(len(context.public))
    return scaled(context.public[order[: context.constants.m]], directions)


def _aim(prototypes: Prototypes, first: int, slots: int, number: int, rounds: int) -> Aim:
    """The known prototypes, and the index among them of each of the task's slots."""
    known = prototypes.known
    position = torch.where(known, known.cumsum(0) - 1, -1)
    return Aim(
        prototypes.centres[known],
        position[first : first + slots],
        negatives=number < rounds - 1,
        weight=CONTRAST * rounds,
    )

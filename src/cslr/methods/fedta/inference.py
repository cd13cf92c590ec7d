"""Predictions: of a client's own model, and the average over clients.

A client has a head per task, and nobody says which task a text is of. Its keys weigh its heads:

    p(y | z) = Σ_t p(t | z) p_t(y | z)    with p(t | z) ∝ exp(cos(z, nearest key of t) / τ)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import torch

from cslr.arrays import BoolArray, FloatArray
from cslr.methods.fedta.local import TEMPERATURE
from cslr.methods.fedta.parts import Person, adapted, read, scaled
from cslr.methods.fedta.task_rows import outputs_of
from cslr.methods.method import Fitted
from cslr.protocol.targets import Family

__all__ = ["Answers"]

LEAST: Final = 1e-30
CHUNK: Final = 4096
"""Embeddings read at a time."""


class Answers:
    """What people say about embeddings.

    A person is asked about the same test rows after every task, and again for its own score, so
    what it said about the last array is remembered; arrays asked about must not be changed.
    """

    def __init__(
        self, family: Family, tasks: tuple[tuple[int, ...], ...], directions: FloatArray
    ) -> None:
        self._family = family
        self._directions = directions
        self._outputs = [outputs_of(family, labels) for labels in tasks]
        self._said: WeakKeyDictionary[Person, tuple[FloatArray, FloatArray]] = WeakKeyDictionary()

    def learnt(self, people: Mapping[int, Person]) -> Fitted:
        """The average over ``people``, and each one's own."""
        everyone = list(people.values())
        personal = [(client, partial(self._scores, [people[client]])) for client in sorted(people)]
        return Fitted(partial(self._scores, everyone), personal=personal)

    def _scores(self, people: list[Person], z: FloatArray) -> FloatArray:
        """(n, outputs) log p or log-odds of the mean p; −inf for outputs nobody has learnt."""
        mean = np.zeros((len(z), self._family.outputs))
        for person in people:
            mean += self.probabilities(person, z) / len(people)
        scores = np.log(np.maximum(mean, LEAST))
        if self._family.sigmoid:
            scores -= np.log(np.maximum(1.0 - mean, LEAST))
        heard = self._heard(task for person in people for task in person.heads)
        return np.where(heard, scores, -np.inf)

    def _heard(self, tasks: Iterable[int]) -> BoolArray:
        heard = np.zeros(self._family.outputs, dtype=np.bool_)
        for task in tasks:
            heard[self._outputs[task]] = True
        return heard

    def probabilities(self, person: Person, z: FloatArray) -> FloatArray:
        """(n, outputs) what one person thinks of embeddings (n, d)."""
        asked, said = self._said.get(person, (None, None))
        if said is None or asked is not z:
            said = np.zeros((len(z), self._family.outputs), dtype=np.float32)
            for begin in range(0, len(z), CHUNK):
                rows = slice(begin, begin + CHUNK)
                said[rows] = self._think(person, z[rows])
            self._said[person] = (z, said)
        return said

    @torch.no_grad()
    def _think(self, person: Person, z: FloatArray) -> FloatArray:
        x = scaled(z, self._directions)[None]
        corrected = adapted(person.adapter, x)
        readings = {
            task: read(person.adapter, head, x, corrected) for task, head in person.heads.items()
        }
        nearest = torch.stack([reading.similarity[0] for reading in readings.values()], dim=1)
        weights = (nearest / TEMPERATURE).softmax(dim=1).numpy()  # (n, tasks)
        found = np.zeros((len(z), self._family.outputs), dtype=np.float32)
        for place, (task, reading) in enumerate(readings.items()):
            logits = reading.logits(person.heads[task])[0]
            p = logits.sigmoid() if self._family.sigmoid else logits.softmax(dim=-1)
            found[:, self._outputs[task]] += weights[:, place, None] * p.numpy()
        return found

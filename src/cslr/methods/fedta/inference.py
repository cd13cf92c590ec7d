"""Predictions: of a client's own model, and the average over clients.

A client has a head per task, and the task of a text is not given. Its keys weight its heads:

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
from cslr.protocol.head import Family

__all__ = ["PersonalModels"]

LEAST: Final = 1e-30
CHUNK: Final = 4096
"""Embeddings that are processed at a time."""


class PersonalModels:
    """Predictions of clients' personal models.

    Each model predicts the same test rows after every task, and again for its own score, so its
    predictions for the last array are cached. Arrays must therefore not be changed in place.
    """

    def __init__(
        self, family: Family, tasks: tuple[tuple[int, ...], ...], directions: FloatArray
    ) -> None:
        self._family = family
        self._directions = directions
        self._outputs = [outputs_of(family, labels) for labels in tasks]
        self._cached: WeakKeyDictionary[Person, tuple[FloatArray, FloatArray]] = WeakKeyDictionary()

    def learnt(self, people: Mapping[int, Person]) -> Fitted:
        """The average prediction over ``people``, and each client's own."""
        everyone = list(people.values())
        personal = [(client, partial(self._scores, [people[client]])) for client in sorted(people)]
        return Fitted(partial(self._scores, everyone), personal=personal)

    def _scores(self, people: list[Person], z: FloatArray) -> FloatArray:
        """(n, outputs) log p or log-odds of the mean p; −inf for outputs that nobody has learnt."""
        mean = np.zeros((len(z), self._family.outputs))
        for person in people:
            mean += self.probabilities(person, z) / len(people)
        scores = np.log(np.maximum(mean, LEAST))
        if self._family.sigmoid:
            scores -= np.log(np.maximum(1.0 - mean, LEAST))
        learnt_outputs = self._outputs_of(task for person in people for task in person.heads)
        return np.where(learnt_outputs, scores, -np.inf)

    def _outputs_of(self, tasks: Iterable[int]) -> BoolArray:
        learnt_outputs = np.zeros(self._family.outputs, dtype=np.bool_)
        for task in tasks:
            learnt_outputs[self._outputs[task]] = True
        return learnt_outputs

    def probabilities(self, person: Person, z: FloatArray) -> FloatArray:
        """(n, outputs) probabilities of one client's model for embeddings (n, d)."""
        embeddings, p = self._cached.get(person, (None, None))
        if p is None or embeddings is not z:
            p = np.zeros((len(z), self._family.outputs), dtype=np.float32)
            for begin in range(0, len(z), CHUNK):
                rows = slice(begin, begin + CHUNK)
                p[rows] = self._predict(person, z[rows])
            self._cached[person] = (z, p)
        return p

    @torch.no_grad()
    def _predict(self, person: Person, z: FloatArray) -> FloatArray:
        x = scaled(z, self._directions)[None]
        corrected = adapted(person.adapter, x)
        readings = {
            task: read(person.adapter, head, x, corrected) for task, head in person.heads.items()
        }
        nearest = torch.stack([reading.similarity[0] for reading in readings.values()], dim=1)
        weights = (nearest / TEMPERATURE).softmax(dim=1).numpy()  # (n, tasks)
        p = np.zeros((len(z), self._family.outputs), dtype=np.float32)
        for index, (task, reading) in enumerate(readings.items()):
            logits = reading.logits(person.heads[task])[0]
            of_task = logits.sigmoid() if self._family.sigmoid else logits.softmax(dim=-1)
            p[:, self._outputs[task]] += weights[:, index, None] * of_task.numpy()
        return p

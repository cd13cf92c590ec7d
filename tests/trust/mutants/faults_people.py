"""Faults of a client that holds several people: it stands between them, or counts one twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import numpy as np

from cslr.federation.simulation import SimulatedCohort
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.values import _SEAL, Bounded
from cslr.runs import prepare

from .lab import instead

Silos = dict[int, int]
"""The client of each person, by the person's address."""


@contextmanager
def _known_silos() -> Iterator[Silos]:
    """Fills in who is with whom as soon as people are numbered."""
    silos: Silos = {}
    honest = prepare._people

    def noting(stream, clients, rows):
        unit, count, ids = honest(stream, clients, rows)
        silos.update(zip(ids[unit].tolist(), clients.tolist(), strict=True))
        return unit, count, ids

    with instead(prepare, "_people", noting):
        yield silos


@contextmanager
def _by_silo(of_silo: Callable[[np.ndarray, int], np.ndarray]) -> Iterator[None]:
    """One vector for each client, made of its people's (p, D) and the grid's steps."""
    with _known_silos() as silos:

        def fault(self, ask):
            held: dict[int, list[np.ndarray]] = {}
            for batch in self.batches():
                answer = self.device.answer(batch, ask)
                grid = answer.grid
                for person, row in zip(batch.clients, answer.rows(_SEAL), strict=False):
                    held.setdefault(silos.get(person, -1), []).append(row)
            for rows in held.values():
                yield Bounded(of_silo(np.stack(rows), grid.steps)[None], grid, _SEAL)

        with instead(SimulatedCohort, "answers", fault):
            yield


def clipped_per_silo() -> AbstractContextManager[None]:
    """A client adds its people up first and clips their sum."""

    def fault(rows: np.ndarray, steps: int) -> np.ndarray:
        total = rows.sum(axis=0)
        norm = np.linalg.norm(total.astype(float))
        return np.trunc(total * min(1.0, steps / max(norm, 1.0))).astype(np.int64)

    return _by_silo(fault)


def mean_of_silo() -> AbstractContextManager[None]:
    """A client divides by the number of its people, which is private."""
    return _by_silo(lambda rows, steps: rows.sum(axis=0) // len(rows))


@contextmanager
def cap_per_silo() -> Iterator[None]:
    """A client remembers for all its people together what they spoke about."""
    with _known_silos() as silos:
        honest = CapMemory.admit

        def fault(self, clients, task, cap):
            return honest(self, [silos.get(each, each) for each in clients], task, cap)

        with instead(CapMemory, "admit", fault):
            yield


@contextmanager
def counted_once() -> Iterator[None]:
    """A person of two clients is clipped in each as in one alone, and no cohort refuses that."""
    honest = prepare._units

    def fault(config, stream, count):
        return replace(honest(config, stream, count), clients_per_person=1)

    unchecked = instead(SimulatedCohort, "_check_clip", lambda self, ask: None)
    with instead(prepare, "_units", fault), unchecked:
        yield

"""A federation, its ledger file and its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys, NoiseKeys
from cslr.privacy.plan import Budget
from cslr.privacy.values import Grid, Summed, bound, plain_sum

GRID = Grid(2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger lies."""
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def keys(tmp_path: Path) -> EphemeralKeys:
    return EphemeralKeys(tmp_path / "keys")


@pytest.fixture
def opened(path: Path, keys: EphemeralKeys) -> Iterator[Callable[..., Ledger]]:
    """Opens the ledger, again after every call: what a new process would do."""
    ledgers: list[Ledger] = []

    def open_(epsilon: float = 8.0, keys: NoiseKeys = keys, adversary: str = "roster") -> Ledger:
        while ledgers:
            ledgers.pop().close()
        federation = Federation("clinics", Budget(epsilon, adversary=adversary), "enforced")
        ledgers.append(Ledger.at(path, federation, keys))
        return ledgers[-1]

    yield open_
    for ledger in ledgers:
        ledger.close()


@pytest.fixture
def summed() -> Summed:
    """Three clients agree on something in 40 coordinates."""
    return sum_of(np.tile(np.linspace(-0.3, 0.3, 40), (3, 1)))


@pytest.fixture
def other() -> Summed:
    """One of the three dropped out meanwhile."""
    return sum_of(np.tile(np.linspace(-0.3, 0.3, 40), (2, 1)))


def sum_of(vectors: np.ndarray) -> Summed:
    return plain_sum([bound(vectors, GRID)])

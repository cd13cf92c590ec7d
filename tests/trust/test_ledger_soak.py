"""Ten thousand rounds: the ledger stays exact, and nothing grows but what is written down."""

from __future__ import annotations

import math
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cslr.privacy.accounting import Charge, gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.mechanism import release, settle
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.seeding import Seeds

pytestmark = pytest.mark.trust

ROUNDS, SIGMA, DELTA = 10_000, 100.0, 1e-5
FLAT = 8.0  # bytes a round; a kept label, digest or number would take more
Card = Callable[[str, str, str, bool], None]


def growth_per_round(sizes: list[int]) -> float:
    """Bytes, from the second quarter to the last: start-up is over by then."""
    return (sizes[-1] - sizes[1]) / (ROUNDS * (len(sizes) - 2) / (len(sizes) - 1))


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory if the system has such a directory: 50,000 fsyncs of a busy disk take minutes."""
    shared = Path("/dev/shm")
    where = shared if shared.is_dir() and os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as directory:
        yield Path(directory)


def test_ten_thousand_rounds_leave_an_exact_ledger_and_nothing_beside_it(place: Path, card: Card):
    """Charge, release and settle, enforced, in files: no record stays in memory."""
    path, keys = place / "ledger.jsonl", EphemeralKeys(place / "keys")
    federation = Federation("soak", Budget(8.0, DELTA), "enforced")
    summed = plain_sum([bound(np.full((3, 8), 0.1), Grid(2.0))])
    sizes = []
    begun = time.process_time()
    tracemalloc.start()
    with Ledger.at(path, federation, keys) as ledger:
        ledger.fix_plan(calibrate(federation.budget, ROUNDS), {})
        for number in range(ROUNDS):
            if number % (ROUNDS // 4) == 0:
                sizes.append(tracemalloc.get_traced_memory()[0])
            label = f"round {number}"
            released = release(summed, Charge(label, number, "replay", SIGMA), ledger)
            settle(released, label, ledger)
        sizes.append(tracemalloc.get_traced_memory()[0])
        spent = ledger.epsilon("end_to_end", "roster")
    tracemalloc.stop()
    took = time.process_time() - begun

    read = Ledger.read(path)
    expected = gaussian_epsilon(math.sqrt(ROUNDS) / SIGMA, DELTA)
    exact = math.isclose(spent, expected, rel_tol=1e-9)
    exact &= math.isclose(read.epsilon("end_to_end", "roster"), expected, rel_tol=1e-9)
    exact &= len(read.charges) == ROUNDS and read.unsettled == []
    exact &= len(read.records) == 2 * ROUNDS + 2 and not list(keys.directory.iterdir())
    grown = growth_per_round(sizes)
    flat = grown < FLAT
    card(
        "soak, 10,000 rounds: the ledger",
        "exact",
        f"{len(read.charges):,} charges, ε off by {abs(spent / expected - 1):.0e}; "
        f"{took:.0f} s of CPU",
        bool(exact),
    )
    card(
        "soak, 10,000 rounds: memory",
        f"flat: below {FLAT:g} bytes a round",
        f"{grown:+,.1f} bytes a round, of {path.stat().st_size / ROUNDS:,.0f} written to the disk",
        flat,
    )
    assert exact
    assert flat


@pytest.mark.parametrize("q", [1.0, 0.3])
def test_ten_thousand_charges_are_read_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: Card, q: float
):
    monkeypatch.setattr("os.fsync", lambda _: None)  # what is timed is the reading
    path = tmp_path / "ledger.jsonl"
    federation = Federation("long", Budget(8.0, DELTA, "public"), "simulated")
    with Ledger.at(path, federation, SeededKeys(Seeds(13))) as ledger:
        for number in range(ROUNDS):
            charge = Charge(f"round {number}", number, "replay", SIGMA, q)
            ledger.charge(charge, lambda key: "")
    Ledger.read(path).epsilon("replay", "public")  # imports are not what is timed
    begun = time.process_time()
    read = Ledger.read(path)
    spent = read.epsilon("replay", "public")
    took = time.process_time() - begun
    card(f"reading 10,000 charges, q = {q:g}", "≤ 2 s", f"{took:.2f} s", took < 2)
    assert len(read.charges) == ROUNDS
    assert 0 < spent <= gaussian_epsilon(math.sqrt(ROUNDS) / SIGMA, DELTA) + 1e-6

"""One release over N simulated clients, generated batch by batch: time and peak memory.

    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py --clients 1000000

Prints one JSON object. Clients have 5 rows each of 4 labels in 384 dimensions; all of them take
part, and their sum is released with the noise that ε = 4 needs. ``error`` is the distance of the
released means from the true ones, as a share of the distance between labels.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cslr.federation.streamed_cohort import StreamedCohort
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Family
from cslr.protocol.messages import with_bound
from cslr.protocol.ports import Examples
from cslr.protocol.public_space import build_space, declare_modes
from cslr.protocol.round import Session
from cslr.protocol.step1_list import ListLearner
from cslr.seeding import Seeds

DIMENSION, LABELS, ROWS, BATCH = 384, 4, 5, 64


class NoKeep:
    """Keeps nothing: a release is made once."""

    def load(self, label: str) -> None:
        """Nothing was kept."""
        return

    def save(self, label: str, vector: np.ndarray) -> None:
        """Nothing is kept."""


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows (n, d) of length one."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def agreed(seeds: Seeds, clients: int) -> tuple[Agreement, np.ndarray]:
    """The agreement that clients get, and the true centre (LABELS, d) of each label."""
    rng = seeds.at("world")
    spread = np.linspace(1.0, 0.05, DIMENSION)
    public = unit(rng.standard_normal((2000, DIMENSION)) * spread)
    texts = unit(rng.standard_normal((LABELS, DIMENSION)) * spread)
    truth = unit(texts + 0.4 * unit(rng.standard_normal((LABELS, DIMENSION)) * spread))
    space = build_space(public, "synthetic", DIMENSION, 50, seeds.at("space"))
    modes = declare_modes(space, public, texts, 1, "labels", seeds.at("modes"))
    learner, family = ListLearner(), Family("classification", LABELS)
    told = Agreement(space, modes, learner, "signature", "shared", seeds.seed, clients, family)
    return with_bound(told, public, LABELS), truth


def batches(clients: int, truth: np.ndarray, seeds: Seeds) -> Iterator[Examples]:
    """Clients with ROWS rows each around the true centres, BATCH at a time."""
    for begin in range(0, clients, BATCH):
        rng = seeds.at("batch", begin)
        count = min(BATCH, clients - begin)
        labels = rng.integers(LABELS, size=(count, ROWS))
        noise = rng.standard_normal((count, ROWS, DIMENSION), dtype=np.float32)
        z = truth.astype(np.float32)[labels] + 0.03 * noise
        mask = np.ones((count, ROWS), dtype=np.bool_)
        yield Examples(z, labels, mask, tuple(range(begin, begin + count)))


def cpu_seconds() -> float:
    """CPU seconds of this process and of workers that have ended."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in of)


class Memory(threading.Thread):
    """Samples the memory of this process and its workers ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0

    def run(self) -> None:
        """Until the program ends."""
        while True:
            self.look()
            time.sleep(0.1)

    def look(self) -> None:
        """Take one sample; shared pages count once (Linux: proportional set sizes)."""
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        held = [held_megabytes(number) for number in ("self", *children.split())]
        self.peak_mb = max(self.peak_mb, sum(held))


def held_megabytes(process: str) -> float:
    """The memory of one process; 0 if it has just ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) / 1024


def main() -> None:
    """Measure one release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    clients = asked.clients
    memory = Memory()
    memory.start()
    seeds = Seeds(101)
    agreement, truth = agreed(seeds, clients)
    budget = Budget(4.0)
    ledger = Ledger.in_memory(Federation("scale", budget, "simulated"), SeededKeys(seeds))
    session = Session(agreement, calibrate(budget, 1), ledger, NoKeep())
    cohort = StreamedCohort(lambda: batches(clients, truth, seeds), asked.workers)
    begun, spent = time.perf_counter(), cpu_seconds()
    session.release(0, tuple(range(LABELS)), cohort)
    took, spent = time.perf_counter() - begun, cpu_seconds() - spent
    replay = session.replay()
    true = agreement.space.into(truth)
    error = np.linalg.norm(replay.mean - true, axis=1).mean()
    between = np.linalg.norm(true[:, None] - true, axis=-1)[np.triu_indices(LABELS, 1)].mean()
    memory.look()
    figures = {"clients": clients, "seconds": took, "cpu_seconds": spent}
    print(json.dumps({**figures, "peak_mb": memory.peak_mb, "error": float(error / between)}))


if __name__ == "__main__":
    main()

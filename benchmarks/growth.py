"""How the time of clients and server grows with each size; written to docs/speed.md.

    python benchmarks/bench.py --only growth

A synthetic federation of 20 clients; one size at a time is doubled twice, the others keep their
base value. Clients: their whole contribution to one task. Server: the model of all releases after
the last task. CPU seconds of the fastest of three runs; the exponent is the log-log slope of time
over size between the last two sizes, 1 if linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from measuring import cpu_seconds, write_block
from scale import NoKeep, unit

from cslr.federation.streamed_cohort import StreamedCohort
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Family
from cslr.protocol.messages import with_bound
from cslr.protocol.ports import Examples
from cslr.protocol.public_space import build_space, declare_modes
from cslr.protocol.round import Session, contribute, sum_ask
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import FEW_UNITS
from cslr.seeding import Seeds

CLIENTS: Final = 20
BEGIN, END = "<!-- growth:begin (written by `make bench`) -->", "<!-- growth:end -->"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a federation, by the letters of the paper."""

    n: int = 64  # rows of a client
    d: int = 192  # of embeddings
    r: int = 96  # released directions
    r2: int = 32  # of them in the shared matrix
    L: int = 4  # candidates
    J: int = 2  # modes of a label
    K: int = 4  # labels of a task
    m: int = 50  # anchors
    T: int = 4  # tasks


NAMES: Final = {"r2": "r₂", "n": "n rows", "d": "d", "r": "r", "L": "L", "J": "J", "m": "m anchors"}


def agreed(sizes: Sizes) -> Agreement:
    """The agreement that clients get."""
    rng = Seeds(7).at("world")
    spread = np.linspace(1.0, 0.05, sizes.d)
    public = unit(rng.standard_normal((1500, sizes.d)) * spread)
    texts = unit(rng.standard_normal((sizes.K * sizes.T, sizes.d)) * spread)
    space = build_space(public, "synthetic", sizes.r, sizes.m, Seeds(7).at("space"))
    modes = declare_modes(space, public, texts, sizes.J, "labels", Seeds(7).at("modes"))
    learner, family = ListLearner(size=sizes.L), Family("classification", len(texts))
    agreement = Agreement(space, modes, learner, "signature", "shared", 7, CLIENTS, family)
    matrix = replace(FEW_UNITS, tied=sizes.r2)
    return with_bound(replace(agreement, resolution=matrix), public, sizes.K)


def examples(sizes: Sizes, task: int) -> Examples:
    """The rows of all clients."""
    rng = Seeds(7).at("rows", task)
    z = unit(rng.standard_normal((CLIENTS, sizes.n, sizes.d)).astype(np.float32))
    labels = task * sizes.K + rng.integers(sizes.K, size=z.shape[:2])
    return Examples(z, labels, np.ones(labels.shape, dtype=np.bool_), tuple(range(CLIENTS)))


def labels_of(sizes: Sizes, task: int) -> tuple[int, ...]:
    """The labels of a task."""
    return tuple(range(task * sizes.K, (task + 1) * sizes.K))


def seconds(sizes: Sizes) -> tuple[float, float]:
    """CPU seconds of all clients' contributions to a task, and of the model after all tasks."""
    agreement = agreed(sizes)
    ask = sum_ask(agreement.request(0, labels_of(sizes, 0)))
    held = examples(sizes, 0)
    client = min(cpu_seconds(lambda: contribute(held, ask)) for _ in range(3))
    budget = Budget(4.0)
    ledger = Ledger.in_memory(Federation("growth", budget, "simulated"), SeededKeys(Seeds(7)))
    session = Session(agreement, calibrate(budget, sizes.T), ledger, NoKeep())
    for task in range(sizes.T):
        few = [examples(replace(sizes, n=8), task)]
        session.release(task, labels_of(sizes, task), StreamedCohort(few.__iter__))
    return client, min(cpu_seconds(session.replay) for _ in range(3))


def grown() -> None:
    """Measure every size and write the table."""
    base = Sizes()
    lines = [
        "| size | clients, CPU ms | exponent | server, CPU ms | exponent |",
        "|---|---|---|---|---|",
    ]
    for name, first in vars(base).items():
        sizes = [first, 2 * first, 4 * first]
        if name in ("d", "r", "r2"):
            sizes = [first // 2, first, 2 * first] if name != "r2" else [16, 32, 64]
        found = [seconds(fitting(replace(base, **{name: size}))) for size in sizes]
        cells = []
        for part in zip(*found, strict=True):
            slope = math.log(part[-1] / part[-2], sizes[-1] / sizes[-2])
            cells += [" / ".join(f"{1e3 * each:.3g}" for each in part), f"{slope:.1f}"]
        told = " / ".join(map(str, sizes))
        lines.append(f"| {NAMES.get(name, name)} = {told} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    write_block(BEGIN, lines, END)


def fitting(sizes: Sizes) -> Sizes:
    """The sizes with r ≤ d and r₂ ≤ r."""
    r = min(sizes.r, sizes.d)
    return replace(sizes, r=r, r2=min(sizes.r2, r))

"""Looks at what is summed: who is in it, how long anybody's part is, and what it is divided by."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy import stats

from cslr.federation import simulation
from cslr.privacy import mechanism, values
from cslr.privacy.values import _SEAL, Bounded, Grid
from cslr.protocol import round as protocol_round
from cslr.protocol.agreement import FILLED
from cslr.protocol.ports import Ask, Examples, Request
from cslr.protocol.round import statistics_of

from .lab import CLIENTS, LABELS, TASKS, Drawer, Finding, Lab, everywhere, instead

LEVEL = 1e-9
ROUNDS = 100
NORM = 0.5


def norms(lab: Lab, seed: int) -> Finding:
    """Nothing longer than its bound enters a sum or leaves as a list, in exact integers."""
    seen: list[Bounded] = []
    add_up, send = values.plain_sum, mechanism.release_each

    def watched_sum(contributions):
        contributions = list(contributions)
        seen.extend(contributions)
        return add_up(contributions)

    def watched_lists(answers, charge, ledger, senders=None):
        seen.extend(answers)
        return send(answers, charge, ledger, senders)

    with everywhere(add_up, watched_sum), everywhere(send, watched_lists):
        for mode in ("joint", "separate", "list"):
            lab.round(seed, mode, lab.ledger(seed), Drawer())
        lab.update(_updates(seed, 5), NORM, lab.ledger(seed), Drawer())
    lengths = [_longest(each) for each in seen]
    return Finding(max(lengths) > 1.0, f"{max(lengths):.4f} of the bound in {len(seen)} stacks")


def _longest(bounded: Bounded) -> float:
    """The longest row over the bound: at most 1 exactly if no integer norm exceeds the steps."""
    rows = bounded.rows(_SEAL).astype(object)
    squared = max(int(each) for each in (rows * rows).sum(axis=1))
    steps = bounded.grid.steps
    return math.sqrt(squared) / steps if squared > steps**2 else min(1.0, squared**0.5 / steps)


def refusal(lab: Lab, seed: int) -> Finding:
    """What is not finite is refused before it is summed or paid for."""
    passed = []
    for bad in (np.nan, np.inf, -np.inf):
        vectors, ledger, keep = _updates(seed, 5), lab.ledger(seed), Drawer()
        vectors[seed % 5, seed % vectors.shape[1]] = bad
        try:
            lab.update(vectors, NORM, ledger, keep)
        except ValueError as error:
            if "not finite" in str(error) and not ledger.charges and not keep.handed:
                continue
        passed.append(str(bad))
    return Finding(bool(passed), f"passed: {', '.join(passed) or 'none'}")


def golden_sums(lab: Lab, seed: int) -> Finding:
    """Without noise the release is the clipped sum, over a public number: all by other means."""
    rng = np.random.default_rng([seed, 3])
    came = rng.random(CLIENTS) < 0.7
    keep, steps = Drawer(), 2**20
    ledger = lab.ledger(seed, math.inf)
    released = lab.round(seed, "joint", ledger, keep, math.inf, taking_part=came)
    expected, grid = _sum_by_hand(lab, seed, came)
    off = np.abs(keep.kept["task 0"] - expected).max() / (grid.bound / steps)
    weight = released.expected_weight / (FILLED * CLIENTS)
    # Truncation takes less than a step from each client.
    alarm = off > CLIENTS + 1 or not math.isclose(weight, 1.0)

    vectors, q, registered = _updates(seed, int(rng.integers(3, 9))), 0.3, 50
    ledger = lab.ledger(seed, math.inf)
    found = lab.update(vectors, NORM, ledger, Drawer(), math.inf, q, registered)
    share = NORM / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), NORM)
    average = (vectors * share).sum(axis=0) / (q * registered)
    error = np.abs(found - average).max() * (q * registered) / (NORM / steps)
    alarm = alarm or error > len(vectors) + 1
    figure = f"steps off: replay {off:.1f}, update {error:.1f}; weight times {weight:.2f}"
    return Finding(bool(alarm), figure)


def _sum_by_hand(lab: Lab, seed: int, came: np.ndarray) -> tuple[np.ndarray, Grid]:
    """Σ of float contributions, client by client, packed and clipped here."""
    people, request = lab.people(seed, "joint"), lab.agreement("joint").request(0, LABELS)
    total = np.zeros(request.layout.size)
    for client in np.flatnonzero(came):
        rows = np.flatnonzero((people.clients == client) & (people.tasks == 0))
        examples = Examples(
            people.z[rows][None],
            people.labels[rows][None],
            np.ones((1, len(rows)), dtype=bool),
            (int(client),),
            people.targets[rows][None],
        )
        vector = _packed(examples, request)
        total += vector * min(1.0, request.grids[0].bound / np.linalg.norm(vector))
    return total, request.grids[0]


def _packed(examples: Examples, request: Request) -> np.ndarray:
    """(D,) one client's statistics, mode after mode, each kind times its public scale."""
    statistics, layout = statistics_of(examples, request), request.layout
    modes = [
        [
            statistics.weight[0, k : k + 1] * layout.weight_scale,
            statistics.offset[0, k],
            statistics.second[0, k] * layout.second_scale,
            statistics.target[0, k] * layout.target_scale,
        ]
        for k in range(layout.modes)
    ]
    return np.concatenate([kind for mode in modes for kind in mode])


def exactly_once(lab: Lab, seed: int) -> Finding:
    """Whoever takes part is asked once, whatever the batches; nobody else is asked."""
    came = np.random.default_rng([seed, 4]).random(CLIENTS) < 0.7
    came[0] = True
    cohort = lab.people(seed, "joint").cohort(0, came, TASKS)
    wrong = Counter[int]()
    with instead(simulation, "BATCH_ROWS", 60):
        for question in (cohort.total, cohort.each):
            asked: list[int] = []
            question(Ask("who is there", "update", _Noting(asked), Grid(1.0)))
            wrong.update(Counter(asked) - Counter(np.flatnonzero(came).tolist()))
            wrong.update(Counter(np.flatnonzero(came).tolist()) - Counter(asked))
    return Finding(bool(wrong), f"asked too often or not at all: {sorted(wrong) or 'nobody'}")


@dataclass(frozen=True)
class _Noting:
    """A question that notes who answers it."""

    asked: list[int]

    def updates(self, examples: Examples) -> np.ndarray:
        self.asked.extend(examples.clients)
        return np.zeros((len(examples.clients), 1))


def participation(lab: Lab, seed: int) -> Finding:
    """Who takes part follows independent coins of the rate that is charged."""
    context = lab.make_context(Drawer(), epsilon=20.0, q=0.3, seed=seed)
    agreement, plan, ledger = lab.agreement("joint"), context.plan, context.ledger
    people = lab.people(seed, "joint")
    cohort = people.cohort(0, context.cohort(0).taking_part, plan.cap)
    protocol_round.Session(agreement, plan, ledger, Drawer()).release(0, LABELS, cohort)
    (charge,) = ledger.charges
    coins = np.stack([context.cohort(0, update=i).taking_part for i in range(ROUNDS)])
    sizes = coins.sum(axis=1)
    mean = stats.binomtest(int(sizes.sum()), coins.size, charge.q).pvalue
    spread = float(np.square(sizes - CLIENTS * charge.q).sum())
    law = stats.chi2(ROUNDS, scale=CLIENTS * charge.q * (1 - charge.q))
    fixed = 2 * min(law.cdf(spread), law.sf(spread))
    rate = f"{coins.mean():.3f} take part, {charge.q} is charged"
    return Finding(bool(min(mean, fixed) < LEVEL), rate)


def _updates(seed: int, b: int) -> np.ndarray:
    """(b, D) updates from far too short to far too long."""
    rng = np.random.default_rng([seed, 5])
    return rng.standard_normal((b, 30)) * np.geomspace(0.01, 100.0, b)[:, None]

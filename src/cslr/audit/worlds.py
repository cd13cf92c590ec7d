"""Two worlds: the mechanism only, run many times with and without one client.

In one world the client sends, in every release it may contribute to, a vector whose norm is the
clipping bound; in the other it sends zero. The audited code is clip, sum, charge and noise. This is
the worst case that the guarantee covers, so the lower bound comes close to the claimed ε (Nasr,
Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini and Terzis 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.audit.confidence import Bound, pairs_mu
from cslr.privacy.accounting import Charge, gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import release, release_each
from cslr.privacy.plan import Budget, Plan
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.seeding import Seeds

__all__ = ["CONFIDENCE", "RUNS", "Released", "two_worlds"]

RUNS: Final = 10_000
CONFIDENCE: Final = 0.999
WIDTH: Final = 3
"""Coordinates of a release: one for the client, and two that only other clients contribute to."""
OTHERS: Final = 4
BEYOND: Final = 4.0
"""Norm of the client's vector before the clip, in clipping bounds, to detect a missing clip."""

Released = Callable[[FloatArray, Grid, Charge, Ledger], FloatArray]
"""The mechanism: vectors of all clients (b, D) to what is published of them (D,)."""
OnRun = Callable[[int, int], None]
"""Progress callback: runs done, runs in total."""


def two_worlds(
    plan: Plan,
    runs: int = RUNS,
    seeds: Seeds | None = None,
    confidence: float = CONFIDENCE,
    on_run: OnRun | None = None,
    mechanism: Released | None = None,
) -> Bound:
    """A lower bound of ε of the whole plan, next to the ε that it claims against ``roster``.

    Each world has ``runs`` runs, each with a ledger and a key of its own. The score of a run is the
    log-likelihood ratio under the claimed noise: the sum of projections on the client's direction,
    each divided by its σ². Runs of both worlds are paired, and the bound follows from how often the
    world with the client scores higher.

    mechanism: a mechanism to audit instead of this package's own, for tests.
    """
    if runs < 1:
        raise ValueError(f"runs must be at least 1, not {runs}")
    seeds = Seeds(0) if seeds is None else seeds
    releases = _releases(plan)
    claimed = plan.epsilon("roster")
    budget = Budget(claimed * (1 + 1e-9), plan.budget.delta)
    ordered = 0
    for run in range(runs):
        scores = [
            _score(releases, world, budget, seeds.under(run, world), mechanism)
            for world in (True, False)
        ]
        ordered += scores[0] > scores[1]
        if on_run is not None:
            on_run(run + 1, runs)
    mu = pairs_mu(runs, ordered, confidence)
    delta = plan.budget.delta
    lower = gaussian_epsilon(mu, delta)
    return Bound("mechanism", claimed, lower, mu, delta, confidence, runs, runs, ordered)


@dataclass(frozen=True)
class _Release:
    """One release of the plan, and what each world's clients send to it."""

    charge: Charge
    mechanism: Released
    sign: float
    """Signs alternate, so that noise repeated in the next release cancels and is detected."""

    def vectors(self, with_client: bool) -> FloatArray:
        """(b, D) what all clients send, the audited one first."""
        vectors = np.zeros((1 + OTHERS, WIDTH))
        vectors[1:, 1:] = 0.1
        vectors[0, 0] = BEYOND * self.sign * with_client
        return vectors


def _releases(plan: Plan) -> list[_Release]:
    """All releases that a client contributes to, in as many tasks as the cap allows."""
    schedule = plan.schedule
    releases: list[tuple[Charge, Released]] = []
    for task in range(plan.cap):
        for i in range(schedule.replay):
            releases.append((plan.charge(f"{task} sum {i}", task), _in_a_sum))
        for i in range(schedule.lists):
            releases.append((plan.list_charge(f"{task} list {i}", task), _by_itself))
        for i in range(schedule.head):
            releases.append((plan.head_charge(f"{task} update {i}", task, i), _in_a_sum))
    for i in range(schedule.evaluation):
        releases.append((plan.evaluation_charge(f"evaluation {i}"), _in_a_sum))
    return [
        _Release(charge, mechanism, -1.0 if number % 2 else 1.0)
        for number, (charge, mechanism) in enumerate(releases)
    ]


def _score(
    releases: list[_Release],
    with_client: bool,
    budget: Budget,
    seeds: Seeds,
    mechanism: Released | None,
) -> float:
    """The log-likelihood ratio of one run, up to a constant."""
    ledger = Ledger.in_memory(Federation("audit", budget, "simulated"), SeededKeys(seeds))
    score = 0.0
    for each in releases:
        publish = each.mechanism if mechanism is None else mechanism
        published = publish(each.vectors(with_client), Grid(1.0), each.charge, ledger)
        score += each.sign * float(published[0]) / (each.charge.sigma or 1.0) ** 2
    return score


def _in_a_sum(vectors: FloatArray, grid: Grid, charge: Charge, ledger: Ledger) -> FloatArray:
    return release(plain_sum([bound(vectors, grid)]), charge, ledger).value


def _by_itself(vectors: FloatArray, grid: Grid, charge: Charge, ledger: Ledger) -> FloatArray:
    """What the audited client publishes under its own name."""
    released: FloatArray = release_each([bound(vectors[:1], grid)], charge, ledger).value[0]
    return released

"""The ε that the noise multipliers of the paper's table cost, and the σ that its ε would require.

The paper gives σ, q and δ, but neither the number of releases nor whether its four clipped
statistics are one vector or four. Every reading (interpretation) is computed: by PLD, and by RDP
with the paper's orders 2..64 and the conversion of its Theorem 4; against an adversary who does not
know who took part (public: sampling amplifies) and one who does (roster: it does not).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from scipy.optimize import brentq

from cslr.privacy.accounting import gaussian_epsilon, pld_epsilon, rdp_epsilon
from cslr.research.experiments.grid import Experiment
from paper.figure import number
from paper.layout import Spec
from paper.sheet import Sheet

__all__ = ["READINGS", "Cost", "Promise", "Reading", "accountant_sheet", "costs"]

Rounds = list[tuple[float, float]]
"""(σ, q) of every release."""

ORDERS: Final = range(2, 65)
_INTERVAL: Final = 1e-3
"""Discretisation of privacy losses, with which ε is accurate to four digits."""


@dataclass(frozen=True)
class Promise:
    """A column of the paper's table."""

    epsilon: float
    sigma: float
    q: float
    delta: float


@dataclass(frozen=True)
class Reading:
    """One interpretation of what the paper releases per task or round, ``times`` in all."""

    key: str
    title: str
    times: int
    sums: int
    """Clipped statistics of one round, each with its own noise; they share one sampling."""
    lists: int = 0
    """Messages with their sender's name, for which sampling does not amplify privacy."""
    amplified: bool = False
    """Whether lists are accounted for as if sampling hid their senders, as the paper does."""

    def rounds(self, sigma: float, q: float) -> Rounds:
        """All releases; statistics of one round are one Gaussian with multiplier σ/√sums."""
        if self.amplified:
            return [(sigma / math.sqrt(self.sums + self.lists), q)] * self.times
        joint = [(sigma / math.sqrt(self.sums), q)] * self.times
        return joint + [(sigma, 1.0)] * (self.lists * self.times)


READINGS: Final = (
    Reading("joint-4", "one joint vector, once per task, T = 4", 4, 1),
    Reading("joint-7", "one joint vector, once per task, T = 7", 7, 1),
    Reading("joint-200", "one joint vector in each of 200 rounds", 200, 1),
    Reading("blocks-4", "four statistics, once per task, T = 4", 4, 4),
    Reading("blocks-200", "four statistics in each of 200 rounds", 200, 4),
    Reading("list-4", "local list and four statistics, once per task, T = 4", 4, 4, lists=1),
    Reading("list-7", "local list and four statistics, once per task, T = 7", 7, 4, lists=1),
    Reading("list-200", "local list and four statistics in each of 200 rounds", 200, 4, lists=1),
    Reading(
        "amplified-4", "list and four statistics, all amplified, T = 4", 4, 4, 1, amplified=True
    ),
    Reading(
        "amplified-200",
        "list and four statistics in each of 200 rounds, all amplified",
        200,
        4,
        1,
        amplified=True,
    ),
)


@dataclass(frozen=True)
class Cost:
    """ε of one column of the table under one reading, and the σ that its ε requires."""

    reading: Reading
    promise: Promise
    public: float
    public_rdp: float
    roster: float
    roster_rdp: float
    needed_public: float
    needed_roster: float


def costs(promises: Sequence[Promise], readings: Sequence[Reading] = READINGS) -> tuple[Cost, ...]:
    """Every column of the table under every reading."""
    return tuple(_cost(reading, promise) for reading in readings for promise in promises)


def _cost(reading: Reading, promise: Promise) -> Cost:
    sampled = reading.rounds(promise.sigma, promise.q)
    known = reading.rounds(promise.sigma, 1.0)
    return Cost(
        reading,
        promise,
        public=pld_epsilon(sampled, promise.delta, _INTERVAL),
        public_rdp=rdp_epsilon(sampled, promise.delta, ORDERS, classic=True),
        roster=_roster(known, promise.delta),
        roster_rdp=rdp_epsilon(known, promise.delta, ORDERS, classic=True),
        needed_public=_needed(reading, promise, "public"),
        needed_roster=_needed(reading, promise, "roster"),
    )


def _roster(rounds: Rounds, delta: float) -> float:
    """ε in closed form: a composition of Gaussians is one Gaussian."""
    return gaussian_epsilon(math.sqrt(sum(sigma**-2 for sigma, _ in rounds)), delta)


def _needed(reading: Reading, promise: Promise, adversary: Literal["public", "roster"]) -> float:
    """The σ at which the reading costs the printed ε."""
    if reading.lists:
        return _root(reading, promise, adversary)
    joint = Reading("", "", reading.times, sums=1)
    return _root(joint, promise, adversary) * math.sqrt(reading.sums)


@lru_cache
def _root(reading: Reading, promise: Promise, adversary: Literal["public", "roster"]) -> float:
    """The σ for the reading, in closed form without amplification, else by bisection.

    With amplification σ lies between about q times the closed form and the closed form. Cached,
    because readings with one vector and with four differ by a factor only.
    """
    unit = brentq(lambda mu: gaussian_epsilon(mu, promise.delta) - promise.epsilon, 1e-6, 1e3)
    known = math.sqrt(sum(sigma**-2 for sigma, _ in reading.rounds(1.0, 1.0))) / unit
    if adversary == "roster":
        return known
    interval = min(5e-3, promise.epsilon / 1000)

    def excess(log_sigma: float) -> float:
        rounds = reading.rounds(math.exp(log_sigma), promise.q)
        return pld_epsilon(rounds, promise.delta, interval) - promise.epsilon

    low, high = math.log(promise.q * known), math.log(known)
    while excess(low) < 0:
        low, high = low - 0.5, low
    return math.exp(brentq(excess, low, high, xtol=1e-3))


def accountant_sheet(
    experiment: Experiment, spec: Spec, found: Sequence[Cost], notes: tuple[str, ...] = ()
) -> Sheet:
    """A row for each reading and promise."""
    return Sheet(
        f"{experiment.name}-{spec.name}",
        "What the paper's noise table costs",
        spec.caption,
        (
            "reading",
            "promised ε",
            "paper's σ",
            "public, PLD",
            "public, paper's RDP",
            "roster, exact",
            "roster, paper's RDP",
            "σ needed, public",
            "σ needed, roster",
        ),
        tuple(_row(cost) for cost in found),
        notes,
    )


def _row(cost: Cost) -> tuple[str, ...]:
    spent = (cost.public, cost.public_rdp, cost.roster, cost.roster_rdp)
    return (
        cost.reading.title,
        f"{cost.promise.epsilon:g}",
        number(cost.promise.sigma, 2),
        *[f"{epsilon:.3g}" for epsilon in spent],
        number(cost.needed_public, 2),
        number(cost.needed_roster, 2),
    )

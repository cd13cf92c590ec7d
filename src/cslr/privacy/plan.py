"""The plan: σ is an output, and everything that shapes a release is fixed before the first one.

>>> plan = calibrate(Budget(epsilon=4.0), releases=6)
>>> round(plan.sigma, 2)
2.65
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from scipy.optimize import brentq

from cslr.errors import ConfigError
from cslr.privacy.accounting import (
    Adversary,
    Charge,
    epsilon_of,
    gaussian_epsilon,
    pld_epsilon,
)

__all__ = ["Budget", "Forecast", "Plan", "calibrate", "forecast"]

_LEAST_SIGMA: Final = 0.05
"""Where q is about δ, (ε, δ) alone would ask for no noise at all; we always ask for some."""


@dataclass(frozen=True)
class Budget:
    """What a client is promised: (ε, δ) at user level, zero-out adjacency, against an adversary."""

    epsilon: float
    delta: float = 1e-5
    adversary: Adversary = "roster"

    def __post_init__(self) -> None:
        if not self.epsilon > 0 or math.isnan(self.epsilon):
            raise ConfigError(f"epsilon must be greater than 0, not {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must lie strictly between 0 and 1, not {self.delta:g}")
        if self.adversary not in ("public", "roster"):
            raise ConfigError(
                f"a budget can be set against 'public' or 'roster', not {self.adversary!r}: "
                "against the server ε is infinite while the aggregator adds the noise"
            )

    def as_dict(self) -> dict[str, object]:
        """Plain values; JSON has no ∞, so no budget at all is null."""
        return {**asdict(self), "epsilon": self.epsilon if math.isfinite(self.epsilon) else None}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Budget:
        """The inverse of ``as_dict``."""
        epsilon = math.inf if plain["epsilon"] is None else plain["epsilon"]
        return cls(epsilon, plain["delta"], plain["adversary"])


@dataclass(frozen=True)
class Plan:
    """Who takes part, how often, and the noise that follows. Made by ``calibrate`` only."""

    budget: Budget
    releases: int
    q: float
    cap: int
    """The most releases any one client contributes to."""
    sigma: float | None
    """Noise multiplier of each release; None exactly when ε = ∞."""

    def charge(self, label: str, round_: int) -> Charge:
        """What one release of this plan costs."""
        return Charge(label, round_, "replay", self.sigma, self.q)

    def epsilon(self, adversary: Adversary) -> float:
        """ε once every planned release has happened."""
        charges = [self.charge(str(r), r) for r in range(self.releases)]
        return epsilon_of(charges, self.budget.delta, adversary, cap=self.cap)

    def as_dict(self) -> dict[str, object]:
        """Plain values for the ledger."""
        return {**asdict(self), "budget": self.budget.as_dict()}


def calibrate(budget: Budget, releases: int, q: float = 1.0, cap: int | None = None) -> Plan:
    """The least noise with which ``releases`` joint vectors stay within the budget.

    q: probability that a client takes part in a release; it lowers ε only against ``public``.
    cap: the most releases any client contributes to (default: all of them).
    """
    if releases < 1:
        raise ConfigError(f"a plan needs at least one release, not {releases}")
    if not 0 < q <= 1:
        raise ConfigError(f"q, the participation rate, must lie in (0, 1], not {q:g}")
    cap = releases if cap is None else cap
    if not 1 <= cap <= releases:
        raise ConfigError(
            f"cap, the tasks a client may contribute to, must lie in 1..{releases}, not {cap}"
        )
    if math.isinf(budget.epsilon):
        return Plan(budget, releases, q, cap, None)
    amplified = budget.adversary == "public" and q < 1
    sigma = _sigma_sampled(budget, q, cap) if amplified else _sigma_full(budget, cap)
    return Plan(budget, releases, q, cap, sigma)


def _sigma_full(budget: Budget, count: int) -> float:
    """Closed form: the largest μ that stays within the budget, shared by ``count`` Gaussians."""

    def excess(log_mu: float) -> float:
        return gaussian_epsilon(math.exp(log_mu), budget.delta) - budget.epsilon

    least, most = math.log(1e-6), math.log(1e3)
    if not excess(least) < 0 < excess(most):
        raise ConfigError(f"epsilon = {budget.epsilon:g} is out of any useful range; try 0.1 to 20")
    mu = math.exp(brentq(excess, least, most, xtol=1e-13))
    return math.sqrt(count) / mu * (1 + 1e-9)


def _sigma_sampled(budget: Budget, q: float, count: int) -> float:
    """The root of a coarse PLD, confirmed by the exact one to cost 0.995 ε to ε.

    A coarse PLD is up to a hundred times faster and a little pessimistic; where it is too
    pessimistic the search is repeated on finer ones.
    """
    unamplified = _sigma_full(budget, count)
    coarse = max(1e-4, min(1e-2, budget.epsilon / 100))
    for interval in (coarse, coarse / 8, 1e-4):
        sigma = _root_of_pld(0.998 * budget.epsilon, budget.delta, q, count, unamplified, interval)
        if sigma == _LEAST_SIGMA:
            return sigma
        exact = pld_epsilon([(sigma, q)] * count, budget.delta)
        if 0.995 * budget.epsilon <= exact <= budget.epsilon:
            return sigma
    return unamplified


def _root_of_pld(
    epsilon: float, delta: float, q: float, count: int, start: float, interval: float
) -> float:
    """σ from ``_LEAST_SIGMA`` to just over ``start`` at which ``count`` rounds cost ε."""

    def excess(log_sigma: float) -> float:
        return pld_epsilon([(math.exp(log_sigma), q)] * count, delta, interval) - epsilon

    high = math.log(1.01 * start)
    if excess(high) > 0:
        return start
    while start > _LEAST_SIGMA:
        start = max(start / 2, _LEAST_SIGMA)
        low = math.log(start)
        if excess(low) > 0:
            return math.exp(brentq(excess, low, high, xtol=1e-6))
        high = low
    return _LEAST_SIGMA


@dataclass(frozen=True)
class Forecast:
    """Before any data: how a mode's signal will compare with the noise."""

    signal_to_noise: float
    """N / (σ √D): the norm of a sum in which all clients agree, over the norm of the noise."""
    advice: str


def forecast(plan: Plan, clients: int, dimension: int) -> Forecast:
    """Signal to noise of one mode's mean in ``dimension`` coordinates, and what to do about it.

    Every client's vector has norm at most S, so N agreeing clients (qN expected) sum to at most
    qNS, while the noise has norm about σS√D.
    """
    if plan.sigma is None:
        return Forecast(math.inf, "No noise: nothing is protected.")
    ratio = plan.q * clients / (plan.sigma * math.sqrt(dimension))
    if ratio >= 3:
        advice = "Good: the clients' data will dominate, with or without a label prior."
    elif ratio >= 0.5:
        advice = "Workable: keep the label prior; more clients or a larger ε still help much."
    elif ratio >= 0.1:
        advice = (
            "Weak: the result will be little more than the label prior. "
            "Fewer releases per client (--cap), more clients or a larger ε help most."
        )
    else:
        need = math.ceil(0.5 * plan.sigma * math.sqrt(dimension) / plan.q)
        advice = f"Hopeless: noise drowns the data. About {need} clients would be workable."
    return Forecast(ratio, advice)

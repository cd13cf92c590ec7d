"""From guesses to a lower bound: which ε the guesses rule out, and with what confidence.

The bounds assume a claim of μ-Gaussian DP (Dong, Roth and Su 2022), which Gaussian releases at
q = 1 satisfy: no test distinguishes "with the client" from "without" better than N(μ, 1) from
N(0, 1). ε at any δ follows from μ. If the claimed μ is true, a bound exceeds it with probability at
most 1 − confidence, for any attack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

__all__ = ["Bound", "least_mass", "one_run_epsilon", "one_run_mu", "pairs_mu"]

_MOST: Final = 64.0
"""Upper limit of the search for μ or ε."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on ε found by an audit, next to the claimed ε."""

    what: str
    claimed: float
    """ε of the plan against the roster, which knows which clients participated."""
    lower: float
    """Lower bound on ε at ``confidence``."""
    mu: float
    """The same bound as μ of Gaussian DP."""
    delta: float
    confidence: float
    runs: int
    """Runs of each world, or 1."""
    guesses: int
    correct: int
    canaries: int = 0
    any_noise: float | None = None
    """The bound of one run that follows from (ε, δ) alone, for any shape of the noise."""

    @property
    def holds(self) -> bool:
        """Whether the lower bound does not exceed the claimed ε."""
        return self.lower <= self.claimed

    def as_json(self) -> dict[str, Any]:
        """Plain values; JSON has no ∞."""
        claimed = self.claimed if math.isfinite(self.claimed) else None
        return {**asdict(self), "claimed": claimed, "holds": self.holds}


def pairs_mu(pairs: int, ordered: int, confidence: float) -> float:
    """Lower bound of μ from independent pairs of runs, one of each world.

    ordered: the pairs in which the world with the client has the higher score. The probability of
    that is the area under the score's ROC curve. Under μ-GDP no ROC curve lies above
    Φ(Φ⁻¹(α) + μ), whose area is Φ(μ/√2). The probability is bounded from below by Clopper and
    Pearson. No threshold is chosen, so no correction for choosing one is needed.
    """
    _check(pairs, ordered, confidence)
    if not ordered:
        return 0.0
    least = float(beta.ppf(1 - confidence, ordered, pairs - ordered + 1))
    return max(0.0, math.sqrt(2) * float(ndtri(least)))


@lru_cache(maxsize=4096)
def one_run_mu(canaries: int, guesses: int, correct: int, confidence: float) -> float:
    """Lower bound of μ from one run: the largest μ that the number of correct guesses rules out.

    The game is that of Steinke, Nasr and Jagielski (2023): m clients are in or out by fair coins,
    and the auditor guesses for k of them which. The analysis for f-DP is that of Mahloujifar, Melis
    and Chaudhuri (2024). Let p_j be the probability of exactly j correct guesses. For client i and
    any outcome of the others, "the guess about i is correct" and "it is wrong" differ in i's coin
    alone, so their probabilities obey the trade-off curve. Summed over i, by concavity,

        Σ_{j ≥ c} j p_j / m  ≤  Φ(Φ⁻¹(Σ_{j ≥ c−1} (k − j) p_j / m) + μ)   for every c.

    μ is ruled out if no p with P[at least ``correct``] = 1 − confidence obeys all inequalities.
    """
    _check(guesses, correct, confidence)
    if guesses > canaries:
        raise ValueError(f"guesses must be at most the {canaries} canaries, not {guesses}")

    def excess(mu: float) -> float:
        return least_mass(1 - confidence, mu, canaries, guesses, correct) - 1.0

    return _root(excess)


def least_mass(tau: float, mu: float, canaries: int, guesses: int, correct: int) -> float:
    """The least Σ p_j that satisfies the inequalities if mass τ is at ``correct`` or more.

    At the minimum all of τ is at j = ``correct``, and every p_j below is the least that its
    inequality requires: additional mass can be moved one step down, where fewer guesses are
    correct, without making any inequality harder to satisfy.
    """
    right, wrong = tau * correct / canaries, tau * (guesses - correct) / canaries
    for j in range(correct - 1, -1, -1):
        needed = float(ndtr(ndtri(min(right, 1.0)) - mu))
        if needed > wrong:
            right += (needed - wrong) * j / (guesses - j)
            wrong = needed
    return (right + wrong) * canaries / guesses


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """Lower bound of ε at δ from one run, for any noise: Steinke et al. (2023), Theorem 5.2.

    Weaker than ``one_run_mu``: (ε, δ) alone also covers mechanisms whose privacy loss is always ε.
    """
    _check(guesses, correct, confidence)

    def excess(epsilon: float) -> float:
        rate = 1 / (1 + math.exp(-epsilon))
        tail = binom.sf(np.arange(correct + 1) - 1, guesses, rate)  # P[at least 0 .. correct]
        gaps = (tail[:-1][::-1] - tail[-1]) / np.arange(1, correct + 1)
        p = float(tail[-1] + 2 * canaries * delta * gaps.max(initial=0.0))
        return (1 - confidence) - p

    return _root(excess)


def _root(excess: Callable[[float], float]) -> float:
    """The root of a decreasing function, which is positive while a parameter is ruled out."""
    if excess(0.0) <= 0:
        return 0.0
    if excess(_MOST) > 0:
        return _MOST
    return float(brentq(excess, 0.0, _MOST, xtol=1e-9))


def _check(guesses: int, correct: int, confidence: float) -> None:
    if guesses < 1:
        raise ValueError(f"guesses must be at least 1, not {guesses}")
    if not 0 <= correct <= guesses:
        raise ValueError(f"correct must lie in 0..{guesses}, not {correct}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, not {confidence}")

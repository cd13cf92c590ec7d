"""Theorem 4 of the paper: replay-release privacy by Rényi composition, for any schedule.

    ε_t(α) ≤ ε_list(α) + α/2 · Σ 1/σ²   over the separately noised statistics of a round
    ε = min_α { Σ_t ε_t(α) + log(1/δ)/(α − 1) }

Statistics of a round share its participation coin, so with q < 1 their composition is amplified as
one Gaussian; a list has its sender's name and is not amplified. The ledger does not use this: it
charges by privacy loss distributions, or in closed form where q = 1, which is never more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.privacy.renyi import renyi_costs

__all__ = ["ORDERS", "ReplayRound", "replay_costs", "theorem4_epsilon"]

ORDERS: Final = tuple(range(2, 65))
"""The orders that the paper searches."""


@dataclass(frozen=True)
class ReplayRound:
    """What one round releases: noise multipliers of its sums and of its lists."""

    statistics: tuple[float, ...]
    """σ_μ, σ_M, σ_π, σ_y, or any other number of them."""
    lists: tuple[float, ...] = ()
    q: float = 1.0
    """Participation rate; below 1 only against an adversary that does not know who took part."""

    def __post_init__(self) -> None:
        if not self.statistics and not self.lists:
            raise ValueError("a round releases at least one statistic or list")
        if any(not sigma > 0 for sigma in (*self.statistics, *self.lists)):
            raise ValueError("noise multipliers must be greater than 0")
        if not 0 < self.q <= 1:
            raise ValueError(f"q must lie in (0, 1], not {self.q:g}")


def replay_costs(round_: ReplayRound, orders: Sequence[float] = ORDERS) -> FloatArray:
    """(len(orders),) ε_replay(α) of one round."""
    costs: FloatArray = np.zeros(len(orders))
    if round_.statistics:
        joint = sum(sigma**-2 for sigma in round_.statistics) ** -0.5
        costs = costs + renyi_costs(joint, round_.q, orders)
    for sigma in round_.lists:
        costs = costs + renyi_costs(sigma, 1.0, orders)
    return costs


def theorem4_epsilon(rounds: Sequence[tuple[ReplayRound, int]], delta: float) -> float:
    """ε of rounds, each given with how often it happens, by the theorem's conversion."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta:g}")
    total: FloatArray = np.zeros(len(ORDERS))
    for each, times in rounds:
        total = total + times * replay_costs(each)
    return float(np.min(total + math.log(1 / delta) / (np.asarray(ORDERS, dtype=float) - 1)))

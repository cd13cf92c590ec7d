"""Neighbour graphs for sums over thousands of members: how many neighbours a member needs.

A member shares its secrets with k neighbours and masks its vector with them alone, so its cost does
not grow with n. Reference: Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure single-server
aggregation with (poly)logarithmic overhead", CCS 2020, Section 3: a Harary graph whose members are
put in a random order after the adversary chose whom to corrupt.

Simulated only (``neighbour_sums.py``): the sums of a federation use the complete graph,
and no consent of survivors is proven for neighbourhoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from cslr.arrays import IntArray

__all__ = ["Neighbourhood", "Risks", "least_neighbourhood", "neighbour_graph", "risks_of"]


@dataclass(frozen=True)
class Neighbourhood:
    """How secrets are shared among neighbours."""

    degree: int  # k
    threshold: int  # t
    """Shares that open a secret."""


@dataclass(frozen=True)
class Risks:
    """Upper bounds on what can go wrong with a random graph, as log₂ of probabilities."""

    exposed: float
    """Some member has t corrupt neighbours, who could open both of its secrets."""
    split: float
    """Honest survivors fall into two parts, whose sums could be seen separately."""
    lost: float
    """Some member has fewer than t surviving neighbours: the sum cannot be unmasked."""


def risks_of(n: int, shape: Neighbourhood, corrupt: float, dropped: float) -> Risks:
    """Union bounds over n members, of whom these shares are corrupt and drop out.

    The neighbours of a member are a uniform draw of k of the others, so the corrupt ones and the
    dropped ones among them are hypergeometric. On the ring a member is a neighbour of the k/2 next
    ones on either side: it can only be split by a run of k/2 members that are corrupt or dropped.
    """
    k, t = shape.degree, shape.threshold
    if not (2 <= k < n and k % 2 == 0):
        raise ValueError(f"degree must be even and lie in 2..{n - 1}, not {k}")
    if not 1 <= t <= k:
        raise ValueError(f"threshold must lie in 1..{k}, not {t}")
    if min(corrupt, dropped) < 0 or corrupt + dropped >= 1:
        raise ValueError("corrupt and dropped must be shares that leave some members")
    bad, gone = math.ceil(corrupt * n), math.ceil(dropped * n)
    either = min(bad + gone, n - 1)
    run = hypergeom.logpmf(k // 2, n, either, k // 2)  # all of k/2 given members
    return Risks(
        exposed=_log2_of_any(n, hypergeom.logsf(t - 1, n - 1, bad, k)),
        split=_log2_of_any(n, run),
        lost=_log2_of_any(n, hypergeom.logsf(k - t, n - 1, gone, k)),
    )


def _log2_of_any(n: int, log_probability: float) -> float:
    """log₂ of a bound on the probability that one of n events happens."""
    return float(min(0.0, (math.log(n) + log_probability) / math.log(2)))


def least_neighbourhood(
    n: int, corrupt: float, dropped: float, security: int = 40, recovery: int = 30
) -> Neighbourhood:
    """The smallest k, and the smallest t for it, with ``exposed`` and ``split`` of at most
    2^−security and ``lost`` of at most 2^−recovery.

    A ``ValueError`` if n is so small that all members have to be neighbours.
    """
    for degree in range(2, n, 2):
        risks = risks_of(n, Neighbourhood(degree, 1), corrupt, dropped)
        if risks.split > -security:
            continue
        threshold = _least_threshold(n, degree, corrupt, dropped, security)
        shape = Neighbourhood(degree, threshold)
        if risks_of(n, shape, corrupt, dropped).lost <= -recovery:
            return shape
    raise ValueError(f"n = {n} members are too few for a neighbour graph: use the complete one")


def _least_threshold(n: int, degree: int, corrupt: float, dropped: float, security: int) -> int:
    """The smallest t that keeps every member's secrets from its corrupt neighbours; at most k."""
    for threshold in range(1, degree):
        shape = Neighbourhood(degree, threshold)
        if risks_of(n, shape, corrupt, dropped).exposed <= -security:
            return threshold
    return degree


def neighbour_graph(n: int, degree: int, rng: np.random.Generator) -> IntArray:
    """(n, k) the neighbours of each member on a ring in random order, sorted by number.

    Guarantee: i is a neighbour of j exactly if j is one of i.
    """
    if not (2 <= degree < n and degree % 2 == 0):
        raise ValueError(f"degree must be even and lie in 2..{n - 1}, not {degree}")
    order = rng.permutation(n)
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree // 2 + 1)])
    graph = np.empty((n, degree), dtype=np.int64)
    graph[order] = order[(np.arange(n)[:, None] + steps) % n]
    graph.sort(axis=1)
    return graph

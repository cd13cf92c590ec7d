"""Rényi costs of a sampled Gaussian round, exact to about nine digits: the cross-check of PLD.

    D_α = log A / (α − 1),   A = E[(1 + v)^α],   v = q (e^((2x − 1) / 2σ²) − 1),   x ~ N(0, σ²)

Since E[v] = 0, A − 1 = E[(1 + v)^α − 1 − αv]: a mean of something nowhere negative, so that neither
small costs nor fractional orders lose digits to cancellation. At whole orders it is a finite sum of
positive terms, elsewhere an integral of an analytic function, for which equally spaced points
converge exponentially.

We compute this ourselves because dp-accounting 0.6 adds up the absolute values of an alternating
series at fractional orders (a few percent too much, or no answer at all), and because its Rényi
accountant forgets a factor of two under replace-one adjacency.

Reference: Mironov, Talwar and Zhang 2019, Section 3, which also shows that the other direction of
neighbours never costs more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from cslr.arrays import FloatArray

__all__ = ["renyi_costs"]


def renyi_costs(sigma: float, q: float, orders: Sequence[float]) -> FloatArray:
    """(len(orders),) D_α of one round with multiplier σ in which a client takes part by q."""
    if any(not order > 1 for order in orders):
        raise ValueError("orders must be greater than 1")
    if q == 1:
        return np.array([order / (2 * sigma**2) for order in orders])
    return np.array([_cost(sigma, q, float(order)) for order in orders])


def _cost(sigma: float, q: float, order: float) -> float:
    excess = _whole if order.is_integer() else _fractional
    return float(np.logaddexp(0.0, excess(sigma, q, order))) / (order - 1)


def _whole(sigma: float, q: float, order: float) -> float:
    """log(A − 1) = log Σ_{k ≥ 2} C(α, k) q^k (1 − q)^(α − k) (e^((k² − k) / 2σ²) − 1)."""
    k = np.arange(2, order + 1)
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    loss = k * (k - 1) / (2 * sigma**2)
    taken = k * math.log(q) + (order - k) * math.log1p(-q)
    return float(logsumexp(choose + taken + loss + np.log(-np.expm1(-loss))))


def _fractional(sigma: float, q: float, order: float) -> float:
    """log(A − 1) by the trapezoidal rule.

    The integrand is analytic within πσ² of the real line and falls off like N(0, σ²) on the left
    and N(α, σ²) on the right; the step is small against both widths.
    """
    step = 0.3 * min(sigma, sigma**2)
    x = np.arange(-14 * sigma, order + 14 * sigma, step)
    loss = (2 * x - 1) / (2 * sigma**2)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + loss)  # log(1 + v)
    density = -np.square(x / sigma) / 2 - math.log(sigma * math.sqrt(2 * math.pi))
    return float(logsumexp(density + _log_bend(log_ratio, order))) + math.log(step)


def _log_bend(log_ratio: FloatArray, order: float) -> FloatArray:
    """log((1 + v)^α − 1 − αv) from log(1 + v): −∞ where v = 0."""
    power = order * log_ratio
    small = np.minimum(log_ratio, 1.0)  # either branch is computed where it is used
    large = np.maximum(log_ratio, 1.0)
    near = np.maximum(np.expm1(order * small) - order * np.expm1(small), 0.0)
    # (1 + αv) (1 + v)^−α with v = e^log_ratio − 1, without ever forming a large power
    rest = order * np.exp((1 - order) * large) - (order - 1) * np.exp(-order * large)
    with np.errstate(divide="ignore"):
        bend: FloatArray = np.where(log_ratio < 1.0, np.log(near), power + np.log1p(-rest))
    return bend

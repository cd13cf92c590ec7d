"""Theorem 5 with both sides evaluated: Gaussian mixtures in one dimension, TV by quadrature.

A head is a threshold θ on the line, its loss the 0-1 error: bounded in [0, 1], and the class of
thresholds has a uniform deviation over n_r samples that is known with its constants
(Dvoretzky-Kiefer-Wolfowitz, Massart 1990, for each of two classes). R_t is the error under the
ideal Q*_t, so the theorem's risk-control condition holds with c_0 = 1, no further ξ and no term
of finitely many clients.

    F̄ = mean_t R_t(θ_T) − R_t(θ_t)  ≤  mean_t [2 α_t + 2 u(n_r) + ξ_t]

with α_t = TV(Q_t, Q*_t) over (z, y), u(n_r) the uniform deviation and ξ_t the excess empirical
replay loss of θ_T. Every term is computed; none is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

TASKS, FAILURE = 4, 1e-3


@dataclass(frozen=True)
class Pair:
    """Two classes of equal weight on the line: N(low, s²) with y = 0, N(high, s²) with y = 1."""

    low: float
    high: float
    spread: float = 1.0

    def error(self, threshold: float) -> float:
        """Exact 0-1 error of "1 above the threshold"."""
        above = 1 - norm.cdf(threshold, self.low, self.spread)
        return 0.5 * float(above + norm.cdf(threshold, self.high, self.spread))

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(2, size=n)
        return np.where(y == 1, self.high, self.low) + self.spread * rng.standard_normal(n), y


def total_variation(p: Pair, q: Pair) -> float:
    """TV of the joint laws of (z, y): half the integral of the difference, class by class."""

    def of(a: float, b: float) -> float:
        s, r = p.spread, q.spread
        edge = 10 * max(s, r) + abs(a) + abs(b)
        gap = quad(
            lambda z: abs(norm.pdf(z, a, s) - norm.pdf(z, b, r)),
            -edge,
            edge,
            limit=400,
            points=sorted({a, b, (a + b) / 2}),
        )
        return 0.5 * float(gap[0])

    return 0.5 * (of(p.low, q.low) + of(p.high, q.high))


def deviation(n: int) -> float:
    """u: no threshold's empirical error is further from its own, but with probability FAILURE.

    An error is P[y = 0, z > θ] + P[y = 1, z ≤ θ]: two distribution functions, of z where the class
    is right and of ∞ elsewhere, each within √(log(4 / failure) / 2n) of its empirical one.
    """
    return 2 * math.sqrt(math.log(4 / FAILURE) / (2 * n))


def empirical(threshold: float, z: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((z > threshold) != (y == 1)))


def trained(z: np.ndarray, y: np.ndarray) -> float:
    """The threshold of least empirical error."""
    grid = np.linspace(z.min(), z.max(), 400)
    return float(grid[np.argmin([empirical(each, z, y) for each in grid])])


def sides(shift: float, n: int, seed: int) -> tuple[float, float, dict[str, float]]:
    """Forgetting and its bound, where replay is off by ``shift``, and the bound's terms."""
    rng = np.random.default_rng(seed)
    ideal = [Pair(-1.0 + 0.3 * t, 1.0 + 0.3 * t) for t in range(TASKS)]
    replay = [Pair(each.low + shift, each.high + shift) for each in ideal]
    own = [each.draw(4000, rng) for each in ideal]
    samples = [each.draw(n, rng) for each in replay]
    heads = [trained(*rows) for rows in own]
    mixed = [np.concatenate(parts) for parts in zip(own[-1], *samples[:-1], strict=True)]
    final = trained(*mixed)
    terms = {
        "alpha": float(
            np.mean([total_variation(q, p) for q, p in zip(replay, ideal, strict=True)])
        ),
        "xi": float(
            np.mean(
                [
                    max(0.0, empirical(final, *sample) - empirical(head, *sample))
                    for sample, head in zip(samples, heads, strict=True)
                ]
            )
        ),
        "sampling": deviation(n),
    }
    forgotten = np.mean([p.error(final) - p.error(h) for p, h in zip(ideal, heads, strict=True)])
    bound = 2 * terms["alpha"] + 2 * terms["sampling"] + terms["xi"]
    return float(forgotten), bound, terms


@pytest.mark.parametrize(("shift", "exact"), [(0.0, 0.0), (0.5, 2 * norm.cdf(0.25) - 1)])
def test_total_variation_by_quadrature_is_the_closed_form(shift, exact):
    """Of two normals of one variance: 2 Φ(|shift| / 2σ) − 1."""
    found = total_variation(Pair(-1.0, 1.0), Pair(-1.0 + shift, 1.0 + shift))
    assert found == pytest.approx(exact, abs=1e-7)


def test_other_spreads_count_too():
    assert total_variation(Pair(0.0, 1.0, 1.0), Pair(0.0, 1.0, 2.0)) == pytest.approx(
        0.3226, abs=1e-3
    )


@pytest.mark.parametrize("shift", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("n", [50, 500])
def test_forgetting_is_within_the_bound_with_all_its_terms(shift, n):
    for seed in range(3):
        forgotten, bound, _ = sides(shift, n, seed)
        assert forgotten <= bound


def test_better_replay_forgets_less_and_the_bound_says_so():
    good, bad = ([sides(shift, 500, seed) for seed in range(3)] for shift in (0.0, 3.0))
    assert np.mean([f for f, _, _ in good]) < np.mean([f for f, _, _ in bad])
    assert max(b for _, b, _ in good) < min(b for _, b, _ in bad)


def test_without_the_replay_gap_the_bound_would_be_broken():
    """α is needed: what is left of the bound is less than what replay off by three forgets."""
    forgotten, _, terms = sides(3.0, 40_000, 0)
    assert forgotten > 2 * terms["sampling"] + terms["xi"]


def test_more_samples_narrow_the_sampling_term():
    assert deviation(2000) < deviation(500) < deviation(50)

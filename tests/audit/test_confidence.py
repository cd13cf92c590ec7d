"""From guesses to bounds: valid for any attack, and worth something for the best one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom, norm

from cslr.audit.confidence import Bound, least_mass, one_run_epsilon, one_run_mu, pairs_mu


def exceeded(share: float, count: int) -> int:
    """The number of exceptions reached with probability below 1e-6 if each has ``share``."""
    return int(binom.isf(1e-6, count, share))


def test_pairs_of_a_gaussian_bound_its_shift_from_below_and_closely():
    rng, mu, n = np.random.default_rng(1), 0.925, 10_000
    found = [
        pairs_mu(n, int((rng.normal(mu, 1, n) > rng.normal(0, 1, n)).sum()), 0.999)
        for _ in range(200)
    ]
    assert sum(each > mu for each in found) <= exceeded(0.001, 200)
    assert np.median(found) > 0.92 * mu


def test_no_pair_ranked_rightly_shows_nothing_and_all_of_them_much():
    assert pairs_mu(1000, 0, 0.99) == 0.0
    assert pairs_mu(1000, 500, 0.99) == 0.0
    assert pairs_mu(1000, 1000, 0.99) > 3.0


def test_more_confidence_shows_less():
    assert pairs_mu(1000, 800, 0.999) < pairs_mu(1000, 800, 0.95)
    assert one_run_mu(500, 100, 90, 0.999) < one_run_mu(500, 100, 90, 0.95)


def test_no_roc_curve_of_a_gaussian_has_more_area_than_the_formula_says():
    alpha = np.linspace(0, 1, 200_001)
    area = np.trapezoid(ndtr(ndtri(alpha) + 0.8), alpha)
    assert area == pytest.approx(norm.cdf(0.8 / math.sqrt(2)), abs=1e-5)


def best_guesses(mu: float, canaries: int, guesses: int, rng: np.random.Generator) -> int:
    """What the best attack on N(μ, 1) against N(0, 1) gets right."""
    coins = rng.random(canaries) < 0.5
    score = mu * coins + rng.standard_normal(canaries) - mu / 2
    order = np.argsort(-np.abs(score))[:guesses]
    return int(((score > 0) == coins)[order].sum())


@pytest.mark.parametrize("guesses", [20, 200])
def test_one_run_of_a_gaussian_bounds_its_shift_from_below(guesses):
    rng, mu = np.random.default_rng(2), 0.925
    counts = [best_guesses(mu, 200, guesses, rng) for _ in range(300)]
    found = {right: one_run_mu(200, guesses, right, 0.95) for right in set(counts)}
    assert sum(found[right] > mu for right in counts) <= exceeded(0.05, 300)


def test_one_run_with_a_thousand_canaries_shows_half_of_the_claim():
    rng, mu = np.random.default_rng(3), 0.925
    found = [one_run_mu(1000, 200, best_guesses(mu, 1000, 200, rng), 0.95) for _ in range(20)]
    assert np.median(found) > 0.5 * mu


def least_mass_by_cuts(tau: float, mu: float, m: int, k: int, v: int) -> float:
    """The same minimum by a linear programme, the curve replaced by many of its tangents."""
    at = np.concatenate([np.geomspace(1e-9, 0.5, 400), 1 - np.geomspace(1e-9, 0.5, 400)])
    slope = np.exp(norm.logpdf(ndtri(at) - mu) - norm.logpdf(ndtri(at)))
    value = ndtr(ndtri(at) - mu)
    j = np.arange(k + 1)
    rows, limits = [], []
    for c in range(1, k + 1):  # wrong(c − 1) ≥ tangent at right(c)
        right, wrong = np.where(j >= c, j, 0) / m, np.where(j >= c - 1, k - j, 0) / m
        rows.append(slope[:, None] * right - wrong)
        limits.append(slope * at - value)
    done = linprog(
        np.ones(k + 1),
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(limits),
        A_eq=[np.where(j >= v, 1.0, 0.0)],
        b_eq=[tau],
        bounds=(0, None),
    )
    assert done.success
    return float(done.fun)


@pytest.mark.parametrize(
    ("tau", "mu", "m", "k", "v"),
    [
        (0.05, 0.4, 12, 6, 6),
        (0.05, 0.9, 12, 6, 5),
        (0.05, 0.2, 8, 8, 7),
        (0.3, 1.5, 40, 10, 10),
        (0.01, 0.1, 30, 12, 9),
    ],
)
def test_the_least_mass_is_that_of_a_linear_programme(tau, mu, m, k, v):
    wanted = least_mass_by_cuts(tau, mu, m, k, v)
    assert least_mass(tau, mu, m, k, v) == pytest.approx(wanted, rel=1e-3)


def test_without_delta_the_bound_of_any_noise_is_that_of_randomised_response():
    epsilon = one_run_epsilon(100, 100, 88, delta=0.0, confidence=0.95)
    rate = 1 / (1 + math.exp(-epsilon))
    assert binom.sf(87, 100, rate) == pytest.approx(0.05, abs=1e-6)


def test_delta_and_more_canaries_weaken_the_bound_of_any_noise():
    plain = one_run_epsilon(1000, 100, 90, 0.0, 0.95)
    with_delta = one_run_epsilon(1000, 100, 90, 1e-4, 0.95)
    among_more = one_run_epsilon(5000, 100, 90, 1e-4, 0.95)
    assert among_more < with_delta < plain


def test_guessing_at_random_shows_nothing():
    assert one_run_mu(1000, 200, 100, 0.95) == 0.0
    assert one_run_epsilon(1000, 200, 100, 1e-5, 0.95) == 0.0


def test_more_right_guesses_show_more():
    found = [one_run_mu(300, 60, right, 0.95) for right in range(30, 61, 5)]
    assert found == sorted(found)
    assert found[-1] > found[0]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: pairs_mu(0, 0, 0.9), "guesses"),
        (lambda: pairs_mu(10, 11, 0.9), "correct"),
        (lambda: pairs_mu(10, 5, 1.0), "confidence"),
        (lambda: one_run_mu(10, 11, 5, 0.9), "canaries"),
        (lambda: one_run_epsilon(10, 5, -1, 0.0, 0.9), "correct"),
    ],
)
def test_what_cannot_be_counted_is_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_a_bound_above_its_claim_does_not_hold():
    numbers = {"mu": 1.0, "delta": 1e-5, "confidence": 0.95, "runs": 1, "guesses": 2, "correct": 2}
    assert Bound("x", claimed=4.0, lower=3.9, **numbers).holds
    assert not Bound("x", claimed=4.0, lower=4.1, **numbers).holds
    assert Bound("x", claimed=math.inf, lower=9.0, **numbers).as_json()["claimed"] is None

"""Conformance, white box: what a release adds to the exact sum is the noise that was charged.

Someone who knows the sum subtracts it. For every σ of a shipped experiment the residuals have that
scale, are new for another round and another sum, and are the same again for the same sum.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.mechanism import (
    KeyStream,
    discrete_gaussian,
    noise_in_steps,
    release,
    release_each,
)
from cslr.privacy.values import _SEAL, STEPS, Grid, Summed, bound, plain_sum

from .shipped import shipped_plans

GRID = Grid(0.2)
WIDTH = 10**6
ALARM = 1e-9  # of each figure
WIDE = float(stats.norm.isf(ALARM / 2))  # standard errors


def shipped_sigmas() -> list[float]:
    """Every noise multiplier that the repository runs with."""
    found = {s for plan in shipped_plans() for s in (plan.sigma, plan.head_sigma) if s}
    return sorted({round(sigma, 9) for sigma in found})


def sum_of(size: int, seed: int = 0, clients: int = 2) -> Summed:
    vectors = np.random.Generator(np.random.PCG64(seed)).normal(size=(clients, size))
    return plain_sum([bound(vectors, GRID)])


def residual(summed: Summed, sigma: float, ledger, round_: int = 0) -> np.ndarray:
    """What the release added, in integer steps."""
    charge = Charge(f"task {round_}", round_, "replay", sigma)
    steps = np.rint(release(summed, charge, ledger).value / GRID.bound * STEPS)
    return steps.astype(np.int64) - summed.total(_SEAL)


def conforms(residuals: np.ndarray, sigma: float) -> bool:
    """Whether Σ (residual/σ)² is where χ² has it, but for a chance of ``ALARM``."""
    squares = float(np.square(residuals / noise_in_steps(sigma, STEPS)).sum())
    law = stats.chi2(residuals.size)
    return bool(law.ppf(ALARM / 2) <= squares <= law.isf(ALARM / 2))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard errors."""
    return abs(float(np.corrcoef(a.ravel(), b.ravel())[0, 1])) * math.sqrt(a.size)


@pytest.mark.trust
def test_every_shipped_sigma_is_in_the_release(make_ledger, card):
    summed, sigmas = sum_of(WIDTH), shipped_sigmas()
    assert len(sigmas) > 20
    wrong, missed, far, off = [], [], 0.0, 0.0
    for sigma in sigmas:
        ledger = make_ledger()
        first, second = (residual(summed, sigma, ledger, round_) for round_ in (0, 1))
        both = np.concatenate([first, second])
        wrong += [] if conforms(both, sigma) else [sigma]
        missed += [(sigma, f) for f in (0.995, 1.005) if conforms(both, sigma * f)]
        far = max(far, correlation(first, second), correlation(first, summed.total(_SEAL)))
        off = max(off, abs(float(np.std(both)) / noise_in_steps(sigma, STEPS) - 1))
    holds = not wrong and not missed and far < WIDE
    card(
        f"noise in the release, all {len(sigmas)} shipped σ, 2·10⁶ residuals each",
        "the charged σ; 0.5 % either way is found; rounds and sums uncorrelated",
        f"off by at most {100 * off:.2f} %; correlations at most {far:.1f} standard errors",
        holds,
    )
    assert not wrong
    assert not missed
    assert far < WIDE


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.97, 1.03])
def test_a_release_with_less_or_more_noise_than_charged_would_be_found(make_ledger, factor):
    found = residual(sum_of(100_000), 2.0 * factor, make_ledger())
    assert conforms(found, 2.0 * factor)
    assert not conforms(found, 2.0)


def test_in_a_simulation_noise_belongs_to_the_seed_and_the_release(make_ledger):
    """So machines whose sums differ in the last bit draw the same noise."""
    summed, other = sum_of(50_000), sum_of(50_000, seed=1)
    ledger = make_ledger()
    noise = residual(summed, 2.0, ledger)
    assert residual(summed, 2.0, make_ledger()).tolist() == noise.tolist()
    assert residual(other, 2.0, make_ledger()).tolist() == noise.tolist()
    for another in (
        residual(summed, 2.0, ledger, round_=1),
        residual(summed, 2.0, make_ledger(seed=14)),
    ):
        assert correlation(noise, another) < WIDE
        assert conforms(another, 2.0)


def test_where_privacy_is_enforced_another_sum_under_one_key_has_other_noise(tmp_path):
    keys, key = EphemeralKeys(tmp_path), bytes(range(32))
    drawn = [
        discrete_gaussian(2.0 * STEPS, 50_000, KeyStream(keys.noise_key(key, total)))
        for total in (sum_of(50_000).total(_SEAL), sum_of(50_000, seed=1).total(_SEAL))
    ]
    again = KeyStream(keys.noise_key(key, sum_of(50_000).total(_SEAL)))
    assert discrete_gaussian(2.0 * STEPS, 50_000, again).tolist() == drawn[0].tolist()
    assert correlation(*drawn) < WIDE


def test_one_noise_for_two_sums_would_be_found(make_ledger):
    """Their difference would be bare: a key that forgets the sum, as in a simulation, shows."""
    one, two = (residual(sum_of(1_000, seed), 2.0, make_ledger()) for seed in (0, 1))
    assert correlation(one, two) > WIDE


@pytest.mark.trust
def test_messages_noised_one_by_one_have_the_charged_noise_each(make_ledger, card):
    clients, size, sigma = 50, 20_000, 2.65
    vectors = np.random.Generator(np.random.PCG64(2)).normal(size=(clients, size))
    bounded = bound(vectors, GRID)
    charge = Charge("task 0 list", 1, "replay", sigma)
    steps = np.rint(release_each([bounded], charge, make_ledger()).value / GRID.bound * STEPS)
    found = steps.astype(np.int64) - bounded.rows(_SEAL)
    alike = np.corrcoef(found)[np.triu_indices(clients, 1)]
    far = float(np.abs(alike).max()) * math.sqrt(size)
    # Each message by itself, too: a client left without noise is lost among fifty.
    silent = [i for i, row in enumerate(found) if not conforms(row, sigma)]
    holds = conforms(found, sigma) and not silent and far < WIDE
    card(
        f"noise in single messages, {clients} × {size:,} residuals",
        "the charged σ in each; no two alike",
        f"{len(silent)} messages off; correlations at most {far:.1f} standard errors",
        holds,
    )
    assert conforms(found, sigma)
    assert not silent
    assert far < WIDE

"""Noise from the clients: golden scales, and never less in a sum than was claimed."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.mechanism import LEAST_SIGMA, noise_in_steps
from cslr.privacy.noise_shares import (
    draw_share,
    effective_multiplier,
    reserved_delta,
    share_scale,
)
from cslr.privacy.values import STEPS

SIGMA = 1.45
GOLDEN = [(5, 3, 1, 1.5811), (5, 4, 1, 1.2910), (20, 14, 4, 1.4142), (100, 67, 10, 1.3245)]
"""n, t, c, √(n/(t − c)) to four places."""


@pytest.mark.parametrize(("n", "t", "c", "factor"), GOLDEN)
def test_golden_growth_of_sigma_when_all_survive(n, t, c, factor):
    assert effective_multiplier(SIGMA, STEPS, t, c, n) / SIGMA == pytest.approx(factor, abs=6e-5)


@pytest.mark.parametrize(("n", "t", "c", "_"), GOLDEN)
def test_a_share_has_the_variance_of_the_formula(n, t, c, _):
    variance = ((SIGMA * STEPS) ** 2 + 16) / (t - c)
    assert share_scale(SIGMA, STEPS, t, c) ** 2 == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize(("n", "t", "c", "_"), GOLDEN)
def test_without_the_colluders_noise_there_is_the_claimed_for_every_number_of_survivors(n, t, c, _):
    variance = share_scale(SIGMA, STEPS, t, c) ** 2
    claimed = noise_in_steps(SIGMA, STEPS) ** 2
    assert variance * (t - c) == pytest.approx(claimed, rel=1e-12)
    assert all(variance * (survivors - c) > claimed for survivors in range(t + 1, n + 1))


@pytest.mark.parametrize(("n", "t", "c"), [(5, 3, 1), (5, 4, 1), (20, 14, 4)])
def test_measured_noise_of_every_number_of_survivors_is_that_of_the_formula(n, t, c):
    """χ² on the variance of sums of drawn shares, two-sided, for s = t … n."""
    draws = 20_000
    scale = share_scale(SIGMA, STEPS, t, c)
    total = np.zeros(draws)
    for survivors in range(1, n + 1):
        total += draw_share(scale, draws, os.urandom(32))
        if survivors >= t:
            expected = (effective_multiplier(SIGMA, STEPS, t, c, survivors) * STEPS) ** 2
            low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], draws) / draws
            assert low < (total**2).mean() / expected < high
            honest = (total**2).mean() * (survivors - c) / survivors
            assert honest > 0.9 * noise_in_steps(SIGMA, STEPS) ** 2


def test_the_variance_test_would_see_a_tenth_of_the_noise_missing():
    low, _ = stats.chi2.ppf([1e-7, 1 - 1e-7], 20_000) / 20_000
    assert low > 0.9


@pytest.mark.parametrize(("t", "c"), [(3, 0), (3, -1), (3, 3), (1, 2)])
def test_shares_need_a_colluder_and_more_survivors_than_colluders(t, c):
    with pytest.raises(ValueError, match="colluders"):
        share_scale(SIGMA, STEPS, t, c)


def test_a_share_below_the_grids_least_scale_is_refused():
    steps = 2**12
    assert share_scale(1.01, steps, 2, 1) >= LEAST_SIGMA
    with pytest.raises(ValueError, match="below 4096"):
        share_scale(1.01, steps, 3, 1)
    with pytest.raises(ValueError, match="4096"):
        draw_share(4095.0, 3, bytes(32))


def test_fewer_survivors_than_the_threshold_have_no_multiplier():
    with pytest.raises(ValueError, match="survivors"):
        effective_multiplier(SIGMA, STEPS, 4, 1, 3)


def test_the_reserved_delta_counts_every_draw_of_every_client():
    assert reserved_delta(20, 49_796) == 20 * 49_796 / 2**48
    assert reserved_delta(100, 386, releases=7) == 700 * 386 / 2**48
    assert reserved_delta(100, 50_000, releases=100) < 2e-6
    with pytest.raises(ValueError, match="negative"):
        reserved_delta(-1, 3)


def test_the_same_key_gives_the_same_share_and_another_another():
    one, again, other = (draw_share(1e6, 50, key) for key in (bytes(32), bytes(32), b"\1" * 32))
    assert one.tolist() == again.tolist()
    assert (one != other).sum() > 45


def test_a_sum_of_shares_has_the_law_of_one_discrete_gaussian():
    """Kolmogorov and Smirnov against the Gaussian of the summed variance: steps are that fine."""
    scale = share_scale(SIGMA, STEPS, 4, 1)
    total = sum(draw_share(scale, 20_000, os.urandom(32)) for _ in range(5))
    assert stats.kstest(total / (scale * math.sqrt(5)), "norm").pvalue > 1e-6

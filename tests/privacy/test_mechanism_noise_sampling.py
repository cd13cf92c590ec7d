"""Who takes part: independent coins, not a cohort of fixed size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.mechanism import KeyStream, poisson_cohort

KEY = bytes(range(1, 33))


@pytest.mark.parametrize("q", [0.01, 0.3, 0.5, 0.97])
def test_each_client_takes_part_with_probability_q(q):
    cohort = poisson_cohort(300_000, q, KeyStream(KEY))
    assert stats.binomtest(int(cohort.sum()), len(cohort), q).pvalue > 1e-3
    # and an error of a twentieth would be seen
    assert stats.binomtest(int(cohort.sum()), len(cohort), 0.95 * q).pvalue < 1e-3


def test_the_size_of_a_cohort_is_binomial_not_fixed():
    """A cohort of fixed size does not earn the amplification that is charged."""
    coins = KeyStream(KEY)
    sizes = [poisson_cohort(50, 0.3, coins).sum() for _ in range(4000)]
    expected = 4000 * stats.binom.pmf(np.arange(51), 50, 0.3)
    common = expected >= 10
    counts = np.bincount(sizes, minlength=51)
    seen = [*counts[common], counts[~common].sum()]
    assert stats.chisquare(seen, [*expected[common], expected[~common].sum()]).pvalue > 1e-3


def test_clients_and_rounds_are_independent():
    coins = KeyStream(KEY)
    rounds = np.stack([poisson_cohort(20, 0.3, coins) for _ in range(5000)])
    off = np.corrcoef(rounds, rowvar=False)[~np.eye(20, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(5000)
    between = np.corrcoef(rounds[:-1, 0], rounds[1:, 0])[0, 1]
    assert abs(between) < 4 / np.sqrt(5000)


def test_everybody_takes_part_at_q_one():
    assert poisson_cohort(1000, 1.0, KeyStream(KEY)).all()


def test_the_largest_rate_below_one_is_still_a_rate():
    assert poisson_cohort(1000, np.nextafter(1, 0), KeyStream(KEY)).sum() >= 999


def test_the_same_coins_give_the_same_cohort():
    first = poisson_cohort(100, 0.3, KeyStream(KEY))
    assert first.tolist() == poisson_cohort(100, 0.3, KeyStream(KEY)).tolist()
    assert first.tolist() != poisson_cohort(100, 0.3, KeyStream(bytes(32))).tolist()


@pytest.mark.parametrize("q", [0.3, 1.0])
def test_nobody_registered_is_nobody_taking_part(q):
    assert poisson_cohort(0, q, KeyStream(KEY)).shape == (0,)


@pytest.mark.parametrize("q", [0.0, -0.1, 1.0001, np.nan])
def test_a_rate_outside_its_range_is_refused(q):
    with pytest.raises(ValueError, match="q must lie in"):
        poisson_cohort(10, q, KeyStream(KEY))

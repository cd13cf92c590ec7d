"""Statistics against SciPy, against the paper's own table, and by their properties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cslr.seeding import Seeds
from paper.statistics import (
    Spread,
    holm,
    paired_bootstrap,
    paired_t,
    spread,
    summary_interval,
)

X = (82.1, 81.5, 83.0, 82.4, 81.9)
Y = (80.0, 80.9, 81.1, 80.2, 81.0)
scores = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 3))
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=8)
chances = st.lists(st.floats(0, 1), max_size=8)


def rng() -> np.random.Generator:
    return Seeds(13).at("bootstrap")


def test_the_deviation_is_that_of_a_sample():
    assert spread((1.0, 2.0, 3.0)) == Spread(2.0, 1.0, 3)


def test_one_seed_has_no_deviation():
    assert spread((5.0,)).mean == 5.0
    assert math.isnan(spread((5.0,)).sd)


def test_there_is_no_mean_of_nothing():
    with pytest.raises(ValueError, match="empty"):
        spread(())


def test_an_undefined_score_is_not_averaged_away():
    assert math.isnan(spread((1.0, math.nan)).mean)


@pytest.mark.parametrize(
    ("mean", "sd", "other", "its_sd", "low", "high"),
    [
        (62.1, 0.3, 57.4, 0.4, 4.1, 5.3),  # the paper's first and last row
        (53.8, 0.3, 50.8, 0.4, 2.4, 3.6),
    ],
)
def test_the_summary_interval_is_the_papers(mean, sd, other, its_sd, low, high):
    interval = summary_interval(Spread(mean, sd, 5), Spread(other, its_sd, 5))
    assert (round(interval.low, 1), round(interval.high, 1)) == (low, high)
    half = 2.776 * math.sqrt(sd**2 / 5 + its_sd**2 / 5)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=2e-4)


def test_the_summary_interval_follows_the_number_of_seeds():
    three = summary_interval(Spread(1.0, 1.0, 3), Spread(0.0, 1.0, 3))
    assert three.high - 1.0 == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(2 / 3))
    uneven = summary_interval(Spread(1.0, 1.0, 3), Spread(0.0, 1.0, 5))
    assert uneven.high - 1.0 == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1 / 5))


def test_one_seed_gives_no_interval():
    with pytest.raises(ValueError, match="two seeds"):
        summary_interval(spread((1.0,)), spread((1.0, 2.0)))


@given(pairs)
def test_the_summary_interval_is_about_the_difference_and_turns_with_it(drawn):
    x, y = (spread([pair[i] for pair in drawn]) for i in (0, 1))
    one, other = summary_interval(x, y), summary_interval(y, x)
    assert (one.low + one.high) / 2 == pytest.approx(x.mean - y.mean, abs=1e-9)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=1e-9)


def test_paired_t_by_hand():
    differences = np.subtract(X, Y)
    error = differences.std(ddof=1) / math.sqrt(5)
    test = paired_t(X, Y)
    assert test.difference == pytest.approx(differences.mean())
    assert test.p == pytest.approx(2 * stats.t.sf(differences.mean() / error, 4))
    assert test.interval.high == pytest.approx(differences.mean() + 2.7764451 * error)


def test_a_difference_that_never_changes_is_certain_and_none_is_none():
    assert paired_t((1.0, 2.0, 3.0), (0.5, 1.5, 2.5)).p == 0.0
    same = paired_t(X, X)
    assert (same.difference, same.p, 0.0 in same.interval) == (0.0, 1.0, True)


@given(pairs)
def test_paired_t_rejects_exactly_where_its_interval_leaves_zero_out(drawn):
    test = paired_t([x for x, _ in drawn], [y for _, y in drawn])
    if abs(test.p - 0.05) > 1e-6:
        assert (test.p > 0.05) == (0.0 in test.interval)


def exact(x: tuple[float, ...], y: tuple[float, ...]) -> np.ndarray:
    """The means of all n^n resamples: what a bootstrap draws from."""
    differences = np.subtract(x, y)
    n = len(differences)
    return np.array(
        [differences[list(drawn)].mean() for drawn in itertools.product(range(n), repeat=n)]
    )


def test_the_bootstrap_agrees_with_all_resamples_there_are():
    test, means = paired_bootstrap(X, Y, rng()), exact(X, Y)
    assert test.interval.low == pytest.approx(np.quantile(means, 0.025), abs=0.05)
    assert test.interval.high == pytest.approx(np.quantile(means, 0.975), abs=0.05)


def test_the_bootstraps_p_agrees_with_all_resamples_there_are():
    y = (82.6, 80.9, 83.1, 82.2, 81.0)
    centred = exact(X, y) - np.mean(np.subtract(X, y))
    share = np.mean(np.abs(centred) >= abs(np.mean(np.subtract(X, y))) - 1e-12)
    assert 0.1 < share < 0.9
    assert paired_bootstrap(X, y, rng()).p == pytest.approx(share, abs=0.02)


def test_the_bootstrap_agrees_with_scipys():
    by_scipy = stats.bootstrap(
        (np.array(X), np.array(Y)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        paired=True,
        method="percentile",
        n_resamples=9_999,
        random_state=rng(),
    ).confidence_interval
    ours = paired_bootstrap(X, Y, rng()).interval
    assert (ours.low, ours.high) == pytest.approx(tuple(by_scipy), abs=0.05)


def test_the_bootstrap_is_the_same_for_the_same_stream():
    assert paired_bootstrap(X, Y, rng()) == paired_bootstrap(X, Y, rng())
    assert paired_bootstrap(X, X, rng()).p == 1.0


@settings(max_examples=30)
@given(pairs)
def test_the_bootstraps_interval_lies_within_the_differences(drawn):
    x, y = [pair[0] for pair in drawn], [pair[1] for pair in drawn]
    test, differences = paired_bootstrap(x, y, rng(), resamples=200), np.subtract(x, y)
    assert differences.min() - 1e-9 <= test.interval.low <= test.interval.high
    assert test.interval.high <= differences.max() + 1e-9
    assert 0 < test.p <= 1


@pytest.mark.parametrize("compare", [paired_t, lambda x, y: paired_bootstrap(x, y, rng())])
@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ((1.0, 2.0), (1.0,), "same seeds"),
        ((1.0,), (1.0,), "two seeds"),
        ((1.0, math.nan), (1.0, 2.0), "finite"),
    ],
)
def test_what_cannot_be_paired_is_refused(compare, x, y, why):
    with pytest.raises(ValueError, match=why):
        compare(x, y)


def test_holm_on_its_textbook_example():
    assert holm((0.01, 0.04, 0.03, 0.005)) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_holm_of_nothing_and_of_one():
    assert holm(()) == ()
    assert holm((0.2,)) == (0.2,)


def test_holm_refuses_what_is_no_chance():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm((0.5, 1.5))


@given(chances)
def test_holm_lies_between_the_raw_value_and_bonferroni(p):
    for raw, adjusted in zip(p, holm(p), strict=True):
        assert raw <= adjusted <= min(1.0, len(p) * raw)


@given(chances, st.randoms(use_true_random=False))
def test_holm_keeps_the_order_and_does_not_depend_on_it(p, shuffle):
    adjusted = holm(p)
    for i, j in itertools.combinations(range(len(p)), 2):
        if p[i] < p[j]:
            assert adjusted[i] <= adjusted[j]
    order = list(range(len(p)))
    shuffle.shuffle(order)
    assert holm([p[i] for i in order]) == tuple(adjusted[i] for i in order)

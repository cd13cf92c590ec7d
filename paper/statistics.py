"""Statistics over seeds: means and deviations, intervals of a difference, tests, Holm's p.

With the same seed, methods share rows, partitions, anchors and initial heads, so differences are
paired. The paper's interval is not paired; it is kept to check the paper's table of effect sizes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from cslr.arrays import FloatArray

__all__ = [
    "Comparison",
    "Interval",
    "Spread",
    "holm",
    "paired_bootstrap",
    "paired_t",
    "spread",
    "summary_interval",
]

LEVEL: Final = 0.95
RESAMPLES: Final = 10_000


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the deviation between them."""

    mean: float
    sd: float
    """Sample standard deviation (ddof = 1); NaN with one seed or a value that is not finite."""
    n: int


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a difference."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Comparison:
    """A paired comparison: mean difference, its interval, and p of the null of no difference."""

    difference: float
    interval: Interval
    p: float


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample deviation; NaN if a value is NaN, an error without values."""
    if not values:
        raise ValueError("values must not be empty")
    sample = np.asarray(values, dtype=np.float64)
    several = len(sample) > 1 and bool(np.isfinite(sample).all())
    sd = float(sample.std(ddof=1)) if several else math.nan
    return Spread(float(sample.mean()), sd, len(sample))


def summary_interval(x: Spread, y: Spread, level: float = LEVEL) -> Interval:
    """The paper's interval (its Appendix "Statistical Reporting"), for any number of seeds.

        Δ ± t((1 + level)/2, n − 1) · √(s_x²/n_x + s_y²/n_y)

    n − 1 = 4 with the paper's five seeds; with unequal numbers the smaller one counts. It needs
    only printed means and deviations. It is wider than a paired interval if the scores of the two
    methods are positively correlated over seeds, and narrower if negatively.
    """
    n = min(x.n, y.n)
    if n < 2:
        raise ValueError(f"an interval requires at least two seeds of each method, not {n}")
    quantile = float(stats.t.ppf((1 + level) / 2, n - 1))
    half = quantile * math.sqrt(x.sd**2 / x.n + y.sd**2 / y.n)
    difference = x.mean - y.mean
    return Interval(difference - half, difference + half)


def paired_t(x: Sequence[float], y: Sequence[float], level: float = LEVEL) -> Comparison:
    """The paired t-test of equal means, two-sided; ``x[i]`` and ``y[i]`` are of one seed."""
    differences = _differences(x, y)
    mean = float(differences.mean())
    if np.ptp(differences) <= 1e-12 * max(1.0, float(np.abs(differences).max())):
        return Comparison(mean, Interval(mean, mean), float(abs(mean) <= 1e-12))
    with warnings.catch_warnings():
        # SciPy warns of a loss of precision if differences are nearly equal; it is harmless here.
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_rel(np.asarray(x), np.asarray(y))
        low, high = result.confidence_interval(level)
    return Comparison(mean, Interval(float(low), float(high)), float(result.pvalue))


def paired_bootstrap(
    x: Sequence[float],
    y: Sequence[float],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Comparison:
    """Seeds drawn with replacement: percentile interval, and p of a centred bootstrap.

    p is the share of resamples of ``differences − mean`` whose mean is at least as far from zero
    as the measured one, which is counted among them. With five seeds it is optimistic (its variance
    is 4/5 of the t-test's), so it is reported in addition to the t-test.
    """
    differences = _differences(x, y)
    n, mean = len(differences), float(differences.mean())
    drawn = differences[rng.integers(0, n, size=(resamples, n))].mean(axis=1)  # (resamples,)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    beyond = np.abs(drawn - mean) >= abs(mean) - 1e-12
    p = (1 + int(beyond.sum())) / (1 + resamples)
    return Comparison(mean, Interval(float(low), float(high)), p)


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down p (Holm 1979), in the order given.

    The i-th smallest of k is multiplied by k − i + 1, made at least as large as the one before it,
    and at most 1. This controls the family-wise error rate under any dependence. Implemented here
    because SciPy has only the false-discovery rates of Benjamini, Hochberg and Yekutieli.
    """
    if any(not 0 <= value <= 1 for value in p):
        raise ValueError(f"p must lie in [0, 1], not {list(p)}")
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, before = [0.0] * len(p), 0.0
    for place, i in enumerate(order):
        before = max(before, min(1.0, (len(p) - place) * p[i]))
        adjusted[i] = before
    return tuple(adjusted)


def _differences(x: Sequence[float], y: Sequence[float]) -> FloatArray:
    """(n,) the differences x − y, seed by seed."""
    if len(x) != len(y):
        raise ValueError(
            f"x and y must have values of the same seeds, not {len(x)} and {len(y)} values"
        )
    if len(x) < 2:
        raise ValueError(f"a paired comparison requires at least two seeds, not {len(x)}")
    differences: FloatArray = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise ValueError("x and y must be finite: an undefined score cannot be compared")
    return differences

"""The noise on the grid costs no more than the continuous noise that is charged: δ written out.

One client moves an integer sum by a vector a of length at most S = ``steps``. With discrete
Gaussian noise of variance s² on every coordinate the privacy loss of x is (2 a·x + |a|²) / 2s², so

    δ(ε) = Σ_y P[a·x = y] (1 − e^(ε − (2y + |a|²) / 2s²))₊

which is added up here term by term: every term is positive, so nothing cancels. Charged is the
continuous Gaussian of standard deviation σS. Several releases are one with the shifts side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve

from cslr.privacy.accounting import gaussian_epsilon
from cslr.privacy.mechanism import noise_in_steps
from cslr.privacy.values import STEPS

REACH = 13  # standard deviations: what lies beyond is below 10⁻³⁷
CHUNK = 2**20
SHIPPED = (1.08, 1.2, 2.16, 3.06, 4.84, 7.46, 21.6)
"""σ of shipped plans, one release: from NER's single task to fifty updates of a head."""
DELTAS = (1e-3, 1e-5, 1e-7)


def charged(mu: float, epsilon: float) -> mpmath.mpf:
    """δ of the continuous mechanism in 30 digits."""
    with mpmath.workdps(30):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def of_lattice(
    scale: float, unit: int, square: int, variance: float, epsilon: float
) -> Iterator[float]:
    """Terms of δ where a·x = unit · y with y discrete Gaussian of ``scale``; chunk by chunk.

    variance: s²; square: |a|².
    """
    first = math.floor((2 * epsilon * variance - square) / (2 * unit)) + 1
    for begin in range(first, math.ceil(REACH * scale), CHUNK):
        y = np.arange(begin, min(begin + CHUNK, math.ceil(REACH * scale)), dtype=np.float64)
        loss = (2 * unit * y + square) / (2 * variance)
        yield float((np.exp(-(y**2) / (2 * scale**2)) * -np.expm1(epsilon - loss)).sum())


def delta_of_equal_shifts(shift: int, times: int, scale: float, epsilon: float) -> float:
    """δ where each of ``times`` coordinates moves by ``shift``: their sum is discrete Gaussian too.

    Exactly so up to e^(−π² s²), and the normalising sum is s √(2π) as closely.
    """
    wide = math.sqrt(times) * scale
    terms = of_lattice(wide, shift, times * shift**2, scale**2, epsilon)
    return math.fsum(terms) / (wide * math.sqrt(2 * math.pi))


def delta_of_shift(shift: Sequence[int], scale: float, epsilon: float) -> float:
    """δ of any shift, by convolving the laws of a_i x_i."""
    unit = math.gcd(*shift)
    reach = math.ceil(REACH * scale)
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    law = np.exp(-(x**2) / (2 * scale**2))
    law /= law.sum()

    def spread(a: int) -> np.ndarray:
        stride = a // unit
        wide = np.zeros(2 * reach * stride + 1)
        wide[::stride] = law
        return wide

    together = reduce(fftconvolve, [spread(a) for a in shift])
    y = unit * (np.arange(len(together)) - len(together) // 2)
    loss = (2 * y + sum(a * a for a in shift)) / (2 * scale**2)
    return float((together * np.maximum(-np.expm1(epsilon - loss), 0.0)).sum())


def excess(delta: float, mu: float, epsilon: float) -> float:
    """How far a δ lies above what is charged, relative to it."""
    paid = charged(mu, epsilon)
    return float((delta - paid) / paid)


def splits(steps: int) -> dict[str, tuple[int, ...]]:
    """Ways in which one client may move a sum by no more than ``steps``."""
    half = math.isqrt(steps**2 // 2)
    return {
        "one coordinate": (steps,),
        "two alike": (half, half),
        "four alike": (steps // 2,) * 4,
        "three to four": (3 * (steps // 5), 4 * (steps // 5)),
        "one to seven": (steps // 8, 7 * (steps // 8)),
    }


def test_the_two_ways_to_add_up_agree():
    scale = noise_in_steps(1.2, 2**12)
    for times in (1, 2, 4):
        shift = 2**12 // math.isqrt(times) if times != 2 else math.isqrt(2**24 // 2)
        found = delta_of_shift((shift,) * times, scale, 2.0)
        assert found == pytest.approx(delta_of_equal_shifts(shift, times, scale, 2.0), rel=1e-9)


@pytest.mark.parametrize("way", splits(2**12))
def test_however_a_client_moves_a_coarse_sum_it_costs_no_more_than_charged(way):
    """At the coarsest grid that is allowed the margin is largest, and easiest to compute."""
    steps, sigma = 2**12, 1.2
    for delta in DELTAS:
        epsilon = gaussian_epsilon(1 / sigma, delta)
        found = delta_of_shift(splits(steps)[way], noise_in_steps(sigma, steps), epsilon)
        assert excess(found, 1 / sigma, epsilon) < -1e-9


def test_without_the_share_that_rounds_the_check_would_fail():
    """The instrument itself: continuous accounting of a bare discrete Gaussian is too cheap."""
    steps, sigma = 8, 1.0
    above = []
    for epsilon in np.linspace(0.5, 6.0, 40).tolist():
        bare = delta_of_shift((steps,), sigma * steps, epsilon)
        above.append(excess(bare, 1 / sigma, epsilon))
        padded = delta_of_shift((steps,), math.hypot(sigma * steps, 4.0), epsilon)
        assert excess(padded, 1 / sigma, epsilon) < 0
    assert max(above) > 1e-4


@pytest.mark.trust
def test_the_noise_on_the_grid_costs_no_more_than_charged(card):
    """Shipped σ on grids from 2¹² to the 2²⁰ steps that ship, one release and several."""
    cases = [
        *((2**12, sigma, times) for sigma in SHIPPED for times in (1, 4)),
        *((2**16, sigma, 1) for sigma in SHIPPED[:4]),
        *((STEPS, sigma, times) for sigma, times in ((1.08, 1), (2.16, 1), (2.16, 4))),
    ]
    worst, shipped = -math.inf, -math.inf
    for steps, sigma, times in cases:
        scale, mu = noise_in_steps(sigma, steps), math.sqrt(times) / sigma
        for delta in DELTAS if steps < STEPS else (1e-5,):
            epsilon = gaussian_epsilon(mu, delta)
            found = excess(delta_of_equal_shifts(steps, times, scale, epsilon), mu, epsilon)
            worst = max(worst, found)
            if steps == STEPS:  # the margin is the slope of δ(μ) times what 16 steps² take from μ
                slope = math.exp(-((mu / 2 - epsilon / mu) ** 2) / 2) / math.sqrt(2 * math.pi)
                assert found == pytest.approx(-slope * mu * 8 / scale**2 / delta, rel=0.05)
                shipped = max(shipped, found)
    figure = f"at least {-worst:.0e} below, relative; {len(cases)} cases, 2²⁰ steps: {-shipped:.0e}"
    card("discrete grid δ", "≤ charged", figure, worst < 0)
    assert worst < 0

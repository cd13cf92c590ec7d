"""The noise against its exact law, value by value, and against another library's sampler."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from cslr.privacy import mechanism
from cslr.privacy.ledger.records import key_for_sum
from cslr.privacy.mechanism import KeyStream, discrete_gaussian

mpmath = pytest.importorskip("mpmath")

pytestmark = pytest.mark.trust

DRAWS, PART = 10**7, 10**6
ALARM = 1e-7  # per test, on an honest sampler
SIGMAS = [1.0, 2.0, 5.5, 16.0, 64.0]


def draw(sigma: float, size: int, *names: object) -> np.ndarray:
    text = np.frombuffer(repr((sigma, names)).encode(), np.uint8).astype(np.int64)
    return discrete_gaussian(sigma, size, KeyStream(key_for_sum(bytes(range(32)), text)))


def exact_law(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Values out to 9 σ and their probabilities, normalised by Jacobi's theta function."""
    with mpmath.workdps(30):
        nome = mpmath.exp(-1 / (2 * mpmath.mpf(sigma) ** 2))
        whole = mpmath.jtheta(3, 0, nome)
        reach = math.ceil(9 * sigma)
        half = [float(nome ** (k * k) / whole) for k in range(reach + 1)]
    return np.arange(-reach, reach + 1), np.array(half[:0:-1] + half)


def cells_of(law: np.ndarray, least: float) -> np.ndarray:
    """The cell of each value: its own or, if it or what is beyond it is rarer, one of two tails."""
    beyond = np.cumsum(law) - law
    first = int(np.argmax((law >= least) & (beyond >= least)))
    cells = np.clip(np.arange(len(law)), first - 1, len(law) - first)
    return cells - cells[0]


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """The p-value of counts per value, cells of fewer than 20 expected draws pooled."""
    total = counts.sum()
    cells = cells_of(law, 20 / total)
    seen = np.bincount(cells, weights=counts)
    expected = np.bincount(cells, weights=law) * total
    assert expected.min() >= 20
    return float(stats.chisquare(seen, expected, sum_check=False).pvalue)


def finds(sigma: float, factor: float) -> float:
    """The probability that χ² alarms if the noise is ``factor`` times as wide as claimed."""
    values, law = exact_law(sigma)
    cells = cells_of(law, 20 / DRAWS)
    expected = np.bincount(cells, weights=law)
    wrong = np.exp(-(values**2) / (2 * (factor * sigma) ** 2))
    really = np.bincount(cells, weights=wrong / wrong.sum())
    apart = DRAWS * float(np.sum((really - expected) ** 2 / expected))
    freedom = len(expected) - 1
    return float(stats.ncx2.sf(stats.chi2.isf(ALARM, freedom), freedom, apart))


def test_every_value_has_its_exact_probability_at_five_scales(card):
    found, power = {}, {}
    for sigma in SIGMAS:
        values, law = exact_law(sigma)
        counts = np.zeros(len(law))
        for part in range(DRAWS // PART):
            drawn = draw(sigma, PART, "law", part)
            inside = np.clip(drawn, values[0], values[-1]) - values[0]
            counts += np.bincount(inside, minlength=len(law))
        found[sigma] = chi_square(counts, law)
        power[sigma] = min(finds(sigma, 0.995), finds(sigma, 1.005))
    least = min(found, key=lambda sigma: found[sigma])
    holds = found[least] > ALARM and min(power.values()) > 0.999
    card(
        "exact-pmf χ² at five scales, 10⁷ draws each",
        "p > 10⁻⁷; finds 0.5 % of σ and any wrong value",
        f"least p = {found[least]:.2g} (σ = {least:g}); a 0.5 % error alarms with "
        f"p ≥ {min(power.values()):.4f}",
        holds,
    )
    assert found[least] > ALARM, found
    assert min(power.values()) > 0.999


@pytest.mark.parametrize("sigma", [2.0, 16.0])
@pytest.mark.parametrize("fault", ["zero twice", "one value lost", "tails cut at 4 σ"])
def test_a_classical_fault_of_a_sampler_would_be_found(sigma, fault):
    """A zero counted for both signs, an edge forgotten, a proposal that does not reach."""
    values, law = exact_law(sigma)
    wrong = law.copy()
    if fault == "zero twice":
        wrong[values == 0] *= 2
    elif fault == "one value lost":
        wrong[values == math.ceil(2 * sigma)] = 0
    else:
        wrong[np.abs(values) > 4 * sigma] = 0
    rng = np.random.Generator(np.random.PCG64(4))
    counts = rng.multinomial(DRAWS, wrong / wrong.sum())
    assert chi_square(counts, law) < ALARM


def test_the_low_bits_of_wide_noise_are_uniform(card):
    """They would carry what a client said if they were not: theirs are added to them."""
    worst = 1.0
    for sigma in (2.0**12, 1.45 * 2**20, 10.3 * 2**20):
        drawn = np.concatenate([draw(sigma, PART, "bits", part) for part in range(2)])
        for modulus in (2, 3, 256, 1000):
            seen = np.bincount(drawn % modulus, minlength=modulus)
            worst = min(worst, float(stats.chisquare(seen).pvalue))
        high = np.bincount((drawn >> 4) & 255, minlength=256)
        worst = min(worst, float(stats.chisquare(high).pvalue))
    card(
        "low bits of the noise (mod 2, 3, 256, 1000)",
        "uniform, p > 10⁻⁷",
        f"least p = {worst:.2g} of 15",
        worst > ALARM,
    )
    assert worst > ALARM


# -- the coins, bit by bit ------------------------------------------------------------------------


def ways(probability: np.ndarray) -> np.ndarray:
    """For how many of the 2⁶⁴ words a coin falls on its side, found by bisection."""
    found = np.zeros(len(probability), dtype=np.uint64)
    for bit in range(63, -1, -1):
        more = found + np.uint64(1 << bit)
        found = np.where(mechanism._happens(probability, more - np.uint64(1)), more, found)
    last = np.full(len(found), 2**64 - 1, dtype=np.uint64)
    return found.astype(object) + mechanism._happens(probability, last).astype(object)


def weights_of(sigma: float) -> list[int]:
    """What the sampler gives to |x| = 0, 1, …: products of whole numbers of words.

    That every coin falls as its exact probability says is in tests/privacy/test_mechanism_noise.py.
    """
    bits = max(1, round(math.log2(sigma)))
    lows = np.arange(2**bits, dtype=np.uint64) << np.uint64(64 - bits)
    keep = ways(mechanism._survival(bits, lows, np.float64)).tolist()
    accept = ways(mechanism._acceptance(sigma, bits, np.arange(45 << bits), np.float64)).tolist()
    reaches = [
        2**64,
        *mechanism._GEOMETRIC[::-1].tolist(),
        0,
    ]  # words for which the high part is ≥ j
    high = [here - further for here, further in pairwise(reaches)]
    return [keep[x % 2**bits] * high[x >> bits] * accept[x] for x in range(len(accept))]


def test_a_draw_is_within_two_to_the_minus_48_of_the_exact_law(card):
    """No sampling here: the 64-bit coins are counted, and compared with the law in 60 digits."""
    worst = mpmath.mpf(0)
    for sigma in (1.0, 1.5, 5.5, 64.0, 1000.0):
        ours = weights_of(sigma)
        with mpmath.workdps(60):
            nome = mpmath.exp(-1 / (2 * mpmath.mpf(sigma) ** 2))
            whole = mpmath.jtheta(3, 0, nome)
            total = 2 * sum(ours) - ours[0]
            apart = [
                abs(mpmath.mpf(w) / total - nome ** (x * x) / whole) for x, w in enumerate(ours)
            ]
            beyond = nome ** (len(ours) ** 2)
            worst = max(worst, mpmath.fsum(apart) - apart[0] / 2 + beyond)
    figure = float(mpmath.log(worst, 2))
    card(
        "the sampler's distance from the exact law, by counting words",
        "total variation below 2⁻⁴⁸ at five scales",
        f"2^{figure:.1f}",
        figure < -48,
    )
    assert figure < -48


# -- another implementation ------------------------------------------------------------------------


def two_sample(ours: np.ndarray, theirs: np.ndarray, cells: int) -> float:
    """χ² over cells that hold as many of both together; works for ties as well."""
    both = np.concatenate([ours, theirs])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, cells + 1)[1:-1]))
    seen = [
        np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (ours, theirs)
    ]
    table = np.array(seen)
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def test_another_librarys_sampler_cannot_be_told_from_ours(card):
    """OpenDP draws exactly, from the operating system: no seed, hence the alarm of 10⁻⁷."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    size, found, caught = 100_000, [], []
    for sigma in (5.5, 2.65 * 2**20):
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        theirs = np.array(dp.m.make_gaussian(*space, scale=sigma)([0] * size))
        ours = draw(sigma, size, "beside OpenDP")
        assert theirs.dtype == np.int64
        found += [two_sample(ours, theirs, 64), float(stats.ks_2samp(ours, theirs).pvalue)]
        spread = stats.f(size, size).cdf(
            np.square(ours / sigma).sum() / np.square(theirs / sigma).sum()
        )
        found.append(2 * float(min(spread, 1 - spread)))
        caught.append(two_sample(draw(1.05 * sigma, size, "wider"), theirs, 64))
    holds = min(found) > ALARM and max(caught) < 1e-9
    card(
        "beside OpenDP, 10⁵ draws each at two scales",
        "the same law (χ² in 64 cells, KS, F), p > 10⁻⁷",
        f"least p = {min(found):.2g}; 5 % wider: {max(caught):.0e}",
        holds,
    )
    assert min(found) > ALARM
    assert max(caught) < 1e-9

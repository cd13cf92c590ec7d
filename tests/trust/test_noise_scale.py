"""The noise is as wide as it is said to be, and nothing in it hangs together.

Under the claim Σ (x/σ)² of n draws is χ² with n degrees of freedom: at σ ≥ 2¹² steps the discrete
and the continuous law differ by far less than a double can show. Everything else is compared with
its normal limit, six standard errors wide (2·10⁻⁹ each, so below 10⁻⁶ for all of a test together).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.ledger.records import key_for_sum
from cslr.privacy.mechanism import LEAST_SIGMA, KeyStream, discrete_gaussian, noise_in_steps
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import STEPS

pytestmark = pytest.mark.trust

DRAWS, PART = 10**7, 10**6
LAGS = range(1, 9)
ALARM = 5e-7  # of the scale, two-sided
ERROR = 0.002  # of σ, what must be found
WIDE = 6.0  # standard errors
SCALES = {
    "the least that is allowed": float(LEAST_SIGMA),
    "the paper's 1.45": noise_in_steps(1.45, STEPS),
    **{
        f"ε = {epsilon} over {releases}": noise_in_steps(
            calibrate(Budget(epsilon), releases).sigma, STEPS
        )
        for epsilon, releases in ((1.0, 7), (4.0, 4), (8.0, 1))
    },
}


def key(*names: object) -> bytes:
    text = repr(names).encode()
    return key_for_sum(bytes(range(32)), np.frombuffer(text, np.uint8).astype(np.int64))


def draw(sigma: float, size: int, *names: object) -> np.ndarray:
    """Draws in units of σ, from a key of that name."""
    return discrete_gaussian(sigma, size, KeyStream(key(sigma, *names))) / sigma


@dataclass(frozen=True)
class ScaleTest:
    """Alarms if Σ z² of ``draws`` is outside the two quantiles."""

    draws: int

    @property
    def within(self) -> tuple[float, float]:
        law = stats.chi2(self.draws)
        return float(law.ppf(ALARM / 2)), float(law.isf(ALARM / 2))

    def alarms(self, squares: float) -> bool:
        low, high = self.within
        return not low <= squares <= high

    def finds(self, factor: float) -> float:
        """The probability of an alarm if the noise is ``factor`` times as wide as claimed."""
        low, high = self.within
        law = stats.chi2(self.draws)
        return float(law.cdf(low / factor**2) + law.sf(high / factor**2))


def test_the_test_alarms_honestly_once_in_a_million_and_finds_a_fifth_of_a_percent():
    test = ScaleTest(DRAWS)
    assert test.finds(1.0) < 1e-6
    assert min(test.finds(1 - ERROR), test.finds(1 + ERROR)) > 0.999
    assert (
        max(test.finds(1 - ERROR / 4), test.finds(1 + ERROR / 4)) < 0.1
    )  # it is not a hair trigger


@dataclass(frozen=True)
class Moments:
    """What was found in all parts together."""

    squares: float
    deviations: dict[str, float]  # from what is expected, in standard errors


def moments_of(parts: list[np.ndarray]) -> Moments:
    """Every part comes from a key of its own."""
    total: dict[str, float] = {}
    terms: dict[str, int] = {}

    def add(name: str, values: np.ndarray) -> None:
        total[name] = total.get(name, 0.0) + float(values.sum())
        terms[name] = terms.get(name, 0) + values.size

    variance = {"mean": 1.0, "sign": 1.0, "third moment": 15.0, "fourth moment": 96.0}
    before = parts[-1]
    for z in parts:
        size = np.abs(z) - math.sqrt(2 / math.pi)
        add("mean", z)
        add("sign", np.sign(z))
        add("third moment", z**3)
        add("fourth moment", z**4 - 3.0)
        add("across keys", z * before)
        variance["across keys"] = 1.0
        for lag in LAGS:
            add(f"lag {lag}", z[lag:] * z[:-lag])
            add(f"lag {lag} of sizes", size[lag:] * size[:-lag])
            variance |= {f"lag {lag}": 1.0, f"lag {lag} of sizes": (1 - 2 / math.pi) ** 2}
        before = z
    squares = sum(float(np.square(z).sum()) for z in parts)
    return Moments(
        squares, {name: total[name] / math.sqrt(variance[name] * terms[name]) for name in total}
    )


@pytest.fixture(scope="module")
def found() -> dict[str, Moments]:
    """Ten million draws at every scale, a tenth of them from each of ten keys."""
    return {
        name: moments_of([draw(sigma, PART, "part", part) for part in range(DRAWS // PART)])
        for name, sigma in SCALES.items()
    }


def test_ten_million_draws_have_the_scale_that_is_claimed(found, card):
    test = ScaleTest(DRAWS)
    power = min(test.finds(1 - ERROR), test.finds(1 + ERROR))
    honest = {name: not test.alarms(each.squares) for name, each in found.items()}
    caught = [
        test.alarms(each.squares * (1 + error) ** 2)
        for each in found.values()
        for error in (-ERROR, ERROR)
    ]
    off = max(abs(math.sqrt(each.squares / DRAWS) - 1) for each in found.values())
    card(
        f"noise scale, 10⁷ draws at each of {len(found)} scales",
        "0.2 % of σ, two-sided",
        f"off by at most {100 * off:.3f} %; a 0.2 % error alarms with p = {power:.5f}, "
        f"honest noise with {test.finds(1.0):.0e}",
        all(honest.values()) and all(caught),
    )
    assert all(honest.values()), honest
    assert all(caught), "0.2 % more or less would have passed"


def test_ten_million_draws_are_centred_symmetric_gaussian_and_independent(found, card):
    figures = {
        f"{what}, {name}": abs(far)
        for name, each in found.items()
        for what, far in each.deviations.items()
    }
    worst = max(figures, key=lambda each: figures[each])
    card(
        f"noise moments, lags 1–8 and keys, 10⁷ draws at each of {len(found)} scales",
        f"{len(figures)} figures, each within 6 standard errors",
        f"at most {figures[worst]:.1f} ({worst})",
        figures[worst] < WIDE,
    )
    assert figures[worst] < WIDE, worst


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("mean", lambda z: z + 0.004),
        ("sign", lambda z: np.where((z < 0) & (np.arange(len(z)) % 200 == 0), -z, z)),
        ("fourth moment", lambda z: np.clip(z, -3.2, 3.2)),
        ("lag 1", lambda z: z + 0.004 * np.roll(z, 1)),
        ("lag 8", lambda z: z + 0.004 * np.roll(z, 8)),
        ("lag 3 of sizes", lambda z: z * np.where(np.abs(np.roll(z, 3)) > 1, 1.005, 0.995)),
    ],
)
def test_a_small_fault_in_the_noise_would_be_found(what, spoil):
    """The same figures of ten million honest draws, spoilt by half a percent or less."""
    rng = np.random.Generator(np.random.PCG64(1))
    found = moments_of([spoil(rng.standard_normal(PART)) for _ in range(DRAWS // PART)])
    assert abs(found.deviations[what]) > WIDE


def test_the_same_noise_under_two_keys_would_be_found():
    z = np.random.Generator(np.random.PCG64(2)).standard_normal(PART)
    assert moments_of([z, z]).deviations["across keys"] > WIDE


# -- across coordinates, releases and keys ---------------------------------------------------------

RELEASES, WIDTH = 20_000, 50
FINE = 2.65 * 2**20


def noise_of(sums: np.ndarray, key_of_release) -> np.ndarray:
    """(releases, coordinates) in units of σ: one stream for each key and sum, as in a release."""
    return (
        np.stack(
            [
                discrete_gaussian(FINE, WIDTH, KeyStream(key_for_sum(key_of_release(i), total)))
                for i, total in enumerate(sums)
            ]
        )
        / FINE
    )


def deviation(a: np.ndarray, b: np.ndarray) -> float:
    """How far the mean product of two independent standardised arrays is from zero."""
    return abs(float((a * b).sum())) / math.sqrt(a.size)


def standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def test_noise_of_many_small_releases_is_independent_of_everything(card):
    rng = np.random.Generator(np.random.PCG64(3))
    sums = rng.integers(-(2**22), 2**22, size=(RELEASES, WIDTH))
    fixed = key("one key")
    z = noise_of(sums, lambda i: fixed)  # another sum each time
    other = noise_of(sums, lambda i: key("key", i))  # the same sums, another key each time
    moved = sums.copy()
    moved[:, 0] += 1  # the smallest change there is
    near = noise_of(moved, lambda i: fixed)
    pairs = np.abs(z.T @ z)[np.triu_indices(WIDTH, 1)] / math.sqrt(RELEASES)
    figures = {
        "two coordinates": float(pairs.max()),
        "one release and the next": deviation(z[1:], z[:-1]),
        "two keys": deviation(z, other),
        "sums one step apart": deviation(z, near),
        "the sum": deviation(z, standardised(sums)),
        "the size of the sum": deviation(z, standardised(np.abs(sums))),
        "the sum's lowest bit": deviation(z, 2.0 * (sums & 1) - 1.0),
        "sizes and the sum": deviation(standardised(z**2), standardised(np.abs(sums))),
    }
    worst = max(figures, key=lambda each: figures[each])
    # The largest of 1,225 pairs has that many chances.
    limit = WIDE + 0.5
    card(
        "noise across coordinates, releases, keys and sums",
        f"{len(figures)} correlations, each within {limit} standard errors",
        f"at most {figures[worst]:.1f} ({worst}); 10⁶ products each",
        figures[worst] < limit,
    )
    assert figures[worst] < limit, worst
    squares = float(np.square(z).sum() + np.square(other).sum() + np.square(near).sum())
    assert not ScaleTest(3 * z.size).alarms(squares)

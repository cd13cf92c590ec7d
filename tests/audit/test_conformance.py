"""The noise of a release, against what is charged for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from cslr.audit.conformance import conforms

SIGMA = 1.7e6


def draws(scale: float, count: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(count) * scale * SIGMA
    return np.rint(noise).astype(np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_honest_noise_raises_no_alarm(seed):
    found = conforms(draws(1.0, 10_000, seed), SIGMA)
    assert not found.alarm
    assert found.ratio == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize("scale", [0.5, 0.97, 0.995, 1.005, 2.0])
def test_noise_that_is_half_a_percent_off_either_way_is_found(scale):
    found = conforms(draws(scale, 1_500_000), SIGMA)
    assert found.alarm
    assert found.ratio == pytest.approx(scale, rel=0.003)


def test_p_is_uniform_for_honest_noise():
    p = [conforms(draws(1.0, 500, seed), SIGMA).p for seed in range(200)]
    assert kstest(p, "uniform").pvalue > 1e-6


def test_no_noise_at_all_is_found_with_a_handful_of_coordinates():
    found = conforms(np.zeros(12), SIGMA)
    assert found.alarm
    assert found.ratio == 0.0


def test_the_shape_of_the_residuals_does_not_matter():
    noise = draws(1.0, 600)
    assert conforms(noise.reshape(3, 200), SIGMA) == conforms(noise, SIGMA)


def test_the_level_decides_what_is_an_alarm():
    noise = draws(0.97, 3_000)
    assert not conforms(noise, SIGMA).alarm
    assert conforms(noise, SIGMA, alarm=0.1).alarm


@pytest.mark.parametrize(
    ("residuals", "sigma", "alarm", "named"),
    [
        ([], SIGMA, 1e-6, "residuals"),
        ([np.nan], SIGMA, 1e-6, "residuals"),
        ([np.inf], SIGMA, 1e-6, "residuals"),
        ([1.0], 0.0, 1e-6, "sigma_steps"),
        ([1.0], np.nan, 1e-6, "sigma_steps"),
        ([1.0], SIGMA, 0.0, "alarm"),
        ([1.0], SIGMA, 1.0, "alarm"),
    ],
)
def test_what_cannot_be_compared_is_refused(residuals, sigma, alarm, named):
    with pytest.raises(ValueError, match=named):
        conforms(residuals, sigma, alarm)

"""Roots: SciPy's, bit for bit, without loading its optimisers."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from cslr.privacy.accounting import brentq, gaussian_delta

FUNCTIONS = (
    lambda x: math.exp(x) - 5.0,
    lambda x: x**3 - 2.0 * x - 5.0,
    lambda x: math.atan(x - 1.0) + 1e-3 * x,
    lambda x: (x - 1.25) ** 3 + x - 1.25,
    lambda x: math.copysign(math.sqrt(abs(x - 0.3)), x - 0.3),
    lambda x: 1.0 if x > 1 / 3 else -1.0,
    lambda x: x - 0.5,
)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("xtol", [1e-13, 1e-6, 0.1])
def test_a_root_is_scipys_to_the_last_bit(f, xtol):
    for low, high in ((-4.0, 6.0), (-1.0, 2.5), (3.75, -7.5)):
        assert brentq(f, low, high, xtol=xtol) == optimize.brentq(f, low, high, xtol=xtol)


@given(st.floats(0.05, 20.0), st.floats(-9.0, -1.0))
def test_so_is_the_epsilon_of_a_gaussian(mu, log_delta):
    delta = 10.0**log_delta
    if gaussian_delta(mu, 0.0) > delta:

        def excess(epsilon):
            return gaussian_delta(mu, epsilon) - delta

        high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1.0
        assert brentq(excess, 0.0, high, 1e-13) == optimize.brentq(excess, 0.0, high, xtol=1e-13)


def test_a_zero_at_an_end_is_a_root():
    assert brentq(lambda x: x - 1.0, 1.0, 4.0) == 1.0
    assert brentq(lambda x: x - 4.0, 1.0, 4.0) == 4.0


def test_ends_of_one_sign_are_refused():
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x * x + 1.0, -1.0, 1.0)


def test_a_root_that_is_not_found_in_a_hundred_steps_is_an_error_as_in_scipy():
    with pytest.raises(ValueError, match="no root of f was found in 100 steps"):
        brentq(lambda x: (x - 1.25) ** 5, -4.0, 6.0, xtol=1e-13)
    with pytest.raises(RuntimeError, match="Failed to converge after 100"):
        optimize.brentq(lambda x: (x - 1.25) ** 5, -4.0, 6.0, xtol=1e-13)


def test_planning_loads_no_optimiser():
    program = "import sys, cslr.privacy.plan; print('scipy.optimize' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"

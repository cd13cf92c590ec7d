"""Rényi costs against a quadrature by another hand, at whole and at fractional orders."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from cslr.privacy.accounting import RDP_ORDERS, rdp_epsilon
from cslr.privacy.renyi import renyi_costs

DELTA = 1e-5


def quadrature(sigma: float, q: float, order: float) -> float:
    """log E[((1 − q) + q e^((2x − 1) / 2σ²))^α] / (α − 1), x ~ N(0, σ²), in 25 digits."""
    with mpmath.workdps(25):
        s, rate, power = mpmath.mpf(sigma), mpmath.mpf(q), mpmath.mpf(order)

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * s**2))
            return mpmath.npdf(x, 0, s) * ratio**power

        around = [-12 * s, 0, power / 2, power, power + 12 * s]
        return float(mpmath.log(mpmath.quad(integrand, around)) / (power - 1))


@pytest.mark.parametrize("order", [1.02, 2, 2.7, 7.3, 40])
@pytest.mark.parametrize(("sigma", "q"), [(1.45, 0.3), (3.0, 0.9), (10.0, 0.01)])
def test_costs_agree_with_a_quadrature_to_nine_digits(order, sigma, q):
    (cost,) = renyi_costs(sigma, q, [order])
    assert cost == pytest.approx(quadrature(sigma, q, order), rel=1e-9)


@pytest.mark.parametrize(("sigma", "q"), [(0.05, 0.3), (0.5, 0.01), (1.45, 0.3), (100.0, 1e-3)])
def test_costs_grow_with_the_order_without_a_step_between_whole_and_fractional_ones(sigma, q):
    """Whole orders are a sum and others an integral: between neighbours nothing may show."""
    orders = np.array([1.5, 1.999999, 2.0, 2.000001, 6.999999, 7.0, 7.000001, 8.0])
    costs = renyi_costs(sigma, q, orders.tolist())
    assert (np.diff(costs) > 0).all()
    assert costs[2] == pytest.approx((costs[1] + costs[3]) / 2, rel=1e-9)
    assert costs[5] == pytest.approx((costs[4] + costs[6]) / 2, rel=1e-9)


def test_a_round_with_everybody_is_a_gaussian():
    np.testing.assert_allclose(renyi_costs(2.0, 1.0, [1.5, 2, 64]), [1.5 / 8, 2 / 8, 64 / 8])


@pytest.mark.parametrize("order", [1.3, 2.0, 30.0])
def test_almost_everybody_is_almost_a_gaussian(order):
    """The limit from below: no jump where the formula changes."""
    (below,), (full,) = renyi_costs(1.45, 1 - 1e-9, [order]), renyi_costs(1.45, 1.0, [order])
    assert full * (1 - 1e-6) < below < full


def test_a_tiny_cost_keeps_its_digits():
    """For small q, D_α is α q² (e^(1/σ²) − 1) / 2 to first order: 10⁻¹⁴ beside a moment of one."""
    sigma, q = 30.0, 3e-6
    for order in (1.1, 2.0, 3.5):
        (cost,) = renyi_costs(sigma, q, [order])
        assert cost == pytest.approx(order * q**2 * math.expm1(sigma**-2) / 2, rel=1e-4)


def test_every_order_is_finite_even_where_moments_are_beyond_floats():
    """e^((512² − 512) / 2σ²) has millions of digits at the least σ that is ever calibrated."""
    orders = [1.02, 21.9, 512]
    costs = renyi_costs(0.05, 0.3, orders)
    expected = [
        order / (2 * 0.05**2) - order * math.log(1 / 0.3) / (order - 1) for order in orders[1:]
    ]
    assert np.isfinite(costs).all()
    np.testing.assert_allclose(costs[1:], expected, rtol=1e-9)


@pytest.mark.parametrize("orders", [[1.0], [2.0, 0.5], [math.nan]])
def test_an_order_of_one_or_less_is_refused(orders):
    with pytest.raises(ValueError, match="orders must be greater than 1"):
        renyi_costs(1.0, 0.3, orders)


def test_rounds_add_up():
    orders = RDP_ORDERS[::40]
    mixed = [(1.45, 0.3)] * 3 + [(2.0, 1.0)]
    costs = 3 * renyi_costs(1.45, 0.3, orders) + renyi_costs(2.0, 1.0, orders)
    classic = min(
        float(cost) + math.log(1 / DELTA) / (order - 1)
        for order, cost in zip(orders, costs, strict=True)
    )
    assert rdp_epsilon(mixed, DELTA, orders, classic=True) == pytest.approx(classic, rel=1e-12)
    assert rdp_epsilon(mixed, DELTA, orders) < classic

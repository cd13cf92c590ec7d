"""ε against independent computations, and the rules by which charges add up."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from cslr.privacy.accounting import (
    ADVERSARIES,
    RDP_ORDERS,
    SCOPES,
    Charge,
    epsilon_of,
    gaussian_delta,
    gaussian_epsilon,
    pld_epsilon,
    rdp_epsilon,
)

DELTA = 1e-5
FAST = 1e-3  # interval of the privacy losses: ε is still good to five digits
PAPER_ORDERS = range(2, 65)


def replay(*sigmas: float | None, q: float = 1.0) -> list[Charge]:
    """One release per round."""
    return [Charge(f"task {t}", t, "replay", sigma, q) for t, sigma in enumerate(sigmas)]


# -- the closed form -----------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.3, 1.0, 2.76, 10.0, 60.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 4.0, 20.0, 500.0])
def test_delta_agrees_with_fifty_digits(mu, epsilon):
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@settings(deadline=None)
@given(st.floats(1e-3, 50), st.floats(-12, -1).map(lambda power: 10.0**power))
def test_epsilon_is_the_smallest_that_keeps_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon >= 0
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize(("sigma", "count"), [(5.0, 1), (2.65, 4), (1.45, 7), (0.8, 2)])
def test_the_closed_form_is_the_pld_at_full_participation(sigma, count):
    closed = epsilon_of(replay(*[sigma] * count), DELTA, "public")
    assert pld_epsilon([(sigma, 1.0)] * count, DELTA, 1e-4) == pytest.approx(closed, rel=1e-6)


def test_no_signal_costs_nothing():
    assert gaussian_epsilon(0.0, DELTA) == 0
    assert gaussian_epsilon(1e-6, DELTA) == 0  # δ alone covers it


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_wrong_delta_is_refused_by_every_accountant(delta):
    for accountant in (pld_epsilon, rdp_epsilon):
        with pytest.raises(ValueError, match="delta must lie strictly"):
            accountant([(1.0, 0.5)], delta)
    with pytest.raises(ValueError, match="delta must lie strictly"):
        gaussian_epsilon(1.0, delta)


# -- sampling ------------------------------------------------------------------------------------


def sampled_epsilon(sigma: float, q: float, delta: float) -> float:
    """One round by hand, in both directions: hockey-stick of (1 − q) N(0) + q N(1) and N(0)."""

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    def tails(epsilon: float, sign: int) -> float:
        # e^loss = 1 − q + q e^((2x − 1) / 2σ²) exceeds e^(±ε) beyond x
        over = (math.exp(sign * epsilon) - 1 + q) / q
        if over <= 0:
            return 0.0
        x = sigma**2 * math.log(over) + 0.5
        mixed_above = (1 - q) * normal(-x / sigma) + q * normal((1 - x) / sigma)
        if sign > 0:
            return mixed_above - math.exp(epsilon) * normal(-x / sigma)
        return normal(x / sigma) - math.exp(epsilon) * (1 - mixed_above)

    return float(brentq(lambda e: max(tails(e, 1), tails(e, -1)) - delta, 0, 100, xtol=1e-12))


@pytest.mark.parametrize(("sigma", "q"), [(1.45, 0.3), (0.725, 0.3), (3.0, 0.9), (0.6, 0.01)])
def test_one_sampled_round_agrees_with_the_formula_written_out(sigma, q):
    expected = sampled_epsilon(sigma, q, DELTA)
    assert pld_epsilon([(sigma, q)], DELTA) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("sigma", "q", "count"), [(1.45, 0.3, 4), (3.0, 0.1, 200), (0.9, 1.0, 3)])
def test_renyi_is_never_below_pld(sigma, q, count):
    rounds = [(sigma, q)] * count
    tight = pld_epsilon(rounds, DELTA, FAST)
    loose = rdp_epsilon(rounds, DELTA)
    assert tight < loose < 1.4 * tight
    assert loose <= rdp_epsilon(rounds, DELTA, PAPER_ORDERS)
    assert rdp_epsilon(rounds, DELTA, PAPER_ORDERS) < rdp_epsilon(
        rounds, DELTA, PAPER_ORDERS, classic=True
    )


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.45, 10.0])
def test_the_renyi_orders_do_not_end_where_the_optimum_is(sigma):
    """With the paper's orders 2..64 the optimum of a costly plan sits at the edge."""
    costs = {
        order: rdp_epsilon([(sigma, 1.0)], DELTA, [order], classic=True) for order in RDP_ORDERS
    }
    best = min(costs, key=costs.__getitem__)
    assert RDP_ORDERS[0] < best < RDP_ORDERS[-1]


def test_a_coarser_pld_is_never_optimistic():
    costs = [pld_epsilon([(1.45, 0.3)] * 4, DELTA, interval) for interval in (1e-4, 1e-3, 1e-2)]
    assert costs[0] < costs[1] < costs[2] < 1.001 * costs[0]


def test_the_interval_chosen_for_little_noise_is_fine_enough():
    rounds = [(0.73, 0.3)] * 4
    assert pld_epsilon(rounds, DELTA) == pytest.approx(pld_epsilon(rounds, DELTA, 1e-4), rel=1e-6)


# -- what a ledger's charges add up to -----------------------------------------------------------


def test_nothing_charged_is_nothing_spent():
    for adversary in ADVERSARIES:
        for scope in SCOPES:
            assert epsilon_of([], DELTA, adversary, scope) == 0


def test_the_server_sees_everything_while_it_adds_the_noise_itself():
    assert epsilon_of(replay(100.0), DELTA, "server") == math.inf


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("sigmas", [(None,), (2.0, None), (None, 2.0, 2.0)])
def test_one_release_without_noise_makes_epsilon_infinite(adversary, sigmas):
    assert epsilon_of(replay(*sigmas), DELTA, adversary) == math.inf
    assert epsilon_of(replay(*sigmas), DELTA, adversary, cap=1) == math.inf


def test_who_knows_the_roster_is_charged_without_amplification():
    sampled, full = replay(0.9, 0.9, q=0.3), replay(0.9, 0.9)
    assert epsilon_of(sampled, DELTA, "roster") == epsilon_of(full, DELTA, "roster")
    assert epsilon_of(sampled, DELTA, "public") < epsilon_of(sampled, DELTA, "roster")


def test_at_full_participation_the_public_knows_the_roster():
    assert epsilon_of(replay(1.45), DELTA, "public") == epsilon_of(replay(1.45), DELTA, "roster")


@settings(deadline=None)
@given(
    st.lists(st.floats(0.3, 30), min_size=1, max_size=6),
    st.floats(0.3, 30),
    st.floats(1.01, 3),
)
def test_more_releases_cost_more_and_more_noise_costs_less(sigmas, another, factor):
    spent = epsilon_of(replay(*sigmas), DELTA, "roster")
    assert epsilon_of(replay(*sigmas, another), DELTA, "roster") >= spent
    assert epsilon_of(replay(*(s * factor for s in sigmas)), DELTA, "roster") <= spent
    assert epsilon_of(replay(*sigmas), DELTA / 10, "roster") >= spent


def test_sampled_rounds_are_monotone_too():
    def spent(sigma: float = 2.0, q: float = 0.3, count: int = 3, delta: float = DELTA) -> float:
        return pld_epsilon([(sigma, q)] * count, delta, FAST)

    for costs in (
        [spent(sigma=s) for s in (3.0, 2.0, 1.5)],
        [spent(q=q) for q in (0.1, 0.3, 0.8, 1.0)],
        [spent(count=n) for n in (1, 2, 5)],
        [spent(delta=d) for d in (1e-4, 1e-5, 1e-7)],
    ):
        assert all(less < more for less, more in pairwise(costs))


def test_the_order_of_charges_does_not_matter():
    charges = replay(1.0, 2.0, 3.0)
    assert epsilon_of(charges, DELTA, "roster") == epsilon_of(charges[::-1], DELTA, "roster")


def test_gaussians_compose_as_one_gaussian():
    together = epsilon_of(replay(3.0, 4.0), DELTA, "roster")
    assert together == pytest.approx(epsilon_of(replay(2.4), DELTA, "roster"), rel=1e-12)


def test_the_replay_scope_leaves_the_head_out():
    head = Charge("head", 9, "head", 2.0)
    charges = [*replay(2.0), head]
    assert epsilon_of(charges, DELTA, "roster", "replay") == epsilon_of(
        replay(2.0), DELTA, "roster"
    )
    assert epsilon_of(charges, DELTA, "roster", "end_to_end") == epsilon_of(
        replay(2.0, 2.0), DELTA, "roster"
    )
    assert epsilon_of([head], DELTA, "roster", "replay") == 0


def test_a_head_without_noise_leaves_the_replay_scope_finite():
    charges = [*replay(2.0), Charge("pooled training", 0, "head", None)]
    assert epsilon_of(charges, DELTA, "roster", "replay") < math.inf
    assert epsilon_of(charges, DELTA, "roster", "end_to_end") == math.inf


def test_the_cap_counts_only_the_costliest_rounds():
    charges = replay(4.0, 1.0, 2.0)
    for cap, worst in ((1, [1.0]), (2, [1.0, 2.0]), (3, [4.0, 1.0, 2.0])):
        assert epsilon_of(charges, DELTA, "roster", cap=cap) == epsilon_of(
            replay(*worst), DELTA, "roster"
        )
    assert epsilon_of(charges, DELTA, "roster", cap=9) == epsilon_of(charges, DELTA, "roster")


def test_a_cap_counts_rounds_not_the_releases_of_one():
    """A client that takes part in a round takes part in all its releases."""
    pair = [Charge("list", 0, "replay", 2.0), Charge("sum", 0, "replay", 2.0)]
    assert epsilon_of(pair, DELTA, "roster", cap=1) == epsilon_of(pair, DELTA, "roster")


def test_where_rounds_cannot_be_ordered_the_cap_is_not_used():
    charges = [Charge("a", 0, "replay", 0.7, 0.3), Charge("b", 1, "replay", 0.9, 0.9)]
    assert epsilon_of(charges, DELTA, "public", cap=1) == epsilon_of(charges, DELTA, "public")


def test_releases_of_one_round_share_one_coin():
    """Amplifying each of four blocks alone is too cheap: 3.2 instead of 4.8."""
    together = [Charge(f"block {b}", 0, "replay", 1.45, 0.3) for b in range(4)]
    apart = [Charge(f"block {b}", b, "replay", 1.45, 0.3) for b in range(4)]
    shared = epsilon_of(together, DELTA, "public")
    assert shared == pld_epsilon([(1.45 / 2, 0.3)], DELTA)
    assert shared > 1.5 * epsilon_of(apart, DELTA, "public")
    # Without a coin there is nothing to share.
    assert epsilon_of(together, DELTA, "roster") == epsilon_of(apart, DELTA, "roster")


def test_the_same_label_again_is_another_release_with_another_coin():
    twice = [Charge("task 0", 0, "replay", 0.9, 0.3)] * 2
    assert epsilon_of(twice, DELTA, "public") == pld_epsilon([(0.9, 0.3)] * 2, DELTA)


def test_one_round_cannot_have_two_sampling_rates():
    charges = [Charge("a", 3, "replay", 1.0, 0.3), Charge("b", 3, "replay", 1.0, 0.4)]
    with pytest.raises(ValueError, match="round 3 has two different participation rates"):
        epsilon_of(charges, DELTA, "public")


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_charge_with_an_impossible_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be positive"):
        Charge("task 0", 0, "replay", sigma)


@pytest.mark.parametrize("q", [0.0, -0.3, 1.1, math.nan])
def test_a_charge_with_an_impossible_rate_is_refused(q):
    with pytest.raises(ValueError, match="q must lie in"):
        Charge("task 0", 0, "replay", 1.0, q)

"""The paper's noise table as printed, and the ε that it really costs.

Table "accountant": q = 0.30, δ = 1e-5, σ = 3.20 / 1.45 / 0.95 for ε = 1 / 4 / 8, RDP orders 2..64.
The paper does not say how many releases are meant, nor whether the four clipped statistics (means,
second moments, weights, targets; B = 1 each) are one vector or four. No reading gives the table.
"""

from __future__ import annotations

import math

import pytest

from cslr.privacy.accounting import Charge, epsilon_of, gaussian_epsilon, pld_epsilon, rdp_epsilon
from cslr.privacy.plan import Budget, calibrate

Q, DELTA = 0.30, 1e-5
PAPER_SIGMA = {1: 3.20, 4: 1.45, 8: 0.95}
PAPER_ORDERS = range(2, 65)
BLOCKS = 4  # separately clipped statistics: one client moves them by √4 together, so σ/2
ROUNDS = 200  # 50 per task, four tasks
FAST = 1e-3  # interval of privacy losses: good to five digits

# (releases, separate blocks): ε of each σ in the table against someone who does not know the cohort
PUBLIC = {
    (4, 1): {1: 0.839, 4: 2.62, 8: 5.19},
    (7, 1): {1: 1.09, 4: 3.30, 8: 6.48},
    (200, 1): {1: 6.40, 4: 18.9, 8: 37.7},
    (1, 4): {1: 1.37, 4: 4.79, 8: 8.85},
    (200, 4): {1: 16.3, 4: 62.3, 8: 149},
}
# ... and against someone who does
ROSTER = {
    (4, 1): {1: 2.56, 4: 6.38, 8: 10.7},
    (7, 1): {1: 3.52, 4: 8.93, 8: 15.2},
    (200, 4): {1: 75.9, 4: 273, 8: 569},
}
SIGMA_NEEDED = {1: 2.81, 4: 1.11, 8: 0.73}  # four joint releases at q = 0.3


def three_digits(value: float) -> float:
    return float(f"{value:.3g}")


@pytest.mark.parametrize("reading", PUBLIC)
@pytest.mark.parametrize("promised", PAPER_SIGMA)
def test_what_the_table_costs_against_the_public(reading, promised):
    releases, blocks = reading
    joint = PAPER_SIGMA[promised] / math.sqrt(blocks)
    spent = pld_epsilon([(joint, Q)] * releases, DELTA, FAST)
    assert three_digits(spent) == PUBLIC[reading][promised]


@pytest.mark.parametrize("reading", ROSTER)
@pytest.mark.parametrize("promised", PAPER_SIGMA)
def test_what_the_table_costs_against_the_roster(reading, promised):
    releases, blocks = reading
    spent = gaussian_epsilon(math.sqrt(releases * blocks) / PAPER_SIGMA[promised], DELTA)
    assert three_digits(spent) == ROSTER[reading][promised]


@pytest.mark.parametrize("readings", [PUBLIC, ROSTER])
def test_no_reading_gives_the_promised_epsilon_for_all_three(readings):
    for costs in readings.values():
        assert any(abs(spent / promised - 1) > 0.1 for promised, spent in costs.items())


def test_the_ledger_reads_four_blocks_of_a_round_as_one_coin():
    blocks = [Charge(f"block {b}", 0, "replay", PAPER_SIGMA[4], Q) for b in range(BLOCKS)]
    assert three_digits(epsilon_of(blocks, DELTA, "public")) == 4.79


def test_the_papers_own_accountant_says_ninety_three():
    """Four blocks in each of 200 rounds, orders 2..64; the conversion of its Theorem 4: 94."""
    rounds = [(PAPER_SIGMA[4] / math.sqrt(BLOCKS), Q)] * ROUNDS
    assert round(rdp_epsilon(rounds, DELTA, PAPER_ORDERS)) == 93
    assert round(rdp_epsilon(rounds, DELTA, PAPER_ORDERS, classic=True)) == 94


@pytest.mark.parametrize("promised", SIGMA_NEEDED)
def test_the_noise_that_four_joint_releases_really_need(promised):
    plan = calibrate(Budget(promised, DELTA, "public"), releases=4, q=Q)
    assert round(plan.sigma, 2) == SIGMA_NEEDED[promised]
    spent = pld_epsilon([(plan.sigma, Q)] * 4, DELTA, FAST)
    assert 0.995 * promised <= spent <= promised

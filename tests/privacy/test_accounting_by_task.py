"""Tasks of several releases: a cap counts tasks, and only where it is known which cost most."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.privacy.accounting import Charge, epsilon_of, gaussian_epsilon, pld_epsilon

DELTA = 1e-5
FAST = 1e-3  # interval of the privacy losses: ε is still good to five digits


def task(number: int, *rounds: tuple[float, float], coin: int | None = None) -> list[Charge]:
    """A task with a release behind each of some coins (σ, q)."""
    first = 10 * number if coin is None else coin
    return [
        Charge(f"{number}.{i}", first + i, "replay", sigma, q, number)
        for i, (sigma, q) in enumerate(rounds)
    ]


def closed(*sigmas: float) -> float:
    """ε of Gaussians without amplification."""
    return gaussian_epsilon(math.sqrt(sum(sigma**-2 for sigma in sigmas)), DELTA)


def hidden(charges, cap=None) -> float:
    """ε against those who do not know who took part."""
    return epsilon_of(charges, DELTA, "public", cap=cap, interval=FAST)


def test_a_cap_counts_tasks_and_not_their_rounds():
    charges = task(0, (2.0, 1.0), (3.0, 1.0)) + task(1, (2.0, 1.0), (3.0, 1.0))
    assert epsilon_of(charges, DELTA, "roster", cap=1) == closed(2.0, 3.0)
    assert epsilon_of(charges, DELTA, "roster", cap=2) == closed(2.0, 3.0, 2.0, 3.0)


def test_a_round_that_names_no_task_is_one_by_itself():
    charges = [Charge(f"task {t}", t, "replay", 2.0) for t in range(3)]
    assert epsilon_of(charges, DELTA, "roster", cap=2) == closed(2.0, 2.0)


def test_against_the_roster_the_costliest_tasks_are_those_of_most_precision():
    many_small = task(0, *[(3.0, 0.5)] * 4)  # 4/9
    one_large = task(1, (1.6, 0.5))  # 1/2.56, the larger single release
    least = task(2, (4.0, 0.5))
    found = epsilon_of([*one_large, *least, *many_small], DELTA, "roster", cap=1)
    assert found == closed(3.0, 3.0, 3.0, 3.0)


# -- with amplification ----------------------------------------------------------------------------


def test_tasks_that_hold_all_rounds_of_the_next_are_ordered():
    large = task(0, (2.0, 0.3), (2.0, 0.3), (4.0, 1.0))
    small = task(1, (2.0, 0.3), (4.0, 1.0))
    for order in (large + small, small + large):
        assert hidden(order, cap=1) == hidden(large)
    assert hidden(large + small, cap=1) < hidden(large + small)


def test_equal_tasks_are_ordered():
    alike = task(0, (2.0, 0.3), (3.0, 1.0)) + task(1, (2.0, 0.3), (3.0, 1.0))
    assert hidden(alike, cap=1) == hidden(alike[:2])


def test_single_rounds_at_one_rate_are_ordered_by_their_noise():
    charges = [*task(0, (3.0, 0.3)), *task(1, (1.5, 0.3)), *task(2, (2.0, 0.3))]
    assert hidden(charges, cap=2) == pld_epsilon([(1.5, 0.3), (2.0, 0.3)], DELTA, FAST)


@pytest.mark.parametrize(
    "other",
    [
        [(1.5, 0.1), (2.5, 0.3)],  # the same rounds at other rates
        [(1.5, 0.3), (2.5, 0.3)],  # neither holds the other's
        [(1.2, 0.1)],  # one strong round against two weak ones
    ],
)
def test_where_no_task_holds_the_other_the_cap_is_not_used(other):
    charges = task(0, (2.0, 0.3), (2.0, 0.3)) + task(1, *other)
    assert hidden(charges, cap=1) == hidden(charges)


def test_the_roster_can_order_them_all_the_same():
    charges = task(0, (2.0, 0.3), (2.0, 0.3)) + task(1, (1.5, 0.1), (2.5, 0.3))
    capped = epsilon_of(charges, DELTA, "roster", cap=1)
    assert capped == closed(1.5, 2.5) > closed(2.0, 2.0)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([1.5, 2.0, 3.0]), st.sampled_from([0.3, 1.0])),
            min_size=1,
            max_size=2,
        ),
        min_size=2,
        max_size=3,
    ),
    st.sampled_from(["roster", "public"]),
)
@settings(max_examples=12, deadline=None)
def test_a_capped_cost_is_never_below_that_of_any_choice_of_tasks(tasks, adversary):
    """Whatever tasks a client picked, it costs no more than is charged."""
    each = [task(number, *rounds) for number, rounds in enumerate(tasks)]
    together = [charge for charges in each for charge in charges]
    capped = epsilon_of(together, DELTA, adversary, cap=1, interval=FAST)
    for charges in each:
        alone = epsilon_of(charges, DELTA, adversary, interval=FAST)
        assert capped >= alone * (1 - 1e-6)


# -- coins -----------------------------------------------------------------------------------------


def test_four_statistics_behind_one_coin_are_amplified_once():
    four = [Charge(f"task 0 {i}", 0, "replay", 4.0, 0.3, 0) for i in range(4)]
    assert hidden(four) == pld_epsilon([(2.0, 0.3)], DELTA, FAST)
    apart = [Charge(f"task 0 {i}", i, "replay", 4.0, 0.3, 0) for i in range(4)]
    assert hidden(apart) == pld_epsilon([(4.0, 0.3)] * 4, DELTA, FAST) != hidden(four)


def test_a_cap_holds_for_replay_and_updates_of_a_task_together():
    def both(number: int) -> list[Charge]:
        return [
            Charge(f"task {number}", 2 * number, "replay", 2.0, 1.0, number),
            Charge(f"task {number} update 0", 2 * number + 1, "head", 3.0, 1.0, number),
        ]

    charges = both(0) + both(1)
    assert epsilon_of(charges, DELTA, "roster", cap=1) == closed(2.0, 3.0)
    assert epsilon_of(charges, DELTA, "roster", "replay", cap=1) == closed(2.0)

"""Canaries: clients at the bound who can be told apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.audit.canaries import CohortWithCanaries, draw_canaries, surest
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Budget
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.protocol.ports import Ask
from cslr.seeding import Seeds


def exact(summed):
    federation = Federation("test", Budget(math.inf), "simulated")
    ledger = Ledger.in_memory(federation, SeededKeys(Seeds(0)))
    return release(summed, Charge("all", 0, "replay", None), ledger).value


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_every_canary_speaks_in_as_many_tasks_as_it_may(cap):
    drawn = draw_canaries(20, [40, 50, 60], cap, np.random.default_rng(0))
    often = np.bincount(np.concatenate(drawn.speakers), minlength=20)
    assert (often == cap).all()
    np.testing.assert_allclose(np.diagonal(drawn.overlaps), cap)


def test_canaries_are_at_right_angles_while_there_is_room():
    drawn = draw_canaries(60, [30, 30], 1, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.overlaps, np.eye(60), atol=1e-12)


def test_more_canaries_than_coordinates_are_still_told_apart_as_far_as_possible():
    rng = np.random.default_rng(0)
    drawn = draw_canaries(60, [30], 1, rng)
    assert np.linalg.matrix_rank(drawn.overlaps) == 30
    coins = rng.random(60) < 0.5
    scores = drawn.scores(drawn.overlaps @ (coins - 0.5), 0.01)
    assert surest(scores, 60, coins) > 40


def test_without_noise_every_canary_is_found():
    rng = np.random.default_rng(0)
    drawn = draw_canaries(50, [64, 64], 2, rng)
    coins = rng.random(50) < 0.5
    sums = [drawn.directions[task][coins].sum(axis=0) - drawn.half(task) for task in range(2)]
    assert surest(drawn.scores(drawn.projections(sums), 0.01), 50, coins) == 50


def test_only_canaries_that_are_in_send_anything():
    drawn = draw_canaries(10, [16], 1, np.random.default_rng(0))
    coins = np.arange(10) % 3 == 0
    assert drawn.sent(0, coins, 0.5).shape == (4, 16)
    np.testing.assert_array_equal(drawn.sent(0, coins & False, 0.5), np.zeros((1, 16)))


def test_a_canary_sends_too_much_and_its_clip_leaves_just_the_bound():
    drawn = draw_canaries(10, [16], 1, np.random.default_rng(0))
    sent = drawn.sent(0, np.arange(10) == 4, 0.5)
    assert np.linalg.norm(sent) > 1.9
    left = exact(plain_sum([bound(sent, Grid(0.5))]))
    np.testing.assert_allclose(left, 0.5 * drawn.directions[0][4], atol=1e-6)
    assert 0.5 * (1 - 1e-5) < np.linalg.norm(left) <= 0.5


def test_the_sum_is_that_of_the_clients_and_the_canaries(world):
    cohort = world.population.cohort(0, np.ones(world.population.count, dtype=bool), 2)
    grid, extra = Grid(0.5), np.eye(3, 8) * 9

    class FirstRows:
        def updates(self, examples):
            return examples.z[:, 0, :8]

    ask = Ask("task 0 update 0", "update", FirstRows(), grid)
    honest = exact(cohort.total(ask))
    everybody = exact(CohortWithCanaries(cohort, extra, grid).total(ask))
    np.testing.assert_allclose(everybody - honest, np.repeat([0.5, 0.0], [3, 5]), atol=1e-6)


def test_the_surest_guesses_are_counted():
    scores = np.array([5.0, -4.0, 3.0, -0.1, 0.2])
    included = np.array([True, True, True, False, False])
    assert surest(scores, 3, included) == 2
    assert surest(scores, 5, included) == 3

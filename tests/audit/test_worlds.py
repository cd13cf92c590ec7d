"""Two worlds: an honest mechanism keeps its claim, a broken one is found out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.audit.worlds import two_worlds
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import bound, plain_sum
from cslr.seeding import Seeds

SURE = 1 - 5e-8  # twenty honest audits alarm with probability below 1e-6


@pytest.fixture(scope="module")
def plan():
    return calibrate(Budget(4.0), releases=2)


def gaussian(scale=1.0, clipped=True, same=False, keeps=1.0):
    """A mechanism that may be broken, with plain noise so that it is fast."""
    rng = np.random.default_rng(5)
    once = rng.standard_normal(3)

    def publish(vectors, grid, charge, ledger):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        sent = vectors / np.maximum(norms / grid.bound, 1.0) if clipped else vectors
        noise = once if same else rng.standard_normal(3)
        return keeps * sent.sum(axis=0) + scale * charge.sigma * noise

    return publish


@pytest.mark.parametrize("seed", range(20))
def test_the_mechanism_keeps_its_claim(plan, seed):
    found = two_worlds(plan, 40, Seeds(seed), SURE)
    assert found.holds
    assert found.claimed == pytest.approx(4.0, abs=1e-6)
    assert found.runs == found.guesses == 40


def test_half_the_noise_of_the_real_mechanism_is_found_out(plan, monkeypatch):
    import cslr.privacy.mechanism as mechanism

    real = mechanism.noise_in_steps
    monkeypatch.setattr(mechanism, "noise_in_steps", lambda *a: real(*a) / 2)
    assert not two_worlds(plan, 150, Seeds(1)).holds


def test_a_plain_gaussian_keeps_the_claim_closely(plan):
    found = two_worlds(plan, 1500, Seeds(1), SURE, mechanism=gaussian())
    assert 0.5 * found.claimed < found.lower <= found.claimed


@pytest.mark.parametrize(
    "broken",
    [{"scale": 0.5}, {"clipped": False}, {"same": True}],
    ids=["half the noise", "no clip", "the same noise in two releases"],
)
def test_a_broken_mechanism_is_found_out(plan, broken):
    assert not two_worlds(plan, 400, Seeds(1), SURE, mechanism=gaussian(**broken)).holds


def test_a_mechanism_that_ignores_its_clients_shows_nothing(plan):
    assert two_worlds(plan, 500, Seeds(1), SURE, mechanism=gaussian(keeps=0.0)).lower == 0.0


def test_a_mechanism_without_noise_is_found_out(plan):
    def open_(vectors, grid, charge, ledger):
        everything = Federation("open", Budget(math.inf), "simulated")
        scratch = Ledger.in_memory(everything, SeededKeys(Seeds(0)))
        return release(
            plain_sum([bound(vectors, grid)]), replace(charge, sigma=None), scratch
        ).value

    found = two_worlds(plan, 100, Seeds(1), mechanism=open_)
    assert found.correct == 100
    assert not found.holds


def test_a_plan_without_noise_claims_nothing_and_keeps_it():
    found = two_worlds(calibrate(Budget(math.inf), 2), 20, Seeds(1))
    assert found.claimed == math.inf
    assert found.correct == 20
    assert found.holds


@pytest.mark.parametrize(
    ("schedule", "cap", "count"),
    [(Schedule(), 3, 3), (Schedule(), 1, 1), (Schedule(4, 1, 2), 2, 14)],
)
def test_everything_a_client_may_contribute_to_is_released(schedule, cap, count):
    plan = calibrate(Budget(4.0), 3, cap=cap, schedule=schedule)
    seen = []

    def spy(vectors, grid, charge, ledger):
        seen.append(charge)
        return np.zeros(3)

    two_worlds(plan, 1, mechanism=spy)
    assert len(seen) == 2 * count
    cost = sum(charge.sigma**-2 for charge in seen[:count])
    whole = calibrate(Budget(4.0), 1).sigma ** -2
    assert cost == pytest.approx(whole, rel=1e-6)


def test_lists_and_updates_run_through_the_real_mechanism_too():
    plan = calibrate(Budget(4.0), 1, schedule=Schedule(replay=1, lists=1, head=1))
    assert two_worlds(plan, 40, Seeds(2), SURE).holds


def test_the_claim_of_a_sampled_plan_counts_no_amplification():
    plan = calibrate(Budget(4.0), 1, q=0.5)
    assert two_worlds(plan, 5, Seeds(2)).claimed == plan.epsilon("roster") == pytest.approx(4.0)


def test_every_run_draws_noise_of_its_own_and_a_seed_repeats_it(plan):
    again = [two_worlds(plan, 30, Seeds(seed)).correct for seed in (3, 3, 4, 5)]
    assert again[0] == again[1]
    assert len(set(again)) > 1


def test_no_runs_are_refused(plan):
    with pytest.raises(ValueError, match="runs"):
        two_worlds(plan, 0)

"""One run with canaries through the real round."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import cslr.privacy.mechanism as mechanism
from cslr.audit.pipeline import one_run
from cslr.audit.synthetic import synthetic_context
from cslr.errors import ConfigError
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.seeding import Seeds

SURE = 1 - 5e-8  # twenty honest audits alarm with probability below 1e-6


def context_of(seed: int = 0, epsilon: float = 4.0, tasks: int = 2, cap: int = 1, labels: int = 3):
    plan = calibrate(Budget(epsilon), tasks, cap=cap)
    return synthetic_context(plan, clients=5, labels=labels, dimension=20, seeds=Seeds(seed))


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_pipeline_keeps_its_claim(seed):
    found = one_run(context_of(seed), 100, SURE)
    for bound in (found.white, found.black):
        assert bound.holds
        assert bound.claimed == pytest.approx(4.0, abs=1e-6)
        assert bound.canaries == 100


def test_an_honest_pipeline_gives_something_away():
    found = one_run(context_of(1, epsilon=8.0, labels=8), 300)
    assert found.white.lower > 1.0
    assert 0.0 < found.white.any_noise < found.white.lower


def test_a_quarter_of_the_noise_is_found_out(monkeypatch):
    context, real = context_of(labels=8), mechanism.noise_in_steps
    monkeypatch.setattr(mechanism, "noise_in_steps", lambda *a: real(*a) / 4)
    assert not one_run(context, 300).white.holds


def test_without_noise_every_guess_is_right_and_nothing_was_claimed():
    found = one_run(context_of(epsilon=math.inf), 100).white
    assert found.correct == found.guesses
    assert found.claimed == math.inf
    assert found.holds


def test_the_rounds_are_paid_for_as_the_plan_says():
    context = context_of(tasks=3, cap=2)
    one_run(context, 40)
    assert [charge.sigma for charge in context.ledger.charges] == [context.plan.sigma] * 3
    assert context.ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)


def test_how_many_are_guessed_about_does_not_follow_from_the_outcome(monkeypatch):
    honest = one_run(context_of(3), 100).white.guesses
    real = mechanism.noise_in_steps
    monkeypatch.setattr(mechanism, "noise_in_steps", lambda *a: real(*a) / 100)
    assert one_run(context_of(3), 100).white.guesses == honest


def test_by_default_canaries_have_room():
    found = one_run(context_of(tasks=2, cap=2))
    assert found.coordinates == 2 * 3 * 22
    assert found.white.canaries == 66


def test_the_same_seed_repeats_an_audit_and_another_coin_is_another_audit():
    first, again = one_run(context_of(2), 60), one_run(context_of(2), 60)
    other = one_run(context_of(2), 60, seeds=Seeds(99))
    assert first == again
    assert (first.white.correct, first.black.correct) != (other.white.correct, other.black.correct)


def test_the_small_world_of_a_real_run_can_be_audited(make_context):
    context = make_context(epsilon=4.0)
    assert one_run(context, 30, SURE).white.holds


@pytest.mark.parametrize("change", [{"release": "list"}, {"release": "paper"}])
def test_what_does_not_release_one_sum_is_refused(change):
    context = context_of()
    replay = context.replay.model_copy(update=change)
    with pytest.raises(ConfigError, match="mechanism"):
        one_run(replace(context, replay=replay), 40)


def test_a_plan_of_more_releases_is_refused():
    context = context_of()
    plan = calibrate(Budget(4.0), 2, schedule=Schedule(replay=1, head=3))
    with pytest.raises(ConfigError, match="mechanism"):
        one_run(replace(context, plan=plan), 40)


def test_one_canary_is_refused():
    with pytest.raises(ConfigError, match="canaries"):
        one_run(context_of(), 1)


def test_made_up_clients_hold_rows_of_every_task():
    population = context_of().clients
    held = {(int(c), int(t)) for c, t in zip(population.clients, population.tasks, strict=True)}
    assert held == {(c, t) for c in range(5) for t in range(2)}
    np.testing.assert_allclose(np.linalg.norm(population.z, axis=1), 1.0)

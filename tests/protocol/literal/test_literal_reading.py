"""Sums read as the paper has it, and a whole round without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.numerics.linear_algebra import folded
from cslr.paper_constants import PaperConstants
from cslr.privacy.plan import Budget, Schedule, calibrate, with_noise
from cslr.protocol.head import Family
from cslr.protocol.literal.reading import _targets, written_modes
from cslr.protocol.messages import with_bound
from cslr.protocol.round import Session
from cslr.protocol.step4_aggregate.contribution import Statistics

R, K = 4, 2
FIVE = Schedule(replay=4, lists=1)


def sums(cohort: float, mean: np.ndarray, covariance: np.ndarray, share: float) -> Statistics:
    """Of a cohort of which a share has each mode, with these moments and logits (1, −1, 9)."""
    second = covariance + mean[:, :, None] * mean[:, None, :]
    n = share * cohort
    logits = np.tile([1.0, -1.0, 9.0], (K, 1))
    return Statistics(np.full(K, 0.5 * n), n * mean, n * folded(second), n * logits)


def read(division: str, share: float, **constants):
    mean = np.array([[0.5, 0, 0, 0], [0, 0.25, 0, 0]])
    covariance = np.stack([0.1 * np.eye(R), 0.2 * np.eye(R)])
    given = sums(10.0, mean, covariance, share)
    if division == "weights":  # statistics weighted by π = 0.5
        given = Statistics(
            given.weight, *(0.5 * each for each in (given.offset, given.second, given.target))
        )
    paper = PaperConstants(division=division, **constants)
    return (
        mean,
        covariance,
        written_modes(given, 10.0, paper, Family("classification", 3), [(0, 1)] * K),
    )


@pytest.mark.parametrize(
    ("division", "share"), [("cohort", 1.0), ("weights", 1.0), ("weights", 0.3)]
)
def test_moments_come_back(division, share):
    mean, covariance, found = read(division, share)
    np.testing.assert_allclose(found.gaussians.mean, mean)
    np.testing.assert_allclose(found.gaussians.covariance, covariance, atol=1e-12)
    np.testing.assert_allclose(found.weights, 0.5)
    assert found.floored == 0


def test_intents_keep_their_frequencies_and_have_none_that_their_modes_cannot_be_about():
    released = np.array([[0.3, 0.9, 0.4], [1.2, -0.1, 0.5]])
    family, groups = Family("intents", 3), [(0, 1), (0, 2)]
    found = _targets(released, PaperConstants(), family, groups)
    np.testing.assert_allclose(found, [[0.3, 0.9, 0.0], [1.0, 0.0, 0.5]])


def test_clients_without_a_mode_pull_it_to_the_centre_as_the_formula_has_it():
    mean, _, found = read("cohort", 0.3)
    np.testing.assert_allclose(found.gaussians.mean, 0.3 * mean)


def test_logits_are_a_softmax_over_the_labels_of_the_task():
    for scale in (1.0, 3.0):
        _, _, found = read("cohort", 1.0, logit_scale=scale)
        odds = math.exp(2 * scale)
        np.testing.assert_allclose(found.targets[0], [odds / (1 + odds), 1 / (1 + odds), 0.0])


def test_eigenvalues_are_raised_to_the_floor():
    _, _, found = read("cohort", 1.0, lambda_min=0.15)
    values = np.linalg.eigvalsh(found.gaussians.covariance)
    np.testing.assert_allclose(values[0], 0.15)
    np.testing.assert_allclose(values[1], 0.2)
    assert found.floored == 0.5


@pytest.fixture
def session(world, make_ledger, make_drawer):
    def make(plan, **constants):
        agreement = world.agreement(
            release="list",
            clipping="separate",
            second_moments="full",
            pooled=True,
            sub_modes=4,
            list_size=4,
            paper=PaperConstants(**constants),
        )
        agreement = with_bound(agreement, world.public, 2)
        return Session(agreement, plan, make_ledger(), make_drawer())

    return make


@pytest.mark.parametrize(
    "constants",
    [
        {"division": "weights"},
        {"division": "weights", "canonicalise": "assign"},
        {"division": "weights", "aggregate": "select"},
        {},
    ],
)
def test_a_round_without_noise_finds_modes_where_the_rows_are(world, session, constants):
    plan = calibrate(Budget(math.inf), 1, schedule=FIVE)
    made = session(plan, **constants)
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), 2)
    made.release(0, (0, 1), cohort)
    replay = made.replay()
    assert replay.covariance.shape == (4, 8, 8)
    np.testing.assert_allclose(replay.weights.sum(), 1.0)
    rows = made.agreement.space.into(world.population.z[world.population.tasks == 0])
    if constants:
        mixed = replay.weights @ replay.mean
        np.testing.assert_allclose(mixed, rows.mean(axis=0), atol=0.25)
        apart = np.linalg.norm(rows[:, None] - replay.mean, axis=-1).min(axis=1)
        assert np.median(apart) < np.median(np.linalg.norm(rows, axis=1))
    assert [each.label for each in made.ledger.charges] == [
        "task 0 list",
        *(f"task 0 {name}" for name in ("weights", "means", "seconds", "targets")),
    ]


def test_the_papers_sigma_is_charged_at_its_own_price():
    """Five Gaussians of σ = 1.45 in each of four tasks, against the roster."""
    plan = with_noise(calibrate(Budget(math.inf), 4, 0.3, schedule=FIVE), 1.45)
    assert plan.sigma == pytest.approx(1.45)
    same = calibrate(Budget(plan.budget.epsilon), 4, 0.3, schedule=FIVE)
    assert same.sigma == pytest.approx(1.45, rel=1e-6)
    assert plan.budget.epsilon > 4 * 4
    assert plan.epsilon("roster") == pytest.approx(plan.budget.epsilon)

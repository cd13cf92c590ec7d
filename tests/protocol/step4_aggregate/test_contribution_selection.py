"""Selection: each entry votes for the nearest candidate, and the noisy votes have a winner."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.methods.cslr import agree, stages
from cslr.protocol.step4_aggregate.contribution import elected, votes

R = 5


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31))
@settings(deadline=None)
def test_every_entry_has_one_vote_for_the_nearest_candidate(b, entries, offered, seed):
    rng = np.random.default_rng(seed)
    mean, candidates = rng.standard_normal((b, entries, R)), rng.standard_normal((offered, R))
    found = votes(mean, candidates)
    assert found.shape == (b, entries, offered)
    np.testing.assert_array_equal(found.sum(axis=-1), 1.0)
    nearest = np.linalg.norm(mean[..., None, :] - candidates, axis=-1).argmin(axis=-1)
    np.testing.assert_array_equal(found.argmax(axis=-1), nearest)


def test_a_candidate_votes_for_itself():
    candidates = np.random.default_rng(0).standard_normal((6, R))
    np.testing.assert_array_equal(votes(candidates[None], candidates)[0], np.eye(6))


def test_the_winner_has_most_votes_among_the_candidates_of_its_own_group():
    candidates = np.random.default_rng(0).standard_normal((2, 3, R))
    ballots = np.array([[5.0, 9.0, -1.0], [0.2, 0.1, 0.0], [-3.0, -2.0, -1.0]])
    found = elected(ballots, candidates, np.array([0, 1, 1]))
    np.testing.assert_array_equal(found, candidates[[0, 1, 1], [1, 0, 2]])


def test_ties_go_to_the_lower():
    candidates = np.random.default_rng(0).standard_normal((1, 3, R))
    found = elected(np.array([[2.0, 2.0, 2.0]]), candidates, np.array([0]))
    np.testing.assert_array_equal(found, candidates[0, :1])


def test_noise_that_changes_no_winner_changes_nothing():
    """Noise is added to the votes and not to the selected mean."""
    rng = np.random.default_rng(1)
    candidates = rng.standard_normal((1, 4, R))
    ballots = np.array([[40.0, 2.0, 3.0, 1.0]])
    noisy = ballots + 3.0 * rng.standard_normal(ballots.shape)
    np.testing.assert_array_equal(
        elected(noisy, candidates, np.array([0])), elected(ballots, candidates, np.array([0]))
    )


# -- in a round ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [math.inf, 8.0])
def test_votes_take_the_place_of_offsets_and_cost_what_they_cost(make_context, world, epsilon):
    context = make_context(epsilon, release="select", sub_modes=2)
    agreement = agree(context)
    groups, offered, r = agreement.modes.candidates.shape
    assert (groups, r) == (4, 8)
    assert agreement.layout(4).dimension == offered
    assert 0 < agreement.bounds[0] < 3
    *_, last = stages(context)
    assert last().scores(world.test_z).shape == (80, 4)
    spent = context.ledger.epsilon("end_to_end", "roster")
    assert spent == pytest.approx(epsilon, abs=1e-6)


def test_without_noise_a_mean_stands_near_a_candidate_that_was_elected(make_context):
    context = make_context(release="select")
    agreement = agree(context)
    *_, last = stages(context)
    mean = last().artefacts["replay"]["mean"]
    for label in range(4):
        apart = np.linalg.norm(agreement.modes.candidates[label] - mean[label], axis=1)
        assert apart.min() < 0.1  # it is shrunk a little, as every mean is

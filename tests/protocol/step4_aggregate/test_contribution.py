"""A client's contribution: one vector, its own moments, whatever the list looks like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.numerics.mixture import Gaussians, Mixture
from cslr.privacy.values import _SEAL
from cslr.protocol.round import contribute, statistics_of, sum_ask
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import (
    MOST_ROWS,
    Layout,
    SecondMoments,
    Statistics,
    joined,
    mode_statistics,
)

SPREAD = np.array([2.0, 1.0, 0.5])


def some_lists(b: int = 2, size: int = 4, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    gaussians = Gaussians(rng.standard_normal((b, size, 3)), rng.uniform(0.1, 1.0, (b, size, 3)))
    return Mixture(rng.dirichlet(np.ones(size), size=b), gaussians)


PROTOTYPES = Gaussians(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.tile(SPREAD, (2, 1)))
IDS = np.array([[0, 1, 1, 0], [1, 1, 1, 1]])
COUNTS = np.array([4, 20])
OUTPUTS = 5


def some_targets(b: int = 2, size: int = 4, seed: int = 1) -> np.ndarray:
    """(b, L, outputs) the candidates' targets minus the usual one."""
    return np.random.default_rng(seed).uniform(-1, 1, (b, size, OUTPUTS))


def statistics(lists, ids, counts, seconds, weight_floor, targets=None) -> Statistics:
    """Those of the prototypes above; without targets as classification has it."""
    none = np.zeros((*lists.weights.shape, 0))
    return mode_statistics(
        lists,
        ids,
        counts,
        none if targets is None else targets,
        PROTOTYPES,
        SecondMoments(SPREAD, seconds),
        weight_floor,
    )


def blocks(of: Statistics) -> list[np.ndarray]:
    return [of.weight, of.offset, of.second, of.target]


def test_statistics_are_those_of_the_formula():
    lists, targets = some_lists(), some_targets()
    found = statistics(lists, IDS, COUNTS, 3, 0.0, targets)
    for i, j in np.ndindex(2, 2):
        weight, offset, second, target = 0.0, np.zeros(3), np.zeros(3), np.zeros(OUTPUTS)
        for entry in np.flatnonzero(IDS[i] == j):
            w = lists.weights[i, entry] * min(COUNTS[i], MOST_ROWS) / MOST_ROWS
            mean = lists.gaussians.mean[i, entry]
            moment = lists.gaussians.covariance[i, entry] + mean**2
            weight += w
            offset += w * (mean - PROTOTYPES.mean[j])
            second += w * (moment - SPREAD - PROTOTYPES.mean[j] ** 2) / SPREAD
            target += w * targets[i, entry]
        np.testing.assert_allclose(found.weight[i, j], weight)
        np.testing.assert_allclose(found.offset[i, j], offset, atol=1e-12)
        np.testing.assert_allclose(found.second[i, j], second, atol=1e-12)
        np.testing.assert_allclose(found.target[i, j], target, atol=1e-12)


def test_where_the_label_settles_the_target_none_is_sent():
    assert statistics(some_lists(), IDS, COUNTS, 1, 0.05).target.shape == (2, 2, 0)


def test_a_shared_second_moment_is_the_mean_of_the_diagonal_one():
    shared, diagonal = (statistics(some_lists(), IDS, COUNTS, seconds, 0.05) for seconds in (1, 3))
    assert shared.second.shape == (2, 2, 1)
    np.testing.assert_allclose(shared.second[..., 0], diagonal.second.mean(axis=-1))


def test_the_order_of_a_list_does_not_matter():
    lists, targets, order = some_lists(), some_targets(), np.array([2, 0, 3, 1])
    permuted = Mixture(
        lists.weights[:, order],
        Gaussians(lists.gaussians.mean[:, order], lists.gaussians.covariance[:, order]),
    )
    one = statistics(lists, IDS, COUNTS, 3, 0.05, targets)
    two = statistics(permuted, IDS[:, order], COUNTS, 3, 0.05, targets[:, order])
    for a, b in zip(blocks(one), blocks(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(("rows", "weight"), [(0, 0.0), (1, 0.125), (4, 0.5), (8, 1.0), (99, 1.0)])
def test_a_label_counts_fully_from_eight_examples_on(rows, weight):
    lists, counts = some_lists(b=1, size=2), np.array([rows])
    found = statistics(lists, np.zeros((1, 2), int), counts, 1, 0.0)
    np.testing.assert_allclose(found.weight, [[weight, 0.0]])


def test_a_light_candidate_counts_half_and_is_never_dropped():
    lists = Mixture(np.array([[0.96, 0.04]]), some_lists(b=1, size=2).gaussians)
    ids, counts = np.array([[0, 1]]), np.array([8])
    found = statistics(lists, ids, counts, 1, weight_floor=0.05)
    np.testing.assert_allclose(found.weight, [[0.96, 0.02]])


def test_a_client_that_looks_like_its_prototype_adds_a_weight_and_nothing_else():
    lists = Mixture(np.ones((1, 1)), Gaussians(PROTOTYPES.mean[None, :1], SPREAD[None, None]))
    ids, counts = np.zeros((1, 1), int), np.array([8])
    found = statistics(lists, ids, counts, 3, 0.05, targets=np.zeros((1, 1, OUTPUTS)))
    np.testing.assert_array_equal(found.weight, [[1.0, 0.0]])
    np.testing.assert_allclose(found.offset, 0, atol=1e-15)
    np.testing.assert_allclose(found.second, 0, atol=1e-15)
    np.testing.assert_array_equal(found.target, np.zeros((1, 2, OUTPUTS)))


@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, 4), st.integers(0, 3))
@settings(deadline=None)
def test_unpacking_undoes_packing(modes, dimension, shared, targets, b):
    seconds, rng = 1 if shared else dimension, np.random.default_rng(b)
    layout = Layout(modes, dimension, seconds, targets, 0.05, 0.5, target_scale=0.1)
    packed = Statistics(
        rng.standard_normal((b, modes)),
        rng.standard_normal((b, modes, dimension)),
        rng.standard_normal((b, modes, seconds)),
        rng.standard_normal((b, modes, targets)),
    )
    vectors = layout.pack(packed)
    assert vectors.shape == (b, layout.size) == (b, modes * (1 + dimension + seconds + targets))
    for one, other in zip(blocks(packed), blocks(layout.unpack(vectors)), strict=True):
        np.testing.assert_allclose(one, other)


def test_each_block_is_packed_at_its_own_scale():
    layout = Layout(1, 1, 1, 1, weight_scale=0.05, second_scale=0.5, target_scale=0.1)
    ones = Statistics(np.ones(1), *[np.ones((1, 1))] * 3)
    np.testing.assert_allclose(layout.pack(ones), [0.05, 1.0, 0.5, 0.1])


def test_joined_modes_stand_side_by_side():
    part = statistics(some_lists(), IDS, COUNTS, 1, 0.05, some_targets())
    both = joined([part, part])
    assert both.weight.shape == (2, 4)
    for one, other in zip(blocks(both), blocks(part), strict=True):
        np.testing.assert_array_equal(one[:, :2], other)
        np.testing.assert_array_equal(one[:, 2:], other)


@pytest.mark.parametrize("second_moments", ["shared", "diagonal"])
def test_with_one_mode_per_label_the_list_size_changes_nothing(world, second_moments):
    # An M-step keeps a client's moments, so only the half weight of light candidates is left out.
    agreement = world.agreement(second_moments=second_moments, bound=4.0)
    rows = []
    for size in (1, 4):
        learner = ListLearner(size=size, weight_floor=0.0)
        request = replace(agreement, learner=learner).request(0, (0, 1))
        rows.append(contribute(world.examples(0), sum_ask(request)).rows(_SEAL))
    assert np.abs(rows[0]).max() > 10_000
    np.testing.assert_allclose(rows[0], rows[1], atol=4)


def test_light_candidates_are_the_only_difference_a_list_makes_with_one_mode(world):
    one, four = (
        statistics_of(
            world.examples(0),
            replace(world.agreement(), learner=ListLearner(size=size)).request(0, (0, 1)),
        )
        for size in (1, 4)
    )
    lost = one.weight - four.weight
    assert np.all(lost >= -1e-12)
    assert np.all(lost <= 4 * 0.05 / 2)


def test_a_client_without_rows_of_a_label_says_nothing_about_it(world):
    examples = world.examples(0)
    silent = replace(examples, mask=examples.mask & (examples.labels != 1))
    found = statistics_of(silent, world.agreement().request(0, (0, 1)))
    assert np.all(found.weight[:, 0] > 0)
    for block in blocks(found):
        np.testing.assert_array_equal(block[:, 1], 0.0)

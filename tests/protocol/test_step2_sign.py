"""Signatures: standardised log densities at the anchors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, zscore

from cslr.numerics.mixture import Gaussians
from cslr.protocol import step2_sign
from cslr.protocol.step2_sign import (
    anchors_needed,
    failure_bound,
    hit_rate,
    least_margin,
    pair_hits,
    pair_margins,
    signatures,
)


def candidates(*shape: int, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    return Gaussians(rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape))


ANCHORS = np.random.default_rng(9).standard_normal((30, 6))


def test_a_signature_is_the_standardised_log_density_of_scipy():
    some = candidates(3, 6)
    signed = signatures(some, ANCHORS)
    for k in range(3):
        density = multivariate_normal(some.mean[k], np.diag(some.covariance[k])).logpdf(ANCHORS)
        np.testing.assert_allclose(signed[k], zscore(density), atol=1e-9)


def test_signatures_have_mean_zero_and_deviation_one():
    signed = signatures(candidates(2, 4, 6), ANCHORS)
    assert signed.shape == (2, 4, 30)
    np.testing.assert_allclose(signed.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose(signed.std(axis=-1), 1, atol=1e-12)


@given(st.floats(0.01, 100))
@settings(deadline=None)
def test_scaling_or_shifting_a_log_density_leaves_its_signature(factor):
    # Covariance times a factor: the log density is divided by it and shifted by a constant.
    some = candidates(3, 6)
    wider = Gaussians(some.mean, some.covariance * factor)
    np.testing.assert_allclose(
        signatures(wider, ANCHORS), signatures(some, ANCHORS), rtol=1e-7, atol=1e-9
    )


def test_the_scale_of_an_encoder_leaves_the_signatures():
    some = candidates(3, 6)
    scaled = Gaussians(5 * some.mean, 25 * some.covariance)
    np.testing.assert_allclose(
        signatures(scaled, 5 * ANCHORS), signatures(some, ANCHORS), atol=1e-9
    )


def test_permuting_the_list_permutes_its_signatures():
    some, order = candidates(4, 6), np.array([2, 0, 3, 1])
    permuted = Gaussians(some.mean[order], some.covariance[order])
    np.testing.assert_allclose(
        signatures(permuted, ANCHORS), signatures(some, ANCHORS)[order], atol=1e-12
    )


def test_clients_in_a_stack_are_signed_as_if_alone():
    some = candidates(5, 4, 6)
    for i in range(5):
        alone = Gaussians(some.mean[i], some.covariance[i])
        np.testing.assert_allclose(
            signatures(some, ANCHORS)[i], signatures(alone, ANCHORS), atol=1e-12
        )


@pytest.mark.parametrize("anchors", [1, 3, 7, 30])
def test_a_candidate_that_sees_no_difference_has_the_zero_signature(anchors):
    blind = np.tile(ANCHORS[:1], (anchors, 1))
    np.testing.assert_array_equal(signatures(candidates(4, 6), blind), 0.0)


def test_a_candidate_that_only_rounding_tells_apart_has_the_zero_signature():
    # All anchors are equally far from the candidate, but their squares add up in another order.
    directions = ANCHORS / np.linalg.norm(ANCHORS, axis=1, keepdims=True)
    centred = Gaussians(np.zeros((1, 6)), np.ones((1, 6)))
    np.testing.assert_array_equal(signatures(centred, 3 * directions), 0.0)


def test_hit_rate_and_margin_of_a_hand_made_table():
    signed = np.array([[0.0, 0.0, 1.0, 2.0], [0.0, 1.0, 1.0, 0.0], [5.0, 5.0, 5.0, 5.0]])
    ids = np.array([0, 1, 1])
    # Pairs of different ids: (0, 1) differs by 0 1 0 2, (0, 2) by 5 5 4 3.
    assert hit_rate(signed, ids, margin=1.0) == 0.5
    assert hit_rate(signed, ids, margin=1.5) == 0.25
    assert hit_rate(signed, ids, margin=9.0) == 0.0
    assert least_margin(signed, ids) == 2.0


def test_without_two_modes_there_is_neither_hit_rate_nor_margin():
    same = np.zeros(3, dtype=np.int64)
    assert math.isnan(hit_rate(np.ones((3, 4)), same, 0.1))
    assert math.isnan(least_margin(np.ones((3, 4)), same))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 0.5, 0.1), "candidates"), ((4, 0.0, 0.1), "hit"), ((4, 1.1, 0.1), "hit")]
    + [((4, 0.5, failure), "failure") for failure in (0.0, 1.0, math.nan)],
)
def test_an_impossible_anchor_count_is_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=name):
        anchors_needed(*arguments)


def test_how_many_differences_are_held_at_once_changes_neither_shares_nor_their_order(monkeypatch):
    rng = np.random.default_rng(3)
    signed, ids = rng.standard_normal((7, 5)), np.array([0, 1, 2, 0, 1, 2, 0])
    hits, margins = pair_hits(signed, ids, 0.5), pair_margins(signed, ids)
    assert len(hits) == len(margins) == 16  # 21 pairs, of which five are of one mode
    for held in (1, 2 * signed.size, 3 * signed.size):
        monkeypatch.setattr(step2_sign, "BLOCK", held)
        np.testing.assert_array_equal(np.sort(pair_hits(signed, ids, 0.5)), np.sort(hits))
        np.testing.assert_array_equal(np.sort(pair_margins(signed, ids)), np.sort(margins))


@pytest.mark.parametrize(
    ("candidates", "hit", "failure", "anchors"),
    [(4, 0.5, 0.05, 12), (2, 1.0, 0.5, 3), (1, 1.0, 0.9, 1), (100, 0.1, 0.01, 139)],
)
def test_so_many_anchors_are_needed_as_theorem_2_says(candidates, hit, failure, anchors):
    """m ≥ (1/p) log(N²/η), and one at least."""
    assert anchors_needed(candidates, hit, failure) == anchors
    assert failure_bound(candidates, hit, anchors) <= failure


@pytest.mark.parametrize(
    ("candidates", "hit", "anchors", "bound"),
    [(3, 0.5, 4, 3 / 16), (2, 0.25, 1, 0.75), (1, 0.5, 0, 0.0), (5, 0.1, 0, 1.0), (4, 1.0, 1, 0.0)],
)
def test_anchors_fail_at_most_as_often_as_the_union_over_pairs(candidates, hit, anchors, bound):
    assert failure_bound(candidates, hit, anchors) == pytest.approx(bound)

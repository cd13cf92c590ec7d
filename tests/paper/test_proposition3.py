"""Proposition 3: without anchors a deterministic server is wrong on 1 − 1/K! of all alignments.

A client lists its K modes in the order σ. Seen without coordinates or anchors its entries are
symbols that look alike, so whatever σ is, the server sees the same thing and answers the same.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from cslr.numerics.mixture import Gaussians, Mixture
from cslr.protocol.step3_match import MATCHERS, match

DETERMINISTIC = [name for name in MATCHERS if name != "random"]
WIDTH = 12


def modes(count: int) -> Gaussians:
    """K global modes in a shared space."""
    rng = np.random.default_rng(count)
    return Gaussians(1.5 * rng.standard_normal((count, WIDTH)), np.full((count, WIDTH), 0.5))


def listed(gaussians: Gaussians, order: tuple[int, ...]) -> Mixture:
    """A client's list: entry ℓ is mode order[ℓ]."""
    chosen = list(order)
    count = len(chosen)
    return Mixture(
        np.full((1, count), 1 / count),
        Gaussians(gaussians.mean[None, chosen], gaussians.covariance[None, chosen]),
    )


def share_wrong(answers: dict[tuple[int, ...], tuple[int, ...]]) -> float:
    """Share of alignments σ that the answer to them does not recover."""
    return float(np.mean([truth != answer for truth, answer in answers.items()]))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_any_rule_on_unordered_symbols_is_wrong_on_all_but_one_alignment(count):
    def observation(order: tuple[int, ...]) -> frozenset[int]:
        return frozenset(order)  # symbols without an order: the same for every σ

    everything = list(permutations(range(count)))
    assert len({observation(order) for order in everything}) == 1
    # So a deterministic rule is one constant answer: try all there are.
    for answer in everything:
        wrong = share_wrong(dict.fromkeys(everything, answer))
        assert wrong == pytest.approx(1 - 1 / math.factorial(count))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_expected_error_under_random_alignments_is_the_propositions(count):
    rng = np.random.default_rng(count)
    trials, answer = 20_000, tuple(range(count))
    wrong = np.mean([tuple(rng.permutation(count)) != answer for _ in range(trials)])
    expected = 1 - 1 / math.factorial(count)
    assert wrong == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / trials))


@pytest.mark.parametrize("matcher", DETERMINISTIC)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_our_own_matchers_fare_no_better_on_entries_that_look_alike(count, matcher):
    prototypes = modes(count)
    alike = Gaussians(np.zeros((count, WIDTH)), np.ones((count, WIDTH)))  # no coordinates
    anchors = np.random.default_rng(0).standard_normal((20, WIDTH))
    answers = {
        order: tuple(match(listed(alike, order), prototypes, anchors, matcher, [])[0].tolist())
        for order in permutations(range(count))
    }
    assert len(set(answers.values())) == 1
    assert share_wrong(answers) >= 1 - 1 / math.factorial(count)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_hungarian_rule_meets_the_bound_exactly(count):
    alike = Gaussians(np.zeros((count, WIDTH)), np.ones((count, WIDTH)))
    answers = {
        order: tuple(
            match(listed(alike, order), modes(count), np.zeros((2, WIDTH)), "hungarian", [])[0]
        )
        for order in permutations(range(count))
    }
    assert share_wrong(answers) == pytest.approx(1 - 1 / math.factorial(count))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_anchors_recover_every_alignment(count):
    prototypes = modes(count)
    anchors = 1.5 * np.random.default_rng(0).standard_normal((30, WIDTH))
    answers = {
        order: tuple(match(listed(prototypes, order), prototypes, anchors, "signature", [])[0])
        for order in permutations(range(count))
    }
    assert share_wrong(answers) == 0.0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_anchors_that_see_nothing_recover_no_more_than_chance(count):
    prototypes = modes(count)
    blind = np.tile(np.ones((1, WIDTH)), (30, 1))
    answers = {
        order: tuple(match(listed(prototypes, order), prototypes, blind, "signature", [])[0])
        for order in permutations(range(count))
    }
    assert share_wrong(answers) >= 1 - 1 / math.factorial(count)

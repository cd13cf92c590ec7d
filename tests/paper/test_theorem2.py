"""Theorem 2: (1/p) log(N²/η) anchors tell N candidates apart with probability 1 − η.

The family is one whose hit probability is known exactly. Candidate i is N(c·e_i, I) and an anchor
is a·e_k, with k one of the candidates with probability p/2 each and an axis of nobody's otherwise.
Two candidates i ≠ j differ, by the margin γ = ac, at the anchors a·e_i and a·e_j and nowhere else:
every pair is (p, γ) anchor-visible with equality.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.numerics.mixture import Gaussians, log_density
from cslr.protocol.step2_sign import anchors_needed, hit_rate, least_margin, signatures

N, HIT, FAILURE = 8, 0.2, 0.1
LENGTH, REACH = 2.0, 1.5  # c and a
MARGIN = LENGTH * REACH  # γ
CANDIDATES = Gaussians(LENGTH * np.eye(N, N + 1), np.ones((N, N + 1)))
IDS = np.arange(N)


def draw_anchors(m: int, rng: np.random.Generator) -> np.ndarray:
    share = np.append(np.full(N, HIT / 2), 1 - N * HIT / 2)
    return REACH * np.eye(N + 1)[rng.choice(N + 1, size=m, p=share)]


def raw_signatures(anchors: np.ndarray) -> np.ndarray:
    """The paper's signatures (N, m), not standardised: the theorem speaks of these."""
    return log_density(CANDIDATES, anchors).T


def failures(m: int, trials: int = 400, standardised: bool = False) -> float:
    """Share of trials in which some pair is not told apart."""
    rng = np.random.default_rng(m)
    sign = (lambda u: signatures(CANDIDATES, u)) if standardised else raw_signatures
    least = 1e-6 if standardised else MARGIN * (1 - 1e-9)
    return float(
        np.mean([least_margin(sign(draw_anchors(m, rng)), IDS) < least for _ in range(trials)])
    )


def exact_failure(m: int) -> float:
    """P[at least two candidates are hit by none of m anchors], by inclusion and exclusion."""
    missed = [
        sum(
            (-1) ** (i - k) * math.comb(i, k) * math.comb(N, i) * (1 - i * HIT / 2) ** m
            for i in range(k, N + 1)
        )
        for k in (0, 1)
    ]
    return 1 - sum(missed)


def test_the_family_has_the_hit_rate_it_is_said_to_have():
    anchors = draw_anchors(60_000, np.random.default_rng(0))
    assert hit_rate(raw_signatures(anchors), IDS, MARGIN * (1 - 1e-9)) == pytest.approx(
        HIT, abs=0.01
    )
    assert hit_rate(raw_signatures(anchors), IDS, MARGIN * 1.01) == 0.0


@pytest.mark.parametrize("standardised", [False, True])
def test_the_prescribed_anchors_fail_no_more_often_than_promised(standardised):
    m = anchors_needed(N, HIT, FAILURE)
    found = failures(m, standardised=standardised)
    assert found <= FAILURE
    # And the Monte Carlo measures what it says: the exact probability is 0.017.
    assert found == pytest.approx(exact_failure(m), abs=4 * math.sqrt(0.017 / 400))


@pytest.mark.parametrize("standardised", [False, True])
def test_far_fewer_anchors_fail_far_more_often(standardised):
    m = anchors_needed(N, HIT, FAILURE)
    assert failures(m // 5, standardised=standardised) > 0.9
    assert failures(m // 2, standardised=standardised) > 2 * FAILURE


def test_more_anchors_fail_less_often():
    rates = [failures(m) for m in (5, 10, 20, 40)]
    assert rates == sorted(rates, reverse=True)


def test_where_every_pair_differs_by_the_margin_a_rule_at_half_of_it_names_all():
    # "Consequently, any deterministic matching rule that separates signatures at margin γ/2 …"
    rng = np.random.default_rng(3)
    signed = raw_signatures(draw_anchors(anchors_needed(N, HIT, FAILURE), rng))
    assert least_margin(signed, IDS) >= MARGIN * (1 - 1e-9)
    shuffled = rng.permutation(N)
    noise = rng.uniform(-0.49, 0.49, size=signed.shape) * MARGIN / 2
    distance = np.abs((signed + noise)[shuffled][:, None] - signed[None]).max(axis=-1)
    np.testing.assert_array_equal((distance < MARGIN / 2).argmax(axis=1), shuffled)
    assert np.all((distance < MARGIN / 2).sum(axis=1) == 1)


@pytest.mark.parametrize(
    ("candidates", "hit", "failure", "needed"),
    [
        (8, 0.2, 0.1, math.ceil(math.log(640) / 0.2)),
        (320, 0.46, 0.05, math.ceil(math.log(320**2 / 0.05) / 0.46)),  # the paper's p̂ at m = 100
        (1, 1.0, 0.5, 1),
        (2, 1.0, 0.999, 2),
    ],
)
def test_anchors_needed_is_the_theorems_formula(candidates, hit, failure, needed):
    assert anchors_needed(candidates, hit, failure) == needed


def test_the_union_bound_holds_at_the_number_prescribed():
    for candidates in (2, 10, 1000):
        for hit in (0.05, 0.5, 1.0):
            for failure in (0.5, 0.01):
                m = anchors_needed(candidates, hit, failure)
                assert candidates**2 / 2 * (1 - hit) ** m <= failure


def test_more_candidates_rarer_hits_and_less_failure_need_more_anchors():
    assert anchors_needed(100, 0.2, 0.1) > anchors_needed(10, 0.2, 0.1)
    assert anchors_needed(10, 0.1, 0.1) > anchors_needed(10, 0.2, 0.1)
    assert anchors_needed(10, 0.2, 0.01) > anchors_needed(10, 0.2, 0.1)

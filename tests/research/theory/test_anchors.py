"""Theorem 2 on candidates: the number of anchors, the guarantee, and simulated miss rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.config import with_settings
from cslr.errors import ConfigError
from cslr.numerics.mixture import Gaussians, log_density
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step2_sign import (
    failure_bound,
    hit_rate,
    least_margin,
    pair_hits,
    pair_margins,
    standardised,
)
from cslr.research.theory.anchors import SWEEP, examine, prescribe, sweep
from cslr.research.theory.candidates import Candidates

N, HIT, FAILURE = 8, 0.2, 0.1
MARGIN = 1.0  # at an axis of its own a candidate differs from any other by more than 3


def candidates(space: PublicSpace) -> Candidates:
    """Candidate i is N(2 e_i, I); an anchor on axis i or j tells i and j apart, no other does."""
    clients = np.arange(N)
    gaussians = Gaussians(2.0 * np.eye(N, N + 1), np.ones((N, N + 1)))
    return Candidates(gaussians, np.arange(N), clients, N, space, np.zeros((0, N + 1)))


def axes(count: int, rng: np.random.Generator) -> np.ndarray:
    """Public sentences on axis i with probability p/2 for each candidate, else on nobody's."""
    share = np.append(np.full(N, HIT / 2), 1 - N * HIT / 2)
    return 1.5 * np.eye(N + 1)[rng.choice(N + 1, size=count, p=share)]


@pytest.fixture(scope="module")
def known(world):
    """The family of which p is known, and 5,000 public sentences."""
    return candidates(world.space()), axes(5000, np.random.default_rng(0))


@given(st.integers(1, 5000), st.floats(0.01, 1.0), st.floats(1e-4, 0.9))
@settings(deadline=None)
def test_the_fewest_anchors_are_those_at_which_the_union_bound_is_kept(n, hit, failure):
    found = prescribe(n, hit, failure)
    assert failure_bound(n, hit, found.anchors) <= failure
    assert failure_bound(n, hit, found.fewest) <= failure * (1 + 1e-9)
    assert found.fewest == 1 or failure_bound(n, hit, found.fewest - 1) > failure * (1 - 1e-9)
    assert found.anchors == max(1, math.ceil(math.log(n**2 / failure) / hit))


def test_the_failure_bound_of_hand_made_cases():
    assert failure_bound(2, 0.5, 3) == 0.125  # one pair
    assert failure_bound(5, 0.5, 4) == 10 / 16
    assert failure_bound(100, 0.5, 0) == 1.0
    assert failure_bound(1, 0.5, 0) == 0.0  # nothing to tell apart
    with pytest.raises(ValueError, match="anchors"):
        failure_bound(2, 0.5, -1)


def test_what_the_theorem_prescribes_misses_no_more_often_than_promised(known):
    """Theorem 2 by simulation: the empirical miss rate is at most η, and at most the bound."""
    found, public = known
    needed = prescribe(N, HIT, FAILURE)
    rng = np.random.default_rng(1)
    seen = sweep(found, public, [5, needed.fewest, needed.anchors], MARGIN, FAILURE, rng, draws=400)
    few, least, prescribed = seen.tried
    assert few.missed > 0.9
    assert least.missed <= FAILURE
    assert prescribed.missed <= least.missed
    noise = 3 * math.sqrt(FAILURE / 400)
    assert all(each.missed <= each.bound + noise for each in seen.tried)
    assert seen.enough == needed.fewest


def test_the_hit_rate_of_the_family_is_found(known):
    found, public = known
    seen = sweep(found, public, [200], MARGIN, FAILURE, np.random.default_rng(2))
    assert seen.hit_mean == pytest.approx(HIT, abs=0.02)
    assert seen.hit_least == pytest.approx(HIT, abs=0.06)
    assert seen.pairs == N * (N - 1) // 2
    assert seen.unseen == 0
    assert seen.prescribed == prescribe(N, seen.hit_least, FAILURE).anchors


def test_a_margin_that_nothing_reaches_has_no_number_of_anchors(known):
    found, public = known
    seen = sweep(found, public, [10, 50], 100.0, FAILURE, np.random.default_rng(3))
    assert seen.hit_least == 0.0
    assert seen.unseen == 1.0
    assert seen.prescribed is None
    assert seen.enough is None
    assert all(each.missed == each.bound == 1.0 for each in seen.tried)


def test_the_sweep_measures_what_hit_rate_and_least_margin_do(known):
    found, public = known
    everything = public[:60]
    seen = sweep(found, everything, [60], MARGIN, FAILURE, np.random.default_rng(4), draws=2)
    signed = standardised(log_density(found.gaussians, everything).T)
    (each,) = seen.tried
    assert each.hit_least == pytest.approx(hit_rate(signed, found.ids, MARGIN))
    assert each.margin == pytest.approx(least_margin(signed, found.ids), rel=1e-5)


@pytest.mark.parametrize(
    ("counts", "margin", "name"), [([9999], 1.0, "counts"), ([5], 0.0, "margin")]
)
def test_what_cannot_be_tried_is_refused_by_name(known, counts, margin, name):
    found, public = known
    with pytest.raises(ValueError, match=name):
        sweep(found, public, counts, margin, FAILURE, np.random.default_rng(0))


def test_neighbours_are_those_of_other_clients(world):
    """Two clients, two modes: each candidate's like is at the other client."""
    means = np.array([[2.0, 0.0], [0.0, 2.0], [2.1, 0.0], [0.0, 2.1]])
    alike = Candidates(
        Gaussians(means, np.ones((4, 2))),
        np.array([0, 1, 0, 1]),
        np.array([0, 0, 1, 1]),
        4,
        world.space(),
        means,
    )
    public = np.random.default_rng(0).standard_normal((50, 2))
    seen = sweep(alike, public, [20], 0.25, 0.05, np.random.default_rng(1))
    assert seen.tried[0].neighbours == 1.0
    crossed = Candidates(
        alike.gaussians, np.array([0, 1, 1, 0]), alike.clients, 4, alike.space, means
    )
    seen = sweep(crossed, public, [20], 0.25, 0.05, np.random.default_rng(1))
    assert seen.tried[0].neighbours == 0.0


def test_pairs_in_blocks_are_the_pairs_of_a_loop(monkeypatch):
    rng = np.random.default_rng(0)
    signed, ids = rng.standard_normal((23, 7)), rng.integers(4, size=23)
    pairs = [(i, j) for i in range(23) for j in range(23) if ids[i] < ids[j]]
    gaps = np.array([np.abs(signed[i] - signed[j]) for i, j in pairs])
    for block in (1, 500, 1 << 21):
        monkeypatch.setattr("cslr.protocol.step2_sign.BLOCK", block)
        np.testing.assert_allclose(pair_hits(signed, ids, 1.0), (gaps >= 1.0).mean(axis=1))
        np.testing.assert_array_equal(pair_margins(signed, ids), gaps.max(axis=1))


def test_a_study_is_examined_at_the_papers_counts(config, embedded):
    found = examine(config, embedded, 0.25, 0.05, None)
    assert [each.anchors for each in found.sweep.tried] == list(SWEEP)
    assert found.coverage.sentences == len(embedded.public)
    assert found.coverage.anchors == 24
    assert found.unit == "sentence"
    assert examine(config, embedded, 0.25, 0.05, None) == found  # the same seed, the same answer
    # Labels lie apart in this world, so that signatures of the same mode lie together.
    assert found.sweep.tried[-1].neighbours > 0.9
    assert found.sweep.enough is not None


@pytest.mark.parametrize(("anchors", "counts"), [(601, None), (24, [10, 601])])
def test_more_anchors_than_sentences_are_refused(config, embedded, anchors, counts):
    many = with_settings(config, {"paper.m": anchors})
    with pytest.raises(ConfigError, match="600 public sentences, so 601 anchors"):
        examine(many, embedded, 0.25, 0.05, counts)


def test_another_seed_draws_other_anchors(config, embedded):
    other = with_settings(config, {"seeds": [17]})
    one, two = (examine(each, embedded, 0.25, 0.05, [50]) for each in (config, other))
    assert one.sweep.tried != two.sweep.tried

"""Distances between a replay and rows: near 0 for the same distribution, near 1 for others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import energy_distance as energy_of_scipy
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from cslr.numerics.mixture import Gaussians, sample
from cslr.protocol.head import Family, Head
from cslr.research.theory import quality as module
from cslr.research.theory.kept import KeptReplay
from cslr.research.theory.quality import energy_distance, logistic_rule, quality, told_apart

WIDTH, LABELS = 6, 3
FAMILY = Family("classification", LABELS)
BASIS = np.linalg.qr(np.random.default_rng(9).standard_normal((WIDTH, WIDTH)))[0]


def a_replay(released: int = WIDTH) -> KeptReplay:
    """Task 0 has labels 0 and 1, the first with two modes; task 1 has label 2."""
    rng = np.random.default_rng(0)
    return KeptReplay(
        weights=np.array([0.2, 0.1, 0.3, 0.4]),
        modes=Gaussians(
            2.0 * rng.standard_normal((4, released)), rng.uniform(0.5, 1.5, (4, released))
        ),
        tasks=np.array([0, 0, 0, 1]),
        answers=np.eye(LABELS)[[0, 0, 1, 2]],
        centre=rng.standard_normal(WIDTH),
        basis=BASIS,
    )


def rows_of(replay: KeptReplay, count: int, rng: np.random.Generator, shift: float = 0.0):
    """Embeddings of task 0 drawn from its own replay, and their labels."""
    modes = rng.choice(3, size=count, p=replay.weights[:3] / replay.weights[:3].sum())
    return replay.lift(sample(replay.modes, modes, rng) + shift), np.array([0, 0, 1])[modes]


def measured(replay: KeptReplay, z, labels, head=None, samples=1000, seed=1):
    rng = np.random.default_rng(seed)
    return quality(replay, 0, z, labels, FAMILY, head, rng, samples=samples)


def test_rows_drawn_from_the_replay_itself_are_not_told_apart():
    replay = a_replay()
    found = measured(replay, *rows_of(replay, 2000, np.random.default_rng(2)))
    assert found.rows == 1000
    for bound in (found.means, found.shape):
        assert bound.value < 0.12
        assert bound.low == 0.0
    assert found.energy < 0.01
    assert found.labels < 0.03


def test_whole_covariances_are_drawn_from_as_they_are():
    diagonal = a_replay()
    turned = np.linalg.qr(np.random.default_rng(7).standard_normal((WIDTH, WIDTH)))[0]
    stretched = turned @ np.diag([9.0, 4.0, 1.0, 1.0, 0.2, 0.1]) @ turned.T
    full = replace(diagonal, modes=Gaussians(diagonal.modes.mean, np.tile(stretched, (4, 1, 1))))
    rows = rows_of(full, 2000, np.random.default_rng(2))
    assert measured(full, *rows).shape.low == 0.0
    assert measured(diagonal, *rows).shape.low > 0.1


def test_rows_elsewhere_are_told_apart_entirely():
    replay = a_replay()
    found = measured(replay, *rows_of(replay, 2000, np.random.default_rng(2), shift=20.0))
    for bound in (found.means, found.shape):
        assert bound.value > 0.99
        assert bound.low > 0.97
    assert found.energy > 0.8


def test_a_wrong_spread_shows_in_the_shape_and_not_in_the_means():
    replay = a_replay()
    wide = replace(replay, modes=Gaussians(replay.modes.mean, 9 * replay.modes.covariance))
    found = measured(replay, *rows_of(wide, 2000, np.random.default_rng(2)))
    assert found.means.value < 0.12
    assert found.shape.low > 0.6


def test_a_rule_of_its_own_for_each_label_sees_labels_that_were_swapped():
    replay = a_replay()
    z, labels = rows_of(replay, 2000, np.random.default_rng(2))
    swapped = measured(replay, z, 1 - labels)
    assert swapped.means.low > 0.8
    even = replace(replay, weights=np.array([0.15, 0.15, 0.3, 0.4]))
    z, labels = rows_of(even, 2000, np.random.default_rng(2))
    assert measured(even, z, 1 - labels).labels < 0.04  # the shares are as they were


def test_other_shares_of_labels_show_in_the_shares_alone():
    replay = a_replay()
    z, labels = rows_of(replay, 4000, np.random.default_rng(2))
    kept = (labels == 0) | (np.arange(len(labels)) % 10 == 0)  # a tenth of label 1
    found = measured(replay, z[kept], labels[kept])
    share = labels[kept].mean()
    assert found.labels == pytest.approx(0.5 - share, abs=1e-9)  # the replay has a half of it
    assert found.means.low == 0.0
    assert found.shape.low == 0.0


def test_directions_that_are_not_released_are_not_judged():
    replay = a_replay(released=3)
    z, labels = rows_of(replay, 1000, np.random.default_rng(2))
    elsewhere = z + 7.0 * BASIS[:, 5]
    # the last bits of z differ after the way there and back, and with them nothing that counts
    assert measured(replay, elsewhere, labels).means == measured(replay, z, labels).means


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_the_bound_is_below_the_true_total_variation_and_not_far(shift):
    """Two Gaussians a distance δ apart: TV = 2 Φ(δ/2) − 1, and a linear rule is the best."""
    true = 2 * norm.cdf(shift / 2) - 1
    rng = np.random.default_rng(3)
    lows, values = [], []
    for _ in range(60):
        x, y = rng.standard_normal((2, 1000, 4))
        x[:, 0] += shift
        found = told_apart(x, y, np.zeros(1000, dtype=int), np.arange(1000) < 500)
        lows.append(found.low)
        values.append(found.value)
    assert np.mean(np.array(lows) <= true) >= 0.95
    assert np.mean(values) == pytest.approx(true, abs=0.02)
    assert np.mean(lows) > true - 0.13


def test_a_label_met_only_among_those_judged_has_no_rule():
    x, y = np.random.default_rng(0).standard_normal((2, 40, 2))
    groups = np.array([0] * 20 + [1] * 20)
    found = told_apart(x + 50, y, groups, groups == 0)
    assert found.value == 0.0


def test_the_rule_is_the_logistic_regression_of_scikit_learn():
    rng = np.random.default_rng(4)
    rows, drawn = rng.standard_normal((80, 5)), rng.standard_normal((60, 5))
    rows += np.array([1, 0, 0, 0.5, 0])
    weights, offset = logistic_rule(rows, drawn)
    x = np.concatenate([rows, drawn])
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    truth = np.repeat([1, 0], [80, 60])
    other = LogisticRegression(C=1 / (module.RIDGE * len(x)), tol=1e-10, max_iter=1000)
    score = other.fit(scaled, truth).decision_function(scaled)
    np.testing.assert_allclose(x @ weights - offset, score, atol=2e-3)


def test_the_energy_distance_is_scipys_over_its_largest_value():
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((1500, 1)), rng.standard_normal((1500, 1)) + 1.5
    across = np.abs(x - y.T).mean()
    expected = energy_of_scipy(x[:, 0], y[:, 0]) ** 2 / (2 * across)
    assert energy_distance(x, y) == pytest.approx(expected, abs=0.002)
    assert energy_distance(x, x + 1e6) == pytest.approx(1.0, abs=1e-5)
    assert energy_distance(np.zeros((3, 1)), np.zeros((3, 1))) == 0.0


def test_the_head_gap_is_the_difference_of_its_errors():
    """Label shares are equal, so a constant head has equal errors; one that uses z need not."""
    replay = a_replay()
    z, labels = rows_of(replay, 2000, np.random.default_rng(2))
    always = Head(np.zeros((WIDTH, 2)), np.zeros(2), np.zeros((2, LABELS)), np.array([1.0, 0, 0]))
    assert measured(replay, z, labels, always).head == 0.0
    means = replay.modes.mean
    direction = BASIS @ (means[2] - means[:2].mean(axis=0))
    middle = replay.lift((means[2] + means[:2].mean(axis=0))[None] / 2)[0]
    weights = np.stack([direction, -direction], axis=1)
    bias = np.array([-direction @ middle, direction @ middle])
    outputs = np.array([[-1.0, 1.0, -9.0], [1.0, -1.0, -9.0]])
    rule = Head(weights, bias, outputs, np.zeros(LABELS))
    assert measured(replay, z, labels, rule).head < 0.06
    moved = z + 30 * direction / np.linalg.norm(direction)  # all of them are called 1 now
    gap = measured(replay, moved, labels, rule).head
    said = np.mean(labels[np.random.default_rng(1).permutation(2000)[:1000]] == 0)
    assert gap == pytest.approx(said, abs=0.1)
    assert math.isnan(measured(replay, z, labels).head)


def test_a_label_the_replay_does_not_know_is_left_to_the_shares():
    replay = a_replay()
    z, labels = rows_of(replay, 1000, np.random.default_rng(2))
    strange = np.where(np.arange(1000) < 200, 2, labels)
    found = measured(replay, z, strange)
    assert found.rows == 800
    assert found.labels == pytest.approx(0.2, abs=0.02)


def test_words_of_a_sentence_stay_together(monkeypatch):
    """A rule trained on some words of a sentence must not be tested on the others."""
    replay = a_replay()
    z, labels = rows_of(replay, 400, np.random.default_rng(2))
    halves = []

    def noted(rows, drawn, groups, half):
        halves.append((rows, half))
        return told_apart(rows, drawn, groups, half)

    monkeypatch.setattr(module, "told_apart", noted)
    sentence = np.arange(400) // 20
    rng = np.random.default_rng(1)
    quality(replay, 0, z, labels, FAMILY, None, rng, together=sentence)
    rows, half = halves[0]  # what is judged stands in another order than z
    order = np.argmin(np.abs(rows[:, None] - replay.into(z)[None]).sum(axis=-1), axis=1)
    learnt_from = [set(half[sentence[order] == number].tolist()) for number in range(20)]
    assert all(len(both) == 1 for both in learnt_from)
    assert sum(both == {True} for both in learnt_from) == 10


def test_too_few_rows_are_no_measurement():
    replay = a_replay()
    z, labels = rows_of(replay, 3, np.random.default_rng(2))
    found = measured(replay, z, labels)
    assert found.rows == 3
    assert math.isnan(found.means.value)
    assert math.isnan(found.energy)

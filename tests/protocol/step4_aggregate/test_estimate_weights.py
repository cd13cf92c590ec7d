"""Released weights: combined with the plan's expectation; noise is not taken for label shares."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cslr.protocol.step4_aggregate.estimate import counted_labels, total_weight

MODES = SimpleNamespace(labels=np.arange(40))


def release(weight, noise, unsure=0.25, expected=50.0):
    weight = np.asarray(weight, dtype=float)
    return SimpleNamespace(
        modes=np.arange(len(weight)),
        sums=SimpleNamespace(weight=weight),
        noise=SimpleNamespace(weight=noise),
        weight_unsure=unsure,
        expected_weight=expected,
    )


def test_without_noise_weights_are_what_was_summed_and_count_fully():
    each = release([10.0, 90.0], 0.0)
    np.testing.assert_allclose(total_weight(each), [10.0, 90.0])
    assert counted_labels([each], MODES) == 1.0


def test_under_heavy_noise_weights_are_what_the_plan_expects():
    np.testing.assert_allclose(total_weight(release([-900.0, 4000.0], 1e6)), 50.0, rtol=1e-2)


def test_a_total_never_falls_to_nothing():
    assert total_weight(release([-1e9], 1.0)).min() == pytest.approx(1.0)


def test_noise_alone_says_nothing_about_how_often_labels_are_met():
    rng = np.random.default_rng(1)
    found = [
        counted_labels([release(50 + 30 * rng.standard_normal(40), 30.0)], MODES) for _ in range(50)
    ]
    assert max(found) == 0.0


def test_differences_far_beyond_the_noise_count():
    weights = np.repeat([10.0, 90.0], 20)
    assert counted_labels([release(weights, 4.0)], MODES) == pytest.approx(0.98, abs=0.01)


def test_a_task_of_one_label_says_nothing_against_it():
    assert counted_labels([release([70.0], 30.0)], MODES) == 1.0
    assert counted_labels([], MODES) == 1.0


def test_modes_of_one_label_are_added_up_first():
    """Two labels of two modes each: differences within a label say nothing about label shares."""
    modes = SimpleNamespace(labels=np.array([0, 0, 1, 1]))
    assert counted_labels([release([10.0, 90.0, 90.0, 10.0], 5.0)], modes) == 1.0
    assert counted_labels([release([10.0, 90.0, 88.0, 10.0], 5.0)], modes) == 0.0

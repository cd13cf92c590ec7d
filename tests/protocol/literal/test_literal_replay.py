"""The replay of the paper's protocol: the modes of all tasks side by side, as they were read."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.numerics.mixture import Gaussians
from cslr.protocol.head import Family
from cslr.protocol.literal.reading import WrittenModes
from cslr.protocol.literal.replay import written_replay
from cslr.protocol.step4_aggregate.contribution import Statistics
from cslr.protocol.step4_aggregate.estimate import Noise, TaskRelease

R = 8


def release_of(task: int, modes: list[int], weights: list[float], floored: float) -> TaskRelease:
    """Modes at (10 × task, index, 0, ...) with covariances and targets of their own."""
    chosen, count = np.array(modes), len(modes)
    mean = np.zeros((count, R))
    mean[:, 0], mean[:, 1] = 10 * task, chosen
    covariance = np.eye(R) * (1.0 + chosen)[:, None, None]
    targets = np.eye(4)[chosen]
    written = WrittenModes(np.array(weights), Gaussians(mean, covariance), targets, floored)
    nothing = Statistics(*(np.zeros((count, width)) for width in (1, R, 1, 4)))
    noise = Noise(0.0, 0.0, 0.0, 0.0)
    return TaskRelease(task, chosen, mean, nothing, noise, 1.0, written=written)


@pytest.fixture
def modes(world):
    return world.modes(world.space())


@pytest.fixture
def replay(modes):
    """Of two tasks: the first has two modes of labels 2 and 0, the second one of label 3."""
    releases = [release_of(0, [2, 0], [0.25, 0.75], 0.2), release_of(1, [3], [1.0], 0.6)]
    return written_replay(releases, modes, Family("classification", 4))


def test_every_task_has_the_same_share_and_all_shares_are_one(replay):
    np.testing.assert_allclose(replay.weights, [0.125, 0.375, 0.5])


def test_modes_keep_what_was_read_and_the_order_of_their_tasks(replay):
    np.testing.assert_array_equal(replay.labels, [2, 0, 3])
    np.testing.assert_array_equal(replay.tasks, [0, 0, 1])
    np.testing.assert_array_equal(replay.mean[:, :2], [[0, 2], [0, 0], [10, 3]])
    np.testing.assert_array_equal(np.trace(replay.covariance, axis1=1, axis2=2), [24, 8, 32])
    np.testing.assert_array_equal(replay.targets, np.eye(4)[[2, 0, 3]])


def test_labels_that_no_task_released_are_not_heard(replay):
    np.testing.assert_array_equal(replay.heard, [True, False, True, True])


def test_all_modes_are_known_and_trusted_and_told_apart_around_the_public_centre(replay):
    """The paper has no shrinkage: every mode is known, with trust 1."""
    assert replay.known.all()
    np.testing.assert_array_equal(replay.trust, 1.0)
    np.testing.assert_array_equal(replay.centre, np.zeros((3, R)))
    np.testing.assert_array_equal(replay.relative, np.ones((3, 1)))
    assert not replay.pooled


def test_what_noise_pushed_below_the_floor_is_the_mean_over_tasks(replay):
    assert replay.floored == pytest.approx(0.4)
    assert replay.released().floored == replay.floored

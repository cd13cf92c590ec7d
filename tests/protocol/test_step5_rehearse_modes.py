"""Parts of the rehearsal: modes of one label, and how long pooled modes are trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cslr.protocol import step5_rehearse
from cslr.protocol.head import HeadSettings, initial_head
from cslr.protocol.step5_rehearse import Rehearsal, _middles, rehearse
from cslr.seeding import Seeds
from tests.conftest import WIDTH
from tests.protocol.test_step5_rehearse import FOUR, means_of, replay_at


def test_modes_of_one_task_and_label_have_their_weighted_mean_as_middle():
    means = np.arange(10.0).reshape(5, 2) ** 2
    weights, labels = [0.1, 0.3, 0.2, 0.2, 0.2], [0, 0, 1, 1, 0]
    replay = replay_at(means, labels=labels, weights=weights, tasks=[0, 0, 0, 1, 1])
    found = _middles(means, replay)
    np.testing.assert_allclose(found[0], (means[0] + 3 * means[1]) / 4)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2:], means[2:])


def test_pooled_modes_take_five_times_the_passes_at_no_small_rate(world, monkeypatch):
    space = world.space()
    replay = replace(replay_at(means_of(world, space)), pooled=True)
    trained = []

    def train(start, passes, settings, rng):
        trained.append((len(list(passes)), settings.learning_rate))
        return start

    monkeypatch.setattr(step5_rehearse, "train_head", train)
    start = initial_head(WIDTH, 4, HeadSettings(hidden=8), Seeds(1).at("head"))
    for rate in (1e-4, 1e-2):
        how = Rehearsal(
            start, HeadSettings(learning_rate=rate), samples=4, passes=2, seeds=Seeds(1)
        )
        rehearse(replay, space, FOUR, how)
    assert trained == [(10, 1e-3), (10, 1e-2)]

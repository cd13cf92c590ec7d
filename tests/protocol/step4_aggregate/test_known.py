"""How far noise lets means be known and be told apart."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.protocol.step4_aggregate import known
from cslr.protocol.step4_aggregate.known import clarity, trust_in_means


@pytest.fixture
def space(world):
    return world.space()


def test_trust_goes_from_one_without_noise_to_none(space):
    found = trust_in_means(np.array([0.0, 1e-3, 1.0, np.inf]), space)
    assert found[0] == pytest.approx(1.0)
    assert list(found) == sorted(found, reverse=True)
    assert found[-1] == 0.0


def means_apart(space, distance):
    """Two modes this many public standard deviations apart, and one of a label far away."""
    mean = np.zeros((3, space.dimension))
    mean[1, 0] = distance * np.sqrt(space.shape[0, 0])
    mean[2, 1] = 100.0
    return mean


def test_labels_that_are_near_each_other_need_less_noise(space):
    labels, noise = np.arange(3), np.full(3, 1e-3)
    found = [clarity(means_apart(space, each), noise, labels, space) for each in (0.1, 1.0, 5.0)]
    assert found == sorted(found)
    assert found[0] < 0.5 < found[2]


def test_without_noise_all_is_clear_and_modes_of_one_label_are_not_compared(space):
    mean, silent = means_apart(space, 1.0), np.zeros(3)
    assert clarity(mean, silent, np.arange(3), space) == pytest.approx(1.0)
    assert clarity(mean, silent + 1.0, np.zeros(3, dtype=int), space) == 1.0
    together = clarity(mean, silent + 1e-3, np.array([0, 0, 1]), space)
    assert together > clarity(mean, silent + 1e-3, np.arange(3), space)


def test_of_many_modes_a_sample_is_compared(space, monkeypatch):
    mean = np.random.default_rng(0).normal(size=(40, space.dimension))
    noise, labels = np.full(40, 1e-2), np.arange(40)
    whole = clarity(mean, noise, labels, space)
    monkeypatch.setattr(known, "MOST_MODES", 10)
    assert clarity(mean, noise, labels, space) == pytest.approx(whole, rel=0.1)

"""The variance of modes from noisy second moments: shrunk towards the public spread."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.protocol.step4_aggregate.estimate import SCALE_UNSURE, _relative_variances

DOUBT = SCALE_UNSURE**2


@pytest.fixture(scope="module")
def space(world):
    return world.space()


@pytest.fixture(scope="module")
def modes(space):
    """Prototypes (3, r), means (3, r) and how much moving there takes from the variance."""
    rng = np.random.default_rng(4)
    prototypes, mean = rng.normal(size=(2, 3, space.dimension))
    return prototypes, mean, (prototypes**2 - mean**2) / space.spread


def test_one_scale_for_all_modes_weighs_them_by_their_noise(space, modes):
    prototypes, mean, moved = modes
    excess, noise = np.array([[0.3], [-0.2], [0.5]]), np.array([0.02, 0.1, 0.5])
    beyond = excess[:, 0] + moved.mean(axis=1)
    expected = 1.0 + (beyond / noise).sum() / ((1 / noise).sum() + 1 / DOUBT)
    found = _relative_variances(excess, noise, mean, prototypes, space)
    np.testing.assert_allclose(found, np.full((3, 1), expected))


def test_a_variance_per_direction_is_shrunk_by_the_modes_own_noise(space, modes):
    prototypes, mean, moved = modes
    excess, noise = np.random.default_rng(5).normal(size=mean.shape), np.array([0.0, DOUBT, 1e9])
    found = _relative_variances(excess, noise, mean, prototypes, space)
    beyond = excess + moved
    np.testing.assert_allclose(
        found, [1 + beyond[0], 1 + beyond[1] / 2, np.ones_like(mean[2])], atol=1e-6
    )

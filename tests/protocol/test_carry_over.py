"""Releases and replays in another encoder's space: how means and noise are mapped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import ConfigError
from cslr.protocol.carry_over import Passage, carried, lifted, passage, raw_passage
from cslr.protocol.head import Family
from cslr.protocol.public_space import PublicSpace, build_space, declare_modes
from cslr.protocol.step4_aggregate.contribution import Statistics
from cslr.protocol.step4_aggregate.estimate import Noise, TaskRelease, estimate_replay
from cslr.protocol.translation import Affine, fit_map
from cslr.seeding import Seeds

D, R, LABELS = 20, 8, 3


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def corpus() -> np.ndarray:
    rng = np.random.default_rng(0)
    topics = 1.5 ** -np.arange(D) * rng.standard_normal((25, D))
    return unit(topics[rng.integers(25, size=400)] + 0.05 * rng.standard_normal((400, D)))


@pytest.fixture(scope="module")
def turn() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(4).standard_normal((D, D)))[0]


def space_of(z: np.ndarray, name: str, dimension: int = R) -> PublicSpace:
    return build_space(z, name, dimension, 20, Seeds(1).at("anchors"))


def release_of(means: np.ndarray, noise: float = 0.0, seconds: int = 1) -> TaskRelease:
    """Modes at these means (K, r), as offsets from prototypes elsewhere."""
    modes = len(means)
    weight = np.full(modes, 4.0)
    prototypes = np.random.default_rng(2).normal(scale=0.1, size=means.shape)
    offset = weight[:, None] * (means - prototypes)
    second, target = np.full((modes, seconds), 0.4), np.zeros((modes, 0))
    sums = Statistics(weight, offset, second, target)
    return TaskRelease(
        0, np.arange(modes), prototypes, sums, Noise(noise, noise, noise, noise), 4.0
    )


def observed(release: TaskRelease) -> tuple[np.ndarray, np.ndarray]:
    return release.means(np.full(len(release.modes), 4.0))


def test_the_mean_of_a_class_goes_where_the_map_says(corpus, turn):
    """The mean of mapped texts is the mapped mean: an affine map, before texts get unit length."""
    other = unit(corpus @ turn[:, :12] + 0.1)
    old, new = space_of(corpus, "old", D), space_of(other, "new", 12)
    between, _ = fit_map(corpus, other)
    texts = corpus[:40]
    moved = (texts @ between.matrix + between.offset).mean(axis=0)
    way = passage(old, new, between)
    found, _ = observed(carried(release_of(old.into(texts).mean(axis=0)[None]), way))
    np.testing.assert_allclose(found, new.into(moved)[None], atol=1e-9)


def test_where_fewer_directions_are_released_the_others_stand_at_their_public_middle(corpus, turn):
    old, new = space_of(corpus, "old"), space_of(corpus @ turn, "new", 12)
    between = Affine(turn, np.zeros(D))
    way = passage(old, new, between)
    assert way.matrix.shape == (R, 12)
    x = np.random.default_rng(3).normal(size=(5, R))
    z = old.lift(np.hstack([x, np.zeros((5, D - R))]))  # what is not released is 0
    np.testing.assert_allclose(x @ way.matrix + way.offset, new.into(z @ turn), atol=1e-9)


def test_a_rotation_keeps_what_was_released(corpus, turn):
    """The rotated corpus has the same space up to the rotation, so nothing may change at all."""
    old, new = space_of(corpus, "old"), space_of(corpus @ turn, "new")
    way = passage(old, new, Affine(turn, np.zeros(D)))
    np.testing.assert_allclose(np.abs(way.matrix), np.eye(R), atol=1e-7)
    np.testing.assert_allclose(way.offset, 0.0, atol=1e-9)
    assert way.loudness == pytest.approx(1.0)


def test_an_estimate_after_a_rotation_is_the_estimate_before_it(corpus, turn):
    texts = unit(np.random.default_rng(6).standard_normal((LABELS, D)))
    family, release = Family("classification", LABELS), None
    replays = []
    for z, label_texts in ((corpus, texts), (corpus @ turn, texts @ turn)):
        space = space_of(z, "space")
        modes = declare_modes(space, z, label_texts, 1, "labels", Seeds(1).at("prototypes"))
        if release is None:
            old, release = space, release_of(modes.prototypes.mean + 0.1, noise=0.3)
        else:
            release = carried(release, passage(old, space, Affine(turn, np.zeros(D))))
        replays.append((space, estimate_replay([release], modes, space, family)))
    (old, before), (new, after) = replays
    rest = np.zeros((LABELS, D - R))
    there = new.lift(np.hstack([after.mean, rest]))
    np.testing.assert_allclose(there, old.lift(np.hstack([before.mean, rest])) @ turn, atol=1e-7)
    np.testing.assert_allclose(after.relative, before.relative, atol=1e-7)
    np.testing.assert_allclose(after.weights, before.weights, atol=1e-12)
    np.testing.assert_array_equal(after.known, before.known)


def test_noise_gets_as_loud_as_the_map_makes_it():
    """By Monte Carlo: carried noise has the size that is noted, directions as they matter."""
    rng = np.random.default_rng(7)
    matrix = rng.normal(size=(R, 5)) * np.linspace(0.1, 3.0, R)[:, None]
    matters = np.array([4.0, 2.0, 1.0, 1.0, 0.0])
    way = Passage(matrix, rng.normal(size=5), matters)
    heard = rng.standard_normal((40_000, R)) @ way.matrix
    loud = np.square(heard).mean(axis=0) @ matters / matters.sum()
    assert np.sqrt(loud) == pytest.approx(way.loudness, rel=0.02)
    release = release_of(np.zeros((2, R)), noise=0.5)
    found = carried(release, way)
    assert found.noise.offset == pytest.approx(0.5 * way.loudness)
    assert replace(found.noise, offset=0.5) == release.noise  # weights and spread are not moved
    np.testing.assert_allclose(observed(found)[1], np.square(0.5 * way.loudness / 4.0))


def test_twice_as_long_vectors_carry_twice_the_noise():
    assert plain(2.0 * np.eye(R)).loudness == pytest.approx(2.0)
    assert plain(np.eye(R, 2 * R)).loudness == pytest.approx(np.sqrt(0.5))


def plain(matrix: np.ndarray, offset: float = 0.0) -> Passage:
    """All directions matter alike."""
    width = matrix.shape[1]
    return Passage(matrix, np.full(width, offset), np.ones(width))


def test_weights_targets_and_spread_are_taken_along_unchanged():
    release = release_of(np.ones((2, R)))
    found = carried(release, plain(np.eye(R), 3.0))
    for name in ("weight", "second", "target"):
        np.testing.assert_array_equal(getattr(found.sums, name), getattr(release.sums, name))
    assert (found.task, found.expected_weight) == (release.task, release.expected_weight)
    np.testing.assert_allclose(observed(found)[0], 4.0)


def test_selected_means_are_taken_along_too():
    way = plain(np.diag(np.arange(1.0, R + 1)), -1.0)
    release = replace(release_of(np.zeros((1, R))), elected=np.ones((1, R)))
    np.testing.assert_allclose(carried(release, way).elected, np.arange(R)[None])
    assert carried(release_of(np.zeros((1, R))), way).elected is None


@pytest.mark.parametrize("seconds", [R, R * (R + 1) // 2])
def test_variances_of_single_directions_cannot_be_carried(seconds):
    release = release_of(np.zeros((2, R)), seconds=seconds)
    with pytest.raises(ConfigError, match="second_moments must be 'shared'"):
        carried(release, plain(np.eye(R)))


def test_numbers_without_their_meaning_end_up_somewhere_else(corpus, turn):
    old, new = space_of(corpus, "old"), space_of(corpus @ turn, "new", 12)
    way = raw_passage(old, new)
    x = np.random.default_rng(8).normal(size=(3, R))
    np.testing.assert_array_equal(x @ way.matrix + way.offset, np.hstack([x, np.zeros((3, 4))]))


# -- the replay ------------------------------------------------------------------------------------


def replay_in(space: PublicSpace, z: np.ndarray, release: TaskRelease):
    modes = declare_modes(space, z, z[:LABELS], 1, "labels", Seeds(1).at("prototypes"))
    return estimate_replay([release], modes, space, Family("classification", LABELS))


def test_a_lifted_replay_has_its_means_where_the_map_says_and_nothing_else_changed(corpus, turn):
    old, new = space_of(corpus, "old", D), space_of(corpus @ turn, "new", D)
    texts = [corpus[40 * k : 40 * (k + 1)].mean(axis=0) for k in range(LABELS)]
    replay = replay_in(old, corpus, release_of(old.into(np.stack(texts))))
    found = lifted(replay, passage(old, new, Affine(turn, np.zeros(D))))
    for mine, theirs in ((replay.mean, found.mean), (replay.centre, found.centre)):
        np.testing.assert_allclose(new.lift(theirs), old.lift(mine) @ turn, atol=1e-9)
    for name in ("weights", "relative", "labels", "tasks", "targets", "known"):
        np.testing.assert_array_equal(getattr(found, name), getattr(replay, name))


def test_a_replay_with_variances_of_single_directions_is_not_lifted(corpus, turn):
    old, new = space_of(corpus, "old"), space_of(corpus @ turn, "new")
    means = old.into(corpus[:LABELS])
    replay = replay_in(old, corpus, release_of(means, seconds=R))
    with pytest.raises(ConfigError, match="shared"):
        lifted(replay, passage(old, new, Affine(turn, np.zeros(D))))


def test_two_directions_with_variances_of_their_own_are_enough_to_refuse(corpus, turn):
    old, new = space_of(corpus, "old"), space_of(corpus @ turn, "new")
    replay = replay_in(old, corpus, release_of(old.into(corpus[:LABELS])))
    way = passage(old, new, Affine(turn, np.zeros(D)))
    with pytest.raises(ConfigError, match="to lift a replay"):
        lifted(replace(replay, relative=np.ones((LABELS, 2))), way)
    with pytest.raises(ConfigError, match="to carry releases"):
        carried(release_of(np.zeros((2, R)), seconds=2), plain(np.eye(R)))

"""From noisy sums to Q: estimates are shrunk according to the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.protocol.head import Family
from cslr.protocol.step4_aggregate.contribution import Layout, Statistics
from cslr.protocol.step4_aggregate.estimate import (
    VARIANCE_FLOOR,
    Noise,
    TaskRelease,
    estimate_replay,
    expected_means,
)
from cslr.protocol.step4_aggregate.mixed_model import USUAL, _effect_of_texts, effects_of

CLIENTS = 50.0
FOUR = Family("classification", 4)
QUIET = Noise(1e-9, 1e-9, 1e-9, 1e-9)
LOUD = Noise(1e6, 1e6, 1e6, 1e6)
SILENT = Noise(0.0, 0.0, 0.0, 0.0)


def released(
    modes,
    chosen,
    offsets,
    noise=QUIET,
    seconds=0.0,
    shape=1,
    weight=CLIENTS,
    task=0,
    targets=None,
) -> TaskRelease:
    """Sums in which ``weight`` clients agree on the offsets (K_t, r) of some modes."""
    k = np.asarray(chosen)
    offsets = np.broadcast_to(offsets, (len(k), 8))
    return TaskRelease(
        task=task,
        modes=k,
        prototypes=modes.prototypes.mean[k],
        sums=Statistics(
            np.full(len(k), weight),
            weight * offsets,
            np.full((len(k), shape), weight * seconds),
            weight * (np.zeros((len(k), 0)) if targets is None else targets),
        ),
        noise=noise,
        expected_weight=CLIENTS,
    )


def offsets_like(space, count, seed=0):
    """(count, r) offsets with the spectrum the estimator expects."""
    rng = np.random.default_rng(seed)
    return np.sqrt(space.between[:8]) * rng.standard_normal((count, 8))


@pytest.fixture(scope="module")
def space(world):
    return world.space()


@pytest.fixture(scope="module", params=["labels", "none"])
def modes(request, world, space):
    return world.modes(space, prior=request.param)


@pytest.fixture(scope="module")
def by_texts(world, space):
    return world.modes(space)


@pytest.fixture(scope="module")
def blank(world, space):
    return world.modes(space, prior="none")


@pytest.fixture(scope="module")
def read(space):
    """Q of some releases: ``read(modes, release, ...)``."""

    def go(modes, *releases, family=FOUR):
        return estimate_replay(releases, modes, space, family)

    return go


@pytest.mark.parametrize("noise", [QUIET, SILENT])
def test_without_noise_the_data_are_believed(space, modes, read, noise):
    offsets = offsets_like(space, 4)
    replay = read(modes, released(modes, range(4), offsets, noise))
    np.testing.assert_allclose(replay.mean, modes.prototypes.mean + offsets, atol=1e-4)
    assert replay.known.all()


def test_drowned_in_noise_the_prior_is_believed(space, modes, read):
    replay = read(modes, released(modes, range(4), offsets_like(space, 4), LOUD))
    np.testing.assert_allclose(replay.mean, modes.prototypes.mean, atol=1e-3)
    np.testing.assert_allclose(replay.relative, 1.0, atol=1e-3)
    np.testing.assert_allclose(replay.weights, 0.25, atol=1e-3)


def test_more_noise_means_less_trust(space, by_texts, read):
    offsets = offsets_like(space, 4)
    moved = [
        np.linalg.norm(
            read(by_texts, released(by_texts, range(4), offsets, Noise(1.0, noise, 1.0, 1.0))).mean
            - by_texts.prototypes.mean
        )
        for noise in (0.01, 3.0, 10.0, 30.0, 100.0)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.5 * moved[0]


def test_trust_says_how_far_noise_lets_a_mean_be_known(space, by_texts, read):
    def trust(noise: Noise, weight: float = 100.0):
        release = released(by_texts, range(2), offsets_like(space, 2), noise, weight=weight)
        return read(by_texts, release).trust

    np.testing.assert_allclose(trust(SILENT), [1, 1, 0, 0])  # two labels are not released yet
    found = [trust(Noise(0.0, noise, 0.0, 0.0))[0] for noise in (0.1, 3.0, 30.0, 1e6)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.9
    assert found[-1] < 1e-3
    assert trust(Noise(0.0, 3.0, 0.0, 0.0), weight=1e4)[0] > found[1]


def test_more_clients_mean_more_trust(space, by_texts, read):
    offsets, noise = offsets_like(space, 4), Noise(0.0, 20.0, 20.0, 20.0)
    moved = [
        np.linalg.norm(
            read(by_texts, released(by_texts, range(4), offsets, noise, weight=weight)).mean
            - by_texts.prototypes.mean
            - offsets
        )
        for weight in (10.0, 100.0, 1e3, 1e6)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.01 * moved[0]


def test_shrunk_means_are_nearer_to_the_truth_than_the_prior_or_the_data(space, by_texts, read):
    noise, errors = 12.0, []
    for seed in range(20):
        truth = offsets_like(space, 4, seed)
        seen = truth + noise / CLIENTS * np.random.default_rng(99 + seed).standard_normal((4, 8))
        replay = read(by_texts, released(by_texts, range(4), seen, Noise(1.0, noise, 1.0, 1.0)))
        found = replay.mean - by_texts.prototypes.mean
        errors.append([np.square(guess - truth).sum() for guess in (found, seen, 0.0)])
    shrunk, data, prior = np.mean(errors, axis=0)
    assert shrunk < min(data, prior)


def test_what_released_tasks_have_in_common_moves_modes_not_released_yet(space, by_texts, read):
    common = 3 * np.sqrt(space.between[:8])
    replay = read(by_texts, released(by_texts, [0, 1, 2], common))
    moved = replay.mean[3] - by_texts.prototypes.mean[3]
    np.testing.assert_allclose(moved, common, rtol=0.05)
    np.testing.assert_array_equal(replay.known, [True, True, True, False])


def test_two_label_texts_have_nothing_to_learn_about_a_third():
    spectrum = np.ones(3)
    assert _effect_of_texts(np.eye(3)[:2], spectrum) == []
    assert _effect_of_texts(np.zeros((4, 3)), spectrum) == []  # no label prior
    (effect,) = _effect_of_texts(np.eye(3), spectrum)
    shared = effect.factors @ effect.factors.T
    assert np.diagonal(shared).mean() == pytest.approx(1.0)
    assert (shared[np.triu_indices(3, 1)] < 0).all()  # around what all have in common


def test_without_anything_in_common_unreleased_modes_stay_nearly_where_they_are(
    space, by_texts, read
):
    own = np.array([1.0, -1.0])[:, None] * 2 * np.sqrt(space.between[:8])
    replay = read(by_texts, released(by_texts, [0, 1], own))
    moved = replay.mean[3] - by_texts.prototypes.mean[3]
    # What little there is follows from the texts: they are found a little less, or more, right.
    assert np.linalg.norm(moved) < 0.1 * np.linalg.norm(own[0])


def test_without_a_prior_labels_not_released_are_left_out(space, blank, read):
    replay = read(blank, released(blank, [1, 3], offsets_like(space, 2)))
    np.testing.assert_array_equal(replay.labels, [1, 3])
    assert replay.known.all()
    assert replay.weights.shape == (2,)


def test_before_any_release_the_label_prior_is_all_there_is(by_texts, read):
    replay = read(by_texts)
    np.testing.assert_array_equal(replay.mean, by_texts.prototypes.mean)
    np.testing.assert_allclose(replay.weights, 0.25)
    np.testing.assert_array_equal(replay.relative, 1.0)
    np.testing.assert_array_equal(replay.targets, np.eye(4))
    assert not replay.known.any()


def test_before_any_release_and_without_a_prior_there_is_nothing(space, blank, read):
    replay = read(blank)
    assert replay.mean.shape == replay.centre.shape == (0, 8)
    assert replay.weights.shape == replay.labels.shape == replay.known.shape == (0,)
    assert replay.targets.shape == (0, 4)
    assert replay.gaussians(space).mean.shape == (0, 8)
    assert replay.floored == 0.0


@pytest.mark.parametrize("shape", [1, 8])
def test_densities_have_the_public_spread_times_the_relative_variance(space, by_texts, read, shape):
    replay = read(by_texts, released(by_texts, range(4), 0.0, seconds=0.5, shape=shape))
    assert replay.relative.shape == (4, shape)
    densities = replay.gaussians(space)
    np.testing.assert_array_equal(densities.mean, replay.mean)
    expected = np.broadcast_to(replay.relative, (4, 8)) * space.spread
    np.testing.assert_allclose(densities.covariance, expected, rtol=1e-12)


@given(
    st.lists(st.floats(-200, 200), min_size=4, max_size=4),
    st.floats(0, 100),
    st.floats(-5, 5),
    st.sampled_from([1, 8]),
    st.floats(-10, 10),
)
@settings(max_examples=30, deadline=None)
def test_whatever_noise_does_the_replay_is_a_proper_mixture(
    world, weights, noise, second, shape, target
):
    space, tags = world.space(), world.family("tagging")
    modes = world.modes(space)
    noises, targets = Noise(noise, noise, noise, noise), target * np.eye(4, 7)
    release = released(modes, range(4), 0.1, noises, second, shape, targets=targets)
    sums = replace(release.sums, weight=np.array(weights))
    replay = estimate_replay([replace(release, sums=sums)], modes, space, tags)
    assert replay.weights.sum() == pytest.approx(1.0)
    assert np.all(replay.weights >= 0)
    assert np.all(replay.relative >= VARIANCE_FLOOR)
    assert np.all(replay.gaussians(space).covariance > 0)
    assert np.isfinite(replay.mean).all()
    assert np.all(replay.targets >= 0)
    np.testing.assert_allclose(replay.targets.sum(axis=1), 1.0)


@pytest.mark.parametrize("shape", [1, 8])
def test_variances_that_noise_made_negative_are_floored_and_reported(by_texts, read, shape):
    narrow = read(by_texts, released(by_texts, range(4), 0.0, QUIET, -3.0, shape))
    np.testing.assert_array_equal(narrow.relative, VARIANCE_FLOOR)
    assert narrow.floored == 1.0
    plain = read(by_texts, released(by_texts, range(4), 0.0, QUIET, 0.0, shape))
    assert plain.floored == 0.0


@pytest.mark.parametrize("shape", [1, 8])
def test_variances_are_second_moments_less_squared_means(space, by_texts, read, shape):
    # Rows of variance v around p + o have second moment v + (p + o)², so excess ((v + …) − …)/s.
    offset, p = offsets_like(space, 4), by_texts.prototypes.mean
    scale = 0.6
    excess = (scale * space.spread + np.square(p + offset) - space.spread - np.square(p)) / (
        space.spread
    )
    excess = excess if shape == 8 else excess.mean(axis=1, keepdims=True)
    release = released(by_texts, range(4), offset, shape=shape)
    sums = replace(release.sums, second=CLIENTS * excess)
    replay = read(by_texts, replace(release, sums=sums))
    np.testing.assert_allclose(replay.relative, scale, atol=1e-4)


def test_weights_follow_the_sums_when_these_are_clean(by_texts, read):
    release = released(by_texts, range(4), 0.0)
    sums = replace(release.sums, weight=np.array([10.0, 20.0, 30.0, 40.0]))
    replay = read(by_texts, replace(release, sums=sums))
    np.testing.assert_allclose(replay.weights, [0.1, 0.2, 0.3, 0.4], atol=1e-9)


def test_a_mode_nobody_spoke_for_does_not_explode(by_texts, read):
    release = released(by_texts, range(4), 0.1, Noise(0.0, 0.01, 0.01, 0.01))
    sums = replace(release.sums, weight=np.array([50.0, 0.0, -3.0, 50.0]))
    replay = read(by_texts, replace(release, sums=sums))
    assert np.all(np.abs(replay.mean) < 10)


@pytest.mark.parametrize("noise", [QUIET, Noise(5.0, 5.0, 5.0, 5.0)])
def test_tasks_released_one_by_one_are_read_as_if_released_together(space, by_texts, read, noise):
    offsets = offsets_like(space, 4)
    one = read(by_texts, released(by_texts, range(4), offsets, noise))
    first = released(by_texts, [0, 1], offsets[:2], noise, task=0)
    second = released(by_texts, [2, 3], offsets[2:], noise, task=1)
    np.testing.assert_allclose(read(by_texts, first, second).mean, one.mean, atol=1e-6)
    other = read(by_texts, second, first)
    np.testing.assert_array_equal(other.labels, [2, 3, 0, 1])  # in the order of their release
    np.testing.assert_allclose(other.mean[[2, 3, 0, 1]], one.mean, atol=1e-6)


@pytest.mark.parametrize("noise", [QUIET, Noise(0.0, 5.0, 5.0, 5.0)])
def test_what_clients_compared_themselves_with_does_not_matter(space, by_texts, read, noise):
    offsets = offsets_like(space, 4)
    plain = released(by_texts, range(4), offsets, noise)
    shift = 0.1 * offsets_like(space, 4, seed=1)
    moved = replace(
        plain,
        prototypes=plain.prototypes + shift,
        sums=replace(plain.sums, offset=plain.sums.offset - CLIENTS * shift),
    )
    np.testing.assert_allclose(read(by_texts, moved).mean, read(by_texts, plain).mean, atol=1e-9)


def test_noise_is_told_in_the_units_of_its_block():
    layout = Layout(2, 8, 1, 4, weight_scale=0.05, second_scale=0.5, target_scale=0.1)
    noise = Noise.of(2.0, [0.3], layout)
    assert noise.offset == pytest.approx(0.6)
    assert noise.weight == pytest.approx(12.0)
    assert noise.second == pytest.approx(1.2)
    assert noise.target == pytest.approx(6.0)
    assert Noise.of(None, [0.3], layout) == SILENT


# -- tasks that share labels -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def domains(by_texts):
    """Two tasks with the labels 0 and 1 each: their offsets (2, 2, r) and their releases."""
    offsets = np.random.default_rng(3).normal(scale=0.3, size=(2, 2, 8))
    parts = [released(by_texts, [0, 1], each, task=task) for task, each in enumerate(offsets)]
    return offsets, parts


def test_tasks_that_share_labels_each_append_their_own_modes(by_texts, read, domains):
    """A domain stream: the same labels again are new modes, not a replacement of the old."""
    offsets, parts = domains
    replay = read(by_texts, *parts)
    np.testing.assert_array_equal(replay.labels, [0, 1, 0, 1, 2, 3])
    np.testing.assert_array_equal(replay.tasks, [0, 0, 1, 1, -1, -1])
    np.testing.assert_array_equal(replay.known, [True] * 4 + [False] * 2)
    expected = by_texts.prototypes.mean[[0, 1, 0, 1]] + offsets.reshape(4, 8)
    np.testing.assert_allclose(replay.mean[:4], expected, atol=1e-3)


def test_modes_are_told_apart_around_the_middle_of_their_task_where_tasks_share_labels(
    by_texts, read, domains
):
    replay = read(by_texts, *domains[1])
    for task in (slice(0, 2), slice(2, 4)):
        middle = replay.mean[task].mean(axis=0)
        np.testing.assert_allclose(replay.centre[task], [middle, middle])


def test_modes_are_told_apart_around_the_public_centre_where_no_label_comes_again(
    space, by_texts, read
):
    offsets = offsets_like(space, 4)
    first = released(by_texts, [0, 1], offsets[:2], task=0)
    second = released(by_texts, [2, 3], offsets[2:], task=1)
    np.testing.assert_array_equal(read(by_texts, first, second).centre, 0.0)


def test_what_a_label_means_in_one_task_is_expected_of_it_in_the_next(space, by_texts):
    """The contrast between the labels is the same in the new task, whatever they have in common."""
    praise = np.sqrt(space.between[:8]) * np.array([1, -1, 1, -1, 1, -1, 1, -1])
    earlier = [
        released(by_texts, [0, 1], np.stack([praise, -praise]), task=task) for task in range(3)
    ]
    expected = expected_means(earlier, by_texts, space, 3, np.array([0, 1]))
    moved = expected - by_texts.prototypes.mean[:2]
    np.testing.assert_allclose(moved, [praise, -praise], atol=0.5 * np.abs(praise).max())
    assert np.sum((moved[0] - moved[1]) * praise) > 1.2 * praise @ praise  # of 2


SPECTRUM = np.array([1.0, 0.5, 0.25])
FLATTER = np.sqrt(SPECTRUM) * SPECTRUM.sum() / np.sqrt(SPECTRUM).sum()


@pytest.mark.parametrize(
    ("tasks", "labels", "expected"),
    [
        ([0, 0, 1, 1], [0, 1, 2, 3], {"all": [0, 0, 0, 0], "own": [0, 1, 2, 3]}),
        (
            [0, 0, 0, 0],
            [0, 0, 1, 1],
            {"all": [0, 0, 0, 0], "own": [0, 0, 1, 1], "sub": [0, 1, 2, 3]},
        ),
        (
            [0, 0, 1, 1],
            [0, 1, 0, 1],
            {
                "all": [0, 0, 0, 0],
                "own": [0, 1, 2, 3],
                "label": [0, 1, 0, 1],
                "task": [0, 0, 1, 1],
            },
        ),
    ],
)
def test_means_share_what_can_be_told_apart_each_at_its_usual_scale(tasks, labels, expected):
    effects = effects_of(np.array(tasks), np.array(labels), np.zeros((len(tasks), 3)), SPECTRUM)
    assert len(effects) == len(expected)
    for effect, (name, group) in zip(effects, expected.items(), strict=True):
        np.testing.assert_array_equal(effect.group, group)
        assert effect.usual == USUAL[name]
        spectrum = FLATTER if name == "label" else SPECTRUM
        np.testing.assert_allclose(effect.spectrum, spectrum)


# -- where the modes of a coming task are expected -------------------------------------------------


def test_before_any_release_coming_modes_are_expected_at_their_prototypes(space, modes):
    found = expected_means([], modes, space, 0, np.array([2, 0]))
    np.testing.assert_array_equal(found, modes.prototypes.mean[[2, 0]])


def test_after_a_release_coming_modes_are_expected_towards_what_all_have_in_common(space, modes):
    common = 3 * np.sqrt(space.between[:8])
    first = released(modes, [0, 1], common)
    found = expected_means([first], modes, space, 1, np.array([2, 3]))
    moved = found - modes.prototypes.mean[2:]
    share = moved @ common / (common @ common)
    assert np.all((share > 0.5) & (share < 1.1))
    away = moved - share[:, None] * common
    assert np.all(np.linalg.norm(away, axis=1) < 0.2 * np.linalg.norm(common))


def test_a_release_that_is_all_noise_moves_no_prototype(space, modes):
    first = released(modes, [0, 1], 3 * np.sqrt(space.between[:8]), LOUD)
    found = expected_means([first], modes, space, 1, np.array([2, 3]))
    np.testing.assert_allclose(found, modes.prototypes.mean[2:], atol=1e-3)


def test_a_mode_not_released_yet_stands_in_the_replay_where_it_is_expected(space, by_texts, read):
    first = released(by_texts, [0, 1], offsets_like(space, 2), Noise(1.0, 5.0, 1.0, 1.0))
    expected = expected_means([first], by_texts, space, 1, np.array([2, 3]))
    np.testing.assert_allclose(read(by_texts, first).mean[2:], expected, atol=1e-9)


# -- targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["intents", "tagging"])
def test_without_noise_targets_are_believed_and_drowned_in_it_the_usual_ones(
    world, by_texts, read, name
):
    family = world.family(name)
    rng = np.random.default_rng(0)
    true = family.projected(family.usual + rng.uniform(-0.3, 0.3, family.usual.shape))
    beyond = true - family.usual
    found = [
        read(by_texts, released(by_texts, range(4), 0.0, noise, targets=beyond), family=family)
        for noise in (QUIET, LOUD)
    ]
    np.testing.assert_allclose(found[0].targets, true, atol=1e-9)
    np.testing.assert_allclose(found[1].targets, family.usual, atol=1e-3)


def test_the_target_of_a_mode_not_released_yet_is_the_usual_one(world, by_texts, read):
    tags = world.family("tagging")
    beyond = np.zeros((2, 7))
    beyond[1, 1:3] = 0.3, -0.3
    replay = read(by_texts, released(by_texts, [0, 1], 0.0, targets=beyond), family=tags)
    np.testing.assert_allclose(replay.targets[1, 1:3], [0.8, 0.2], atol=1e-9)
    np.testing.assert_array_equal(replay.targets[2:], tags.usual[2:])


def test_in_classification_the_label_settles_the_target(space, by_texts, read):
    replay = read(by_texts, released(by_texts, [2, 0], offsets_like(space, 2)))
    np.testing.assert_array_equal(replay.targets, np.eye(4)[replay.labels])


def test_logits_of_intents_are_read_one_by_one_among_the_labels_of_the_group(world, space, read):
    """Each is the sigmoid of eight times its logit; outputs of other groups are zero."""
    modes, family = world.modes(space, pooled=True), world.family("intents")
    logits = np.array([[0.5, -0.25, 0.9, 0.9], [0.9, 0.9, 0.0, 0.125]])
    release = replace(released(modes, range(2), 0.0, targets=logits), logits=True)
    expected = np.array([[1 / (1 + np.exp(-4)), 1 / (1 + np.exp(2)), 0, 0], [0, 0, 0.5, 0]])
    expected[1, 3] = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(read(modes, release, family=family).targets, expected, atol=1e-6)


def test_logits_of_classes_are_a_softmax_among_the_labels_of_the_group(world, space, read):
    """The softmax of eight times the logits; labels of another group get zero."""
    modes = world.modes(space, pooled=True)
    logits = np.array([[0.25, -0.25, 0.9, 0.9], [0.9, 0.9, 0.125, 0.125]])
    release = replace(released(modes, range(2), 0.0, targets=logits), logits=True)
    first = 1 / (1 + np.exp(-4))
    expected = np.array([[first, 1 - first, 0, 0], [0, 0, 0.5, 0.5]])
    np.testing.assert_allclose(read(modes, release).targets, expected, atol=1e-6)


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_matrices_of_all_tasks_are_one_covariance_within_modes(space, by_texts, read, tasks):
    """M / Σw − Σ w (μ − p)(μ − p)ᵀ / Σw, where noise does not matter and all means are known."""
    away = offsets_like(space, 4)
    within = np.diag(np.linspace(1.0, 2.0, 8)) + 0.1
    releases = []
    for task in range(tasks):
        chosen = [2 * task, 2 * task + 1]
        moments = 2 * within + away[chosen].T @ away[chosen]
        release = released(by_texts, chosen, away[chosen], SILENT, shape=0, task=task)
        triangle = CLIENTS * moments[np.triu_indices(8)]
        releases.append(replace(release, sums=replace(release.sums, tied=triangle)))
    found = read(by_texts, *releases)
    np.testing.assert_allclose(found.tied[:8, :8], within, rtol=0.01, atol=0.01)
    assert found.floored == 0.0

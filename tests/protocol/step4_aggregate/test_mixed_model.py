"""The mixed model of means, against a Gaussian conditional that is worked out the long way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from cslr.numerics.linear_algebra import Groups, membership
from cslr.protocol.step4_aggregate import mixed_model
from cslr.protocol.step4_aggregate.mixed_model import (
    CONTRAST_UNSURE,
    LEAST_NOISE,
    SCALE_DECADES,
    Effect,
    _Model,
    _shared,
    clarity,
    model_facts,
    posterior_means,
    trust_in_means,
)

K, R = 6, 3
TASKS = np.array([0, 0, 1, 1, 2, 2])
LABELS = np.array([0, 1, 0, 1, 0, 1])
SPECTRUM = np.array([1.0, 0.5, 0.1])


def some_effects(count: int = 4) -> list[Effect]:
    """All modes, each its own, each label, each task: the first ``count`` of these."""
    flat = np.full(R, SPECTRUM.mean())
    return [
        Effect(np.zeros(K, dtype=np.int64), SPECTRUM, 0.3),
        Effect(np.arange(K), SPECTRUM, 0.2),
        Effect(LABELS, flat, 0.1),
        Effect(TASKS, SPECTRUM, 0.4),
    ][:count]


def some_means(seed: int, unseen: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(observed, variance, prior) of K modes, the last ``unseen`` of them not released."""
    rng = np.random.default_rng(seed)
    prior = rng.standard_normal((K, R))
    observed = prior + rng.standard_normal(R) + 0.4 * rng.standard_normal((K, R))
    variance = rng.uniform(0.01, 0.3, K)
    variance[K - unseen :] = np.inf
    return observed, variance, prior


def log_density(y: np.ndarray, covariance: np.ndarray) -> float:
    return -0.5 * float(y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])


def the_long_way(observed, variance, prior, effects) -> np.ndarray:
    """E[θ | observed] on the full (K·r) system, scales and β by a search without gradients."""
    seen = np.flatnonzero(np.isfinite(variance))
    places = (seen[:, None] * R + np.arange(R)).ravel()
    centre = prior.mean(axis=0)
    x, y = (prior - centre).ravel(), (observed - centre).ravel()
    noise = np.diag(np.repeat(variance[seen], R))
    usual = np.log([effect.usual for effect in effects])

    def covariance(log_scales):
        total = np.zeros((K * R, K * R))
        for log_scale, effect in zip(log_scales, effects, strict=True):
            together = effect.group[:, None] == effect.group
            total += np.exp(log_scale) * np.kron(together, np.diag(effect.spectrum))
        return total

    def surprise(parameters):
        log_scales, contrast = parameters[:-1], parameters[-1]
        total = covariance(log_scales)[np.ix_(places, places)] + noise
        decades = (log_scales - usual) / (SCALE_DECADES * np.log(10))
        doubt = (contrast - 1) / CONTRAST_UNSURE
        prior_of_both = -0.5 * (decades @ decades + doubt**2)
        return -log_density(y[places] - contrast * x[places], total) - prior_of_both

    found = minimize(
        surprise,
        np.append(usual, 1.0),
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000},
    ).x
    between, contrast = covariance(found[:-1]), found[-1]
    gain = between[:, places] @ np.linalg.inv(between[np.ix_(places, places)] + noise)
    theta = contrast * x + gain @ (y - contrast * x)[places]
    return centre + theta.reshape(K, R)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unseen", [0, 2])
@pytest.mark.parametrize("count", [2, 4])
def test_the_posterior_is_the_gaussian_conditional_of_the_full_system(seed, unseen, count):
    given_means, effects = some_means(seed, unseen), some_effects(count)
    np.testing.assert_allclose(
        posterior_means(*given_means, effects), the_long_way(*given_means, effects), atol=2e-3
    )


def model_of(observed, variance, prior, effects) -> _Model:
    return _Model(
        observed.T,
        prior.T,
        variance,
        _shared(effects, np.ones(len(prior), dtype=np.bool_)),
        [effect.spectrum for effect in effects],
        np.log([effect.usual for effect in effects]),
    )


@given(st.integers(0, 10**6), st.lists(st.floats(-3, 1), min_size=4, max_size=4))
@settings(max_examples=25, deadline=None)
def test_the_gradient_of_the_loss_is_its_slope(seed, log_scales):
    model = model_of(*some_means(seed), some_effects())
    point = np.array(log_scales)
    _, gradient = model._loss(point)
    slope = approx_fprime(point, lambda at: model._loss(at)[0], 1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)


def test_the_scales_found_are_no_worse_than_any_nearby():
    model = model_of(*some_means(1), some_effects())
    best = model.likeliest()
    least = model._loss(best)[0]
    rng = np.random.default_rng(0)
    for step in (0.03, 0.3, 1.0):
        for _ in range(20):
            assert model._loss(best + step * rng.standard_normal(4))[0] > least - 1e-6


def test_where_nothing_was_released_the_prior_is_the_answer():
    observed, _, prior = some_means(0)
    found = posterior_means(observed, np.full(K, np.inf), prior, some_effects())
    np.testing.assert_array_equal(found, prior)


def test_drowned_in_noise_the_prior_is_the_answer():
    observed, _, prior = some_means(0)
    found = posterior_means(observed, np.full(K, 1e12), prior, some_effects())
    np.testing.assert_allclose(found, prior, atol=1e-5)


def test_a_mode_drowned_in_noise_is_read_as_one_not_released():
    observed, variance, prior = some_means(2, unseen=2)
    drowned = np.where(np.isfinite(variance), variance, 1e10)
    observed[-2:] += 100.0
    np.testing.assert_allclose(
        posterior_means(observed, drowned, prior, some_effects()),
        posterior_means(observed, variance, prior, some_effects()),
        atol=1e-4,
    )


def test_what_stands_in_the_place_of_an_unreleased_mode_does_not_matter():
    observed, variance, prior = some_means(3, unseen=2)
    one = posterior_means(observed, variance, prior, some_effects())
    observed[-2:] = 1e6
    np.testing.assert_array_equal(posterior_means(observed, variance, prior, some_effects()), one)


@pytest.mark.parametrize("noise", [0.0, LEAST_NOISE])
def test_without_noise_the_observation_is_the_answer(noise):
    observed, _, prior = some_means(4)
    found = posterior_means(observed, np.full(K, noise), prior, some_effects())
    np.testing.assert_allclose(found, observed, atol=1e-5)


@given(st.permutations(range(K)), st.integers(0, 100), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_permuting_the_modes_permutes_the_answer(order, seed, unseen):
    observed, variance, prior = some_means(seed, unseen)
    permuted = [
        Effect(effect.group[order], effect.spectrum, effect.usual) for effect in some_effects()
    ]
    np.testing.assert_allclose(
        posterior_means(observed[order], variance[order], prior[order], permuted),
        posterior_means(observed, variance, prior, some_effects())[order],
        atol=1e-3,
    )


def test_how_groups_are_numbered_does_not_matter():
    effects = [Effect(7 - effect.group, effect.spectrum, effect.usual) for effect in some_effects()]
    np.testing.assert_array_equal(
        posterior_means(*some_means(5), effects), posterior_means(*some_means(5), some_effects())
    )


def test_moving_everything_moves_the_answer_alike():
    observed, variance, prior = some_means(6, unseen=1)
    shift = np.array([3.0, -2.0, 1.0])
    np.testing.assert_allclose(
        posterior_means(observed + shift, variance, prior + shift, some_effects()),
        posterior_means(observed, variance, prior, some_effects()) + shift,
        atol=1e-9,
    )


def test_texts_that_exaggerate_are_believed_less_where_nothing_was_released():
    """Released modes differ half as much as their texts, so the next mode is shrunk too."""
    _, _, prior = some_means(7)
    centre = prior.mean(axis=0)
    variance = np.array([0.01] * (K - 1) + [np.inf])
    drawn = posterior_means(centre + 0.5 * (prior - centre), variance, prior, some_effects(2))
    share = (drawn[-1] - centre) @ (prior[-1] - centre) / np.sum(np.square(prior[-1] - centre))
    assert 0.4 < share < 0.9
    right = posterior_means(prior, variance, prior, some_effects(2))
    np.testing.assert_allclose(right, prior, atol=1e-9)


def test_a_mode_learns_from_those_of_its_group_and_not_from_others():
    prior, apart = np.zeros((K, R)), np.array([1.0, -1.0, 1.0])
    observed = np.where(LABELS[:, None] == 0, apart, -apart)
    variance = np.array([1e-4] * (K - 1) + [np.inf])  # the last is of label 1
    by_label = Effect(LABELS, np.ones(R), 0.5)
    own = Effect(np.arange(K), np.ones(R), 0.05)
    found = posterior_means(observed, variance, prior, [by_label, own])
    np.testing.assert_allclose(found[-1], -apart, atol=0.1)
    np.testing.assert_allclose(posterior_means(observed, variance, prior, [own])[-1], 0.0)


def test_an_effect_with_factors_is_shared_as_far_as_they_say():
    """What modes with opposite features have is opposite, also in one that was not released."""
    feature = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    linear = Effect(np.arange(K), SPECTRUM, 0.3, feature[:, None])
    prior = np.zeros((K, R))
    observed = np.outer(feature, np.ones(R))
    variance = np.array([0.01] * 5 + [np.inf])
    found = posterior_means(observed, variance, prior, [linear])
    np.testing.assert_allclose(found, observed, atol=0.1)


def test_the_constants_of_the_plan_are_those_the_model_is_fitted_with():
    """A release can only be read again with the scales it was made with."""
    assert model_facts() == {
        "all": 0.3,
        "task": 0.3,
        "label": 0.1,
        "own": 0.3,
        "sub": 0.3,
        "text": 0.3,
        "decades": 0.35,
        "contrast": 0.3,
    }
    assert (SCALE_DECADES, CONTRAST_UNSURE) == (0.35, 0.3)


@pytest.mark.parametrize(("size", "factor"), [(1e3, 100.0), (1e-9, 0.01)])
def test_no_scale_leaves_its_usual_size_by_more_than_a_factor_of_a_hundred(size, factor):
    """For any size of the means the limit is reached and not exceeded."""
    rng = np.random.default_rng(0)
    observed = size * rng.standard_normal((40, 400))
    own = Effect(np.arange(40), np.ones(400), 0.2)
    model = model_of(observed, np.full(40, 1e-8), np.zeros((40, 400)), [own])
    np.testing.assert_allclose(np.exp(model.likeliest()), 0.2 * factor, rtol=1e-6)


def modes_of_labels(modes: int) -> list[Effect]:
    """Three tasks of two labels, the same in all, with so many modes each."""
    tasks, labels = np.repeat(TASKS, modes), np.repeat(LABELS, modes)
    return [
        Effect(np.zeros(K * modes, dtype=np.int64), SPECTRUM, 0.3),
        Effect(2 * tasks + labels, SPECTRUM, 0.2),
        Effect(np.arange(K * modes), SPECTRUM, 0.2),
        Effect(labels, SPECTRUM, 0.1),
        Effect(tasks, SPECTRUM, 0.4),
    ]


def test_several_modes_of_a_label_are_groups_and_no_factors():
    seen = np.ones(2 * K, dtype=np.bool_)
    kinds = [type(each).__name__ for each in _shared(modes_of_labels(2), seen)]
    assert kinds == ["ndarray", "Groups", "NoneType", "ndarray", "ndarray"]
    one_mode = [type(each).__name__ for each in _shared(modes_of_labels(1), seen[:K])]
    assert one_mode == ["ndarray", "NoneType", "NoneType", "ndarray", "ndarray"]


@pytest.mark.parametrize("unseen", [0, 3])
def test_groups_are_the_same_model_as_factors(unseen, monkeypatch):
    """Means are within 1e-5: with groups among the factors the optimiser stops at another point."""
    rng, effects = np.random.default_rng(6), modes_of_labels(3)
    prior = rng.standard_normal((3 * K, R))
    observed = prior + rng.standard_normal(R) + 0.4 * rng.standard_normal((3 * K, R))
    variance = rng.uniform(0.01, 0.3, 3 * K)
    variance[len(variance) - unseen :] = np.inf
    found = posterior_means(observed, variance, prior, effects)

    def as_factors(effects, seen):
        found = [effect.of(seen) for effect in effects]
        return [membership(each.of) if isinstance(each, Groups) else each for each in found]

    monkeypatch.setattr("cslr.protocol.step4_aggregate.mixed_model._shared", as_factors)
    expected = posterior_means(observed, variance, prior, effects)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


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
    monkeypatch.setattr(mixed_model, "MOST_MODES", 10)
    assert clarity(mean, noise, labels, space) == pytest.approx(whole, rel=0.1)

"""EM against scikit-learn, and what it must preserve."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from cslr.numerics.mixture import Gaussians, Mixture, e_step, fit, m_step, moments

FLOOR = 1e-9


def clients(b: int = 4, n: int = 30, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two blobs per client; every client has its own number of real rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(b, n, d)) + 3 * rng.integers(0, 2, size=(b, n, 1))
    mask = np.arange(n) < rng.integers(n // 2, n + 1, size=(b, 1))
    return x, mask


def starts_of(x: np.ndarray, s: int, modes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(s, x.shape[0], modes, x.shape[2])) + 1


def start_mixture(x: np.ndarray, modes: int) -> Mixture:
    means = starts_of(x, 1, modes)[0]
    return Mixture(np.full(means.shape[:-1], 1 / modes), Gaussians(means, np.ones(means.shape)))


@pytest.mark.parametrize("iterations", [1, 5, 40])
def test_fit_agrees_with_scikit_learn(iterations):
    x, mask = clients()
    starts = starts_of(x, 1, 3)
    found = fit(x, mask, starts, iterations, FLOOR)
    for i in range(len(x)):
        rows = x[i, mask[i]]
        known = GaussianMixture(
            3,
            covariance_type="diag",
            tol=0,
            reg_covar=0,
            max_iter=iterations,
            weights_init=np.full(3, 1 / 3),
            means_init=starts[0, i],
            precisions_init=np.tile(1 / rows.var(axis=0), (3, 1)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known.fit(rows)
        np.testing.assert_allclose(found.weights[i], known.weights_, atol=1e-8)
        np.testing.assert_allclose(found.gaussians.mean[i], known.means_, atol=1e-8)
        np.testing.assert_allclose(found.gaussians.covariance[i], known.covariances_, atol=1e-8)


@pytest.mark.parametrize(("n", "d", "modes"), [(30, 3, 2), (50, 64, 4)])
def test_fit_is_e_and_m_steps_in_turn(n, d, modes):
    """All components of a client in one product: within 1e-9 of the steps one by one."""
    x, mask = clients(b=6, n=n, d=d, seed=3)
    mask[2] = False
    start = x[:, :modes]
    found = fit(x, mask, start[None], 12, FLOOR)
    spread = [
        rows[real].var(axis=0) for rows, real in zip(x, mask | ~mask.any(1)[:, None], strict=True)
    ]
    variance = np.tile(np.array(spread)[:, None], (1, modes, 1))
    known = Mixture(np.full(start.shape[:-1], 1 / modes), Gaussians(start, variance))
    for _ in range(12):
        known = m_step(e_step(known, x, mask)[0], x, mask, FLOOR)
    np.testing.assert_allclose(found.weights, known.weights, atol=1e-9)
    np.testing.assert_allclose(found.gaussians.mean, known.gaussians.mean, atol=1e-9)
    np.testing.assert_allclose(found.gaussians.covariance, known.gaussians.covariance, atol=1e-9)


def test_e_step_agrees_with_scikit_learn():
    x, mask = clients()
    mixture = start_mixture(x, 3)
    share, likelihood = e_step(mixture, x, mask)
    for i in range(len(x)):
        known = GaussianMixture(3, covariance_type="diag")
        known.weights_, known.means_ = mixture.weights[i], mixture.gaussians.mean[i]
        known.covariances_ = mixture.gaussians.covariance[i]
        known.precisions_cholesky_ = 1 / np.sqrt(known.covariances_)
        rows = x[i, mask[i]]
        np.testing.assert_allclose(share[i, mask[i]], known.predict_proba(rows), atol=1e-12)
        np.testing.assert_allclose(likelihood[i], known.score(rows) * len(rows), rtol=1e-12)


def test_full_covariances_are_understood_by_the_e_step():
    x, mask = clients()
    diagonal = start_mixture(x, 3)
    covariance = diagonal.gaussians.covariance[..., None] * np.eye(3)
    full = Mixture(diagonal.weights, Gaussians(diagonal.gaussians.mean, covariance))
    for one, other in zip(e_step(diagonal, x, mask), e_step(full, x, mask), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.integers(1, 12))
def test_the_likelihood_never_falls(seed, modes, d, n):
    x, mask = clients(b=2, n=n, d=d, seed=seed)
    starts = starts_of(x, 2, modes, seed)
    likelihoods = []
    for iterations in range(1, 6):
        mixture = fit(x, mask, starts, iterations, floor=1e-3)
        likelihoods.append(e_step(mixture, x, mask)[1])
    assert np.all(np.diff(likelihoods, axis=0) >= -1e-8)


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4))
def test_an_m_step_preserves_the_first_and_second_moments(seed, modes, d):
    x, mask = clients(b=3, n=20, d=d, seed=seed)
    share = np.random.default_rng(seed).dirichlet(np.ones(modes), size=mask.shape)
    mixture = m_step(share, x, mask, floor=1e-12)
    mean, second = moments(mixture.gaussians)
    weights = mixture.weights[..., None]
    for i in range(len(x)):
        rows = x[i, mask[i]]
        np.testing.assert_allclose((weights * mean).sum(-2)[i], rows.mean(axis=0), atol=1e-12)
        expected = np.square(rows).mean(axis=0)
        np.testing.assert_allclose((weights * second).sum(-2)[i], expected, atol=1e-11)


def test_em_preserves_the_moments_after_every_step():
    x, mask = clients()
    for iterations in (1, 2, 7):
        mixture = fit(x, mask, starts_of(x, 2, 3), iterations, FLOOR)
        mean, second = moments(mixture.gaussians)
        for i in range(len(x)):
            rows = x[i, mask[i]]
            np.testing.assert_allclose(mixture.weights[i] @ mean[i], rows.mean(axis=0))
            np.testing.assert_allclose(mixture.weights[i] @ second[i], np.mean(rows**2, axis=0))


def test_one_component_is_the_mean_and_variance_of_the_real_rows():
    x, mask = clients()
    found = fit(x, mask, starts_of(x, 3, 1), iterations=2, floor=FLOOR)
    np.testing.assert_array_equal(found.weights, 1.0)
    for i in range(len(x)):
        rows = x[i, mask[i]]
        np.testing.assert_allclose(found.gaussians.mean[i, 0], rows.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(found.gaussians.covariance[i, 0], rows.var(axis=0), rtol=1e-13)


def test_far_from_the_origin_the_variance_is_still_right():
    x, mask = clients()
    near = fit(x, mask, starts_of(x, 1, 1), 1, FLOOR)
    far = fit(x + 1e6, mask, starts_of(x, 1, 1) + 1e6, 1, FLOOR)
    np.testing.assert_allclose(far.gaussians.covariance, near.gaussians.covariance, rtol=1e-8)


def test_the_order_of_clients_does_not_matter():
    x, mask = clients(b=7)
    starts = starts_of(x, 4, 3)
    order = np.random.default_rng(2).permutation(7)
    found = fit(x, mask, starts, 10, FLOOR)
    permuted = fit(x[order], mask[order], starts[:, order], 10, FLOOR)
    alone = fit(x[:1], mask[:1], starts[:, :1], 10, FLOOR)
    for get in (
        lambda m: m.weights,
        lambda m: m.gaussians.mean,
        lambda m: m.gaussians.covariance,
    ):
        np.testing.assert_allclose(get(permuted), get(found)[order], rtol=0, atol=1e-12)
        np.testing.assert_allclose(get(alone), get(found)[:1], rtol=0, atol=1e-12)


def test_what_is_masked_out_does_not_matter():
    x, mask = clients()
    found = fit(x, mask, starts_of(x, 2, 3), 5, FLOOR)
    spoilt = np.where(mask[..., None], x, np.nan)
    again = fit(spoilt, mask, starts_of(x, 2, 3), 5, FLOOR)
    np.testing.assert_array_equal(again.gaussians.mean, found.gaussians.mean)
    share, likelihood = e_step(found, spoilt, mask)
    assert np.all(share[~mask] == 0)
    np.testing.assert_allclose(share[mask].sum(axis=-1), 1.0)
    assert np.isfinite(likelihood).all()


def test_each_client_keeps_its_most_likely_start():
    x, mask = clients()
    starts = starts_of(x, 5, 3)
    each = [fit(x, mask, start[None], 8, FLOOR) for start in starts]
    likelihood = np.array([e_step(mixture, x, mask)[1] for mixture in each])
    found = fit(x, mask, starts, 8, FLOOR)
    np.testing.assert_allclose(e_step(found, x, mask)[1], likelihood.max(axis=0), rtol=1e-12)


def test_of_equal_starts_the_lower_is_kept():
    x, mask = clients()
    start = starts_of(x, 1, 2)[0]
    mirrored = np.stack([start, start[:, ::-1]])  # the same mixture under other names
    found = fit(x, mask, mirrored, 3, FLOOR)
    first = fit(x, mask, mirrored[:1], 3, FLOOR)
    np.testing.assert_allclose(found.gaussians.mean, first.gaussians.mean, atol=1e-12)


def test_an_empty_client_has_no_weight_and_finite_parameters():
    x, mask = clients()
    mask = mask.copy()
    mask[1] = False
    found = fit(x, mask, starts_of(x, 2, 3), 4, floor=0.25)
    np.testing.assert_array_equal(found.weights[1], 0.0)
    np.testing.assert_array_equal(found.gaussians.mean[1], 0.0)
    np.testing.assert_array_equal(found.gaussians.covariance[1], 0.25)
    np.testing.assert_allclose(found.weights[[0, 2, 3]].sum(axis=-1), 1.0)
    share, likelihood = e_step(found, x, mask)
    assert likelihood[1] == 0
    assert np.all(share[1] == 0)


def test_an_empty_component_has_weight_and_mean_zero_and_the_floor_as_variance():
    x, mask = clients()
    share = np.zeros((*mask.shape, 2))
    share[..., 0] = 1
    bare = m_step(share, x, mask, floor=0.25)
    np.testing.assert_array_equal(bare.weights, np.tile([1.0, 0.0], (4, 1)))
    np.testing.assert_array_equal(bare.gaussians.mean[:, 1], 0.0)
    np.testing.assert_array_equal(bare.gaussians.covariance[:, 1], 0.25)


def test_a_component_of_negligible_mass_counts_as_empty():
    x, mask = clients()
    share = np.tile([1.0, 1e-320], (*mask.shape, 1))
    found = m_step(share, x, mask, floor=0.25)
    np.testing.assert_array_equal(found.weights, np.tile([1.0, 0.0], (4, 1)))
    np.testing.assert_array_equal(found.gaussians.mean[:, 1], 0.0)


def test_a_start_too_far_away_is_emptied_and_nothing_breaks():
    x, mask = clients()
    starts = starts_of(x, 1, 3)
    starts[0, :, 2] = 1e4
    found = fit(x, mask, starts, 5, FLOOR)
    np.testing.assert_array_equal(found.weights[:, 2], 0.0)
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1.0)
    assert np.isfinite(found.gaussians.mean).all()


def test_one_example_is_its_own_mean_with_the_floor_as_variance():
    x = np.array([[[1.0, -2.0]]])
    found = fit(x, np.array([[True]]), np.zeros((1, 1, 1, 2)), 3, floor=0.5)
    np.testing.assert_array_equal(found.gaussians.mean, x)
    np.testing.assert_array_equal(found.gaussians.covariance, 0.5)


@pytest.mark.parametrize("shape", [(3, 0, 2), (0, 5, 2), (0, 0, 2)])
def test_no_examples_and_no_clients(shape):
    x, mask = np.zeros(shape), np.ones(shape[:2], dtype=bool)
    found = fit(x, mask, np.zeros((2, shape[0], 4, 2)), 2, FLOOR)
    assert found.weights.shape == (shape[0], 4)
    np.testing.assert_array_equal(found.weights, 0.0)


def test_a_mixture_without_weight_explains_nothing():
    x, mask = clients()
    weightless = Mixture(np.zeros((4, 2)), start_mixture(x, 2).gaussians)
    share, likelihood = e_step(weightless, x, mask)
    np.testing.assert_array_equal(share, 0.0)
    np.testing.assert_array_equal(likelihood, -np.inf)
    np.testing.assert_array_equal(m_step(share, x, mask, FLOOR).weights, 0.0)


def test_variances_never_fall_under_the_floor():
    x, mask = clients()
    assert fit(x, mask, starts_of(x, 2, 6), 20, floor=0.3).gaussians.covariance.min() >= 0.3


def test_wrong_arguments_are_refused_by_name():
    x, mask = clients()
    starts = starts_of(x, 1, 2)
    share = np.zeros((*mask.shape, 2))
    for name, call in {
        "weights must have": lambda: Mixture(np.zeros(3), Gaussians(starts[0], starts[0])),
        "weights must not": lambda: Mixture(-np.ones((4, 2)), Gaussians(starts[0], starts[0])),
        "mask": lambda: e_step(start_mixture(x, 2), x, mask[:, 1:]),
        "mask must be booleans": lambda: e_step(start_mixture(x, 2), x, mask.astype(float)),
        "responsibilities": lambda: m_step(share[:, 1:], x, mask, FLOOR),
        "floor": lambda: m_step(share, x, mask, 0.0),
        "iterations": lambda: fit(x, mask, starts, 0, FLOOR),
        "starts": lambda: fit(x, mask, starts[:, 1:], 1, FLOOR),
        "x must have": lambda: fit(x[0], mask[0], starts, 1, FLOOR),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()

"""The list learner: always L entries, the client's own moments, and blind to order."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.numerics.gaussian import moments
from cslr.numerics.mixture import Mixture
from cslr.protocol.step1_list import ListLearner, clip_embeddings, learn_lists, steadied

SPECTRUM = np.linspace(2.0, 0.5, 5)


def clients(b: int = 3, n: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two clumps per client; client i has n − 5 i rows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((b, n, 5)) + 4.0 * rng.integers(2, size=(b, n, 1))
    return x, np.arange(n) < n - 5 * np.arange(b)[:, None]


def streams(b: int) -> list[np.random.Generator]:
    return [np.random.default_rng(100 + i) for i in range(b)]


def entries(lists: Mixture) -> list[np.ndarray]:
    """For each client its entries (L, 1 + r), sorted."""
    rows = np.concatenate([lists.weights[..., None], lists.gaussians.mean], axis=-1)
    return [each[np.argsort(each[:, 1])] for each in rows]


def learn(x, mask, size=4):
    return learn_lists(x, mask, SPECTRUM, ListLearner(size=size), streams(len(x)))


def test_a_list_of_one_is_the_mean_and_the_variance():
    x, mask = clients()
    lists = learn(x, mask, size=1)
    for i in range(len(x)):
        np.testing.assert_allclose(lists.gaussians.mean[i, 0], x[i, mask[i]].mean(axis=0))
        np.testing.assert_allclose(lists.gaussians.covariance[i, 0], x[i, mask[i]].var(axis=0))
    np.testing.assert_array_equal(lists.weights, np.ones((3, 1)))


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_a_list_has_exactly_its_size_whatever_the_client_holds(size):
    x, mask = clients(b=4, n=20)
    mask[1], mask[2] = False, np.arange(20) == 3  # no row, and one row
    lists = learn(x, mask, size)
    assert lists.weights.shape == (4, size)
    assert lists.gaussians.mean.shape == lists.gaussians.covariance.shape == (4, size, 5)
    np.testing.assert_allclose(lists.weights.sum(axis=1), [1, 0, 1, 1])
    assert np.isfinite(lists.gaussians.mean).all()
    assert np.all(lists.gaussians.covariance > 0)


@pytest.mark.parametrize("size", [2, 4])
def test_a_list_keeps_the_clients_first_and_second_moments(size):
    x, mask = clients()
    lists = learn(x, mask, size)
    mean, second = moments(lists.gaussians)
    for i in range(len(x)):
        rows = x[i, mask[i]]
        np.testing.assert_allclose(lists.weights[i] @ mean[i], rows.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(
            lists.weights[i] @ second[i], np.square(rows).mean(axis=0), rtol=1e-4
        )


def test_two_clumps_are_found_by_a_list_of_two():
    x, mask = clients(n=60)
    lists = learn(x, mask, size=2)
    for i in range(len(x)):
        means = np.sort(lists.gaussians.mean[i].mean(axis=1))
        np.testing.assert_allclose(means, [0.0, 4.0], atol=0.4)


@pytest.mark.parametrize("size", [1, 4])
def test_the_order_of_a_clients_rows_does_not_matter(size):
    x, mask = clients()
    order = np.stack([np.random.default_rng(i).permutation(20) for i in range(3)])
    permuted = learn(
        np.take_along_axis(x, order[..., None], axis=1),
        np.take_along_axis(mask, order, axis=1),
        size,
    )
    # Equally likely starts may name the entries in another order; a list has none.
    for one, other in zip(entries(learn(x, mask, size)), entries(permuted), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@pytest.mark.parametrize("size", [1, 4])
def test_the_order_of_clients_does_not_matter_down_to_the_last_bit(size):
    x, mask = clients()
    order = np.array([2, 0, 1])
    rngs = streams(3)
    permuted = learn_lists(
        x[order], mask[order], SPECTRUM, ListLearner(size=size), [rngs[i] for i in order]
    )
    lists = learn(x, mask, size)
    np.testing.assert_array_equal(permuted.weights, lists.weights[order])
    np.testing.assert_array_equal(permuted.gaussians.mean, lists.gaussians.mean[order])


def test_what_stands_in_the_padding_does_not_matter():
    x, mask = clients()
    other = np.where(mask[..., None], x, 1e3)
    np.testing.assert_array_equal(learn(other, mask).gaussians.mean, learn(x, mask).gaussians.mean)


def test_another_stream_may_begin_elsewhere_and_the_same_one_does_not():
    x, mask = clients()
    again = learn(x, mask).gaussians.mean
    np.testing.assert_array_equal(learn(x, mask).gaussians.mean, again)
    rngs = [np.random.default_rng(7 + i) for i in range(3)]
    other = learn_lists(x, mask, SPECTRUM, ListLearner(size=4), rngs).gaussians.mean
    assert not np.allclose(other, again)


def test_embeddings_are_clipped_to_the_unit_ball_and_short_ones_left_alone():
    z = np.array([[[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]])
    np.testing.assert_allclose(clip_embeddings(z), [[[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]])


def test_a_row_is_clipped_as_if_alone():
    # A hair over 1, as float32 encoders give it, beside a row that is far too long.
    rows = np.array([[0.6, 0.800004], [3.0, 4.0]], dtype=np.float32)
    np.testing.assert_array_equal(
        clip_embeddings(rows),
        np.concatenate([clip_embeddings(rows[:1]), clip_embeddings(rows[1:])]),
    )
    assert clip_embeddings(rows[:0]).shape == (0, 2)


def test_a_variance_with_little_support_is_the_public_one():
    x, mask = clients(b=1, n=20)
    lists = learn(x, mask, size=1)
    alone = steadied(lists, np.array([0]), SPECTRUM, pseudo=8.0)
    many = steadied(lists, np.array([10**9]), SPECTRUM, pseudo=8.0)
    half = steadied(lists, np.array([8]), SPECTRUM, pseudo=8.0)
    own = lists.gaussians.covariance
    np.testing.assert_allclose(alone.covariance[0, 0], SPECTRUM)
    np.testing.assert_allclose(many.covariance, own, rtol=1e-6)
    np.testing.assert_allclose(half.covariance, (own + SPECTRUM) / 2)
    np.testing.assert_array_equal(half.mean, lists.gaussians.mean)


@pytest.mark.parametrize("setting", ["size", "starts", "iterations"])
def test_a_learner_needs_at_least_one_of_everything(setting):
    with pytest.raises(ValueError, match="at least 1"):
        ListLearner(**{setting: 0})

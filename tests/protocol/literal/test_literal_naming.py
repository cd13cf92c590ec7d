"""Canonical ids by the server depend on released lists alone and on no order, for every matcher."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cslr.numerics.linear_algebra import folded
from cslr.numerics.mixture import Gaussians
from cslr.paper_constants import PaperConstants
from cslr.protocol.literal.naming import (
    _clustered,
    _moved,
    _Prototypes,
    named,
)
from cslr.protocol.step4_aggregate.contribution import Statistics

K, R, CLIENTS = 3, 8, 6
MATCHERS = ("signature", "nearest-mean", "hungarian", "optimal-transport")


@pytest.fixture
def request_of(world):
    """A request whose prototypes are near three well separated modes."""

    def make(matcher="signature", **constants):
        agreement = world.agreement(
            release="list",
            clipping="separate",
            second_moments="full",
            pooled=True,
            sub_modes=K,
            list_size=K,
            matcher=matcher,
            paper=PaperConstants(**{"lambda_min": 1e-2, **constants}),
        )
        request = agreement.request(0, (0, 1))
        near = Gaussians(centres() + 0.05, np.full((K, R), 0.05))
        return replace(request, prototypes=near)

    return make


def centres() -> np.ndarray:
    return 0.8 * np.eye(K, R)


def released(seed=0, noise=0.02) -> tuple[Statistics, np.ndarray]:
    """Lists of K entries near the centres, each client in an order of its own, and that order."""
    rng = np.random.default_rng(seed)
    order = np.stack([rng.permutation(K) for _ in range(CLIENTS)])
    mean = centres()[order] + noise * rng.standard_normal((CLIENTS, K, R))
    second = mean[..., :, None] * mean[..., None, :] + 0.05 * np.eye(R)
    weight = np.full((CLIENTS, K), 1 / K)
    return Statistics(weight, mean, folded(second), np.zeros((CLIENTS, K, 4))), order


def same_groups(ids: np.ndarray, order: np.ndarray) -> bool:
    """Whether two clusterings of the same entries are equal up to the numbers of clusters."""
    pairs = set(zip(ids.ravel().tolist(), order.ravel().tolist(), strict=True))
    return len(pairs) == K == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@pytest.mark.parametrize("matcher", MATCHERS)
@pytest.mark.parametrize("canonicalise", ["cluster", "assign"])
def test_entries_of_one_mode_get_one_name(request_of, matcher, canonicalise):
    lists, order = released()
    found = named(lists, request_of(matcher, canonicalise=canonicalise))
    assert found.ids.shape == (CLIENTS, 1, K)
    assert same_groups(found.ids[:, 0], order)


def test_prototypes_name_their_own_modes(request_of):
    lists, order = released()
    found = named(lists, request_of(canonicalise="assign"))
    np.testing.assert_array_equal(found.ids[:, 0], order)


def test_random_names_say_nothing(request_of):
    lists, order = released()
    assert not same_groups(named(lists, request_of("random")).ids[:, 0], order)


@pytest.mark.parametrize("matcher", MATCHERS)
def test_the_order_of_entries_does_not_matter(request_of, matcher):
    lists, _ = released(noise=0.1)
    swap = np.array([2, 0, 1])
    turned = Statistics(*(getattr(lists, name)[:, swap] for name in vars(lists) if name != "tied"))
    request = request_of(matcher)
    np.testing.assert_array_equal(
        named(turned, request).ids[:, 0], named(lists, request).ids[:, 0][:, swap]
    )


def test_signatures_are_raw_log_densities_unless_standardised(request_of):
    lists, _ = released()
    raw = named(lists, request_of()).signed
    told = named(lists, request_of(standardise=True)).signed
    np.testing.assert_allclose(told.mean(axis=-1), 0.0, atol=1e-9)
    assert np.abs(raw.mean(axis=-1)).max() > 1.0


def test_transport_weighs_covariances_by_tau(request_of):
    """Same means, two widths: only τ > 0 tells them apart."""
    lists, _ = released(noise=0.0)
    wide = np.array([0.02, 0.4, 0.02])
    mean = np.zeros((CLIENTS, K, R))
    second = wide[None, :, None, None] * np.eye(R) + np.zeros((CLIENTS, K, R, R))
    alike = replace(lists, offset=mean, second=folded(second))
    near = Gaussians(np.zeros((K, R)), np.stack([np.full(R, w) for w in (0.02, 0.4, 0.2)]))
    ids = {}
    for tau in (0.0, 1.0):
        request = replace(request_of("optimal-transport", tau=tau), prototypes=near)
        ids[tau] = named(alike, request).ids[0, 0]
    assert ids[1.0][0] == ids[1.0][2] != ids[1.0][1]
    assert len(set(ids[0.0].tolist())) == 1


def test_a_prototype_moves_to_the_weighted_mean_of_its_entries_and_stays_without_any():
    before = Gaussians(np.array([[9.0, 9.0], [5.0, 0.0]]), np.array([[1.0, 1.0], [3.0, 3.0]]))
    entries = Gaussians(np.array([[[0.0, 0.0], [4.0, 8.0]]]), np.array([[[1.0, 2.0], [5.0, 6.0]]]))
    weights, ids = np.array([[1.5, 0.5]]), np.array([[0, 0]])
    found = _moved(_Prototypes(np.array([0.5, 0.5]), before), weights, entries, ids)
    np.testing.assert_allclose(found.gaussians.mean, [[1.0, 2.0], [5.0, 0.0]])
    np.testing.assert_allclose(found.gaussians.covariance, [[2.0, 3.0], [3.0, 3.0]])
    np.testing.assert_allclose(found.weights, [2 / 3, 1 / 3])  # one without entries keeps its half


def test_a_density_that_all_entries_share_does_not_decide_about_their_names():
    """Raw log densities are far below zero in many directions: differences still count."""
    rng = np.random.default_rng(0)
    order = np.stack([rng.permutation(K) for _ in range(CLIENTS)])
    signed = 5.0 * np.eye(K, 24)[order] + 0.1 * rng.standard_normal((CLIENTS, K, 24))
    for common in (0.0, -1e9):
        assert same_groups(_clustered(signed + common, K), order)


def test_random_names_are_drawn_by_each_client_for_each_group_and_task(world, request_of):
    """A client's ids do not depend on the lists after its own."""
    lists, _ = released()
    request = request_of("random")
    ids = named(lists, request).ids
    fewer = Statistics(*(getattr(lists, name)[:4] for name in vars(lists) if name != "tied"))
    np.testing.assert_array_equal(named(fewer, request).ids, ids[:4])
    assert set(np.unique(ids)) <= set(range(K))
    assert not np.array_equal(named(lists, replace(request, task=1)).ids, ids)
    assert not np.array_equal(named(lists, replace(request, seed=request.seed + 1)).ids, ids)
    twice = Statistics(
        *(
            np.concatenate([getattr(lists, name)] * 2, axis=1)
            for name in vars(lists)
            if name != "tied"
        )
    )
    two = replace(
        request,
        groups=((0,), (1,)),
        prototypes=Gaussians(np.tile(request.prototypes.mean, (2, 1)), np.ones((2 * K, R))),
    )
    both = named(twice, two).ids
    np.testing.assert_array_equal(both[:, 0], ids[:, 0])
    assert not np.array_equal(both[:, 1], both[:, 0])


@pytest.mark.parametrize("matcher", MATCHERS)
def test_entries_of_each_group_are_named_by_its_own_prototypes(request_of, matcher):
    """The second group's modes stand in another order, and so do its names."""
    lists, order = released()
    request = request_of(matcher, canonicalise="assign")
    twice = Statistics(
        *(
            np.concatenate([getattr(lists, name)] * 2, axis=1)
            for name in vars(lists)
            if name != "tied"
        )
    )
    turned = np.array([1, 2, 0])
    near, spread = request.prototypes.mean, request.prototypes.covariance
    two = replace(
        request,
        groups=((0,), (1,)),
        prototypes=Gaussians(np.concatenate([near, near[turned]]), np.tile(spread, (2, 1))),
    )
    found = named(twice, two)
    assert found.ids.shape == (CLIENTS, 2, K)
    np.testing.assert_array_equal(found.ids[:, 0], order)
    np.testing.assert_array_equal(turned[found.ids[:, 1]], order)
    np.testing.assert_array_equal(found.mean[:, 0], found.mean[:, 1])
    if matcher == "signature":
        assert found.signed.shape == (CLIENTS, 2, K, request.space.anchors.shape[0])
        np.testing.assert_array_equal(found.signed[:, 0], found.signed[:, 1])
    else:
        assert found.signed is None


def test_a_released_signature_is_the_density_of_its_moments_at_the_anchors(request_of):
    """SciPy's, with the covariance made of what was released: M − μ μᵀ."""
    lists, _ = released()
    request = request_of()
    signed = named(lists, request).signed
    covariance = 0.05 * np.eye(R)
    for client in (0, 3):
        for entry in range(K):
            density = multivariate_normal(lists.offset[client, entry], covariance)
            expected = density.logpdf(request.space.anchors)
            np.testing.assert_allclose(signed[client, 0, entry], expected, rtol=1e-6)

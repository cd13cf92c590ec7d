"""Canonical ids: what every matcher guarantees; signatures recover the sub-modes of a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.numerics.mixture import Gaussians, Mixture
from cslr.protocol.step1_list import ListLearner, group_lists, learn_lists, steadied
from cslr.protocol.step3_match import MATCHERS, canonical_ids, match, squared_distances

WIDTH = 12
ORDERLY = [name for name in MATCHERS if name != "random"]
RNG = np.random.default_rng(3)
CENTRES = 1.5 * RNG.standard_normal((2, WIDTH))  # the two sub-modes of a label
PROTOTYPES = Gaussians(CENTRES + 0.3 * RNG.standard_normal((2, WIDTH)), np.full((2, WIDTH), 0.5))
ANCHORS = 1.5 * RNG.standard_normal((40, WIDTH))


def streams(b: int) -> list[np.random.Generator]:
    return [np.random.default_rng(50 + i) for i in range(b)]


def lists_of(b: int = 5, size: int = 3, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    shape = (b, size, WIDTH)
    means = CENTRES[rng.integers(2, size=(b, size))] + 0.5 * rng.standard_normal(shape)
    gaussians = Gaussians(means, rng.uniform(0.2, 0.8, shape))
    return Mixture(rng.dirichlet(np.ones(size), size=b), gaussians)


def of(lists: Mixture, index: object) -> Mixture:
    """Some of the clients, or some of their entries."""
    gaussians = Gaussians(lists.gaussians.mean[index], lists.gaussians.covariance[index])
    return Mixture(lists.weights[index], gaussians)


@pytest.mark.parametrize("matcher", MATCHERS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_entry_gets_an_id_of_a_prototype(matcher, size):
    ids = match(lists_of(size=size), PROTOTYPES, ANCHORS, matcher, streams(5))
    assert ids.shape == (5, size)
    assert ids.dtype == np.int64
    assert set(np.unique(ids)) <= {0, 1}


@pytest.mark.parametrize("matcher", MATCHERS)
def test_with_one_prototype_every_entry_is_zero(matcher):
    one = Gaussians(PROTOTYPES.mean[:1], PROTOTYPES.covariance[:1])
    np.testing.assert_array_equal(match(lists_of(), one, ANCHORS, matcher, streams(5)), 0)


@pytest.mark.parametrize("matcher", ORDERLY)
def test_permuting_a_list_permutes_its_ids(matcher):
    lists, order = lists_of(size=4), np.array([3, 1, 0, 2])
    ids = match(lists, PROTOTYPES, ANCHORS, matcher, streams(5))
    permuted = match(of(lists, np.s_[:, order]), PROTOTYPES, ANCHORS, matcher, streams(5))
    np.testing.assert_array_equal(permuted, ids[:, order])


@pytest.mark.parametrize("matcher", MATCHERS)
def test_a_client_is_matched_as_if_alone(matcher):
    # One client's ids must not depend on another's data: sensitivity would be void.
    lists = lists_of(b=6, size=4)
    far = of(lists, np.s_[:])
    far.gaussians.mean[5] *= 100.0
    together = match(far, PROTOTYPES, ANCHORS, matcher, streams(6))
    for i in range(6):
        alone = match(
            of(far, np.s_[i : i + 1]), PROTOTYPES, ANCHORS, matcher, streams(6)[i : i + 1]
        )
        np.testing.assert_array_equal(alone[0], together[i])


@pytest.mark.parametrize("matcher", MATCHERS)
def test_clients_without_examples_are_matched_without_a_word(matcher):
    lists = lists_of()
    empty = Mixture(
        np.zeros_like(lists.weights),
        Gaussians(
            np.zeros_like(lists.gaussians.mean), np.full_like(lists.gaussians.covariance, 1e-6)
        ),
    )
    assert match(empty, PROTOTYPES, ANCHORS, matcher, streams(5)).shape == (5, 3)


def alignment(matcher: str, clients: int = 30) -> float:
    """Share of list entries named by the sub-mode that most of their examples came from."""
    rng = np.random.default_rng(11)
    modes = rng.integers(2, size=(clients, 40))
    x = CENTRES[modes] + 0.6 * rng.standard_normal((clients, 40, WIDTH))
    mask, spread = np.ones(modes.shape, dtype=bool), np.full(WIDTH, 0.5)
    lists = learn_lists(x, mask, spread, ListLearner(size=4), streams(clients))
    counts = np.full(clients, 40)
    seen = Mixture(lists.weights, steadied(lists, counts, spread, 8.0))
    ids = match(seen, PROTOTYPES, ANCHORS, matcher, streams(clients))
    truth = np.linalg.norm(lists.gaussians.mean[..., None, :] - CENTRES, axis=-1).argmin(axis=-1)
    speaking = lists.weights > 0
    return float(np.mean((ids == truth)[speaking]))


def test_signatures_recover_the_two_sub_modes_of_a_label():
    assert alignment("signature") > 0.97


def test_nearest_means_recover_them_too_in_shared_coordinates():
    assert alignment("nearest-mean") > 0.97


def test_random_ids_recover_nothing():
    assert 0.35 < alignment("random") < 0.65


def test_signatures_do_not_mind_another_scale_than_the_prototypes_but_means_do():
    # A client whose encoder has twice the scale: signatures at its own anchors still compare.
    wide = Mixture(np.ones((1, 2)) / 2, Gaussians(CENTRES[None] + 9.0, np.full((1, 2, WIDTH), 0.5)))
    shifted = Gaussians(PROTOTYPES.mean + 9.0, PROTOTYPES.covariance)
    ids = match(wide, shifted, ANCHORS + 9.0, "signature", streams(1))
    np.testing.assert_array_equal(ids, [[0, 1]])


def test_hungarian_gives_two_like_entries_different_ids():
    twins = Mixture(
        np.ones((1, 2)) / 2,
        Gaussians(np.stack([CENTRES[:1] + 0.01, CENTRES[:1]], axis=1), np.full((1, 2, WIDTH), 0.5)),
    )
    np.testing.assert_array_equal(
        match(twins, PROTOTYPES, ANCHORS, "nearest-mean", streams(1)), [[0, 0]]
    )
    assert sorted(match(twins, PROTOTYPES, ANCHORS, "hungarian", streams(1))[0]) == [0, 1]


def test_random_ids_are_the_same_for_the_same_stream():
    lists = lists_of(size=8)
    one, two = (match(lists, PROTOTYPES, ANCHORS, "random", streams(5)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = match(lists, PROTOTYPES, ANCHORS, "random", streams(6)[1:])
    assert not np.array_equal(one, other)


def lists_at(mean: np.ndarray, covariance: np.ndarray, weights: np.ndarray) -> Mixture:
    """One client's list."""
    return Mixture(weights[None], Gaussians(mean[None], covariance[None]))


def test_transport_weighs_covariances_as_much_as_means():
    """Of two prototypes with one mean, an entry belongs to the one that is as wide."""
    wide = np.array([0.1, 1.0])[:, None] * np.ones((2, 3))
    same = Gaussians(np.zeros((2, 3)), wide)
    lists = lists_at(np.zeros((2, 3)), wide[::-1], np.array([0.5, 0.5]))
    ids = match(lists, same, np.zeros((1, 3)), "optimal-transport", streams(1))
    np.testing.assert_array_equal(ids, [[1, 0]])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_transport_is_relative_to_the_clients_own_largest_cost(scale):
    """Four entries and two prototypes that take half of the weight each, in any unit of length."""
    x = scale * np.array([[0.0], [0.1], [0.2], [1.0]])
    prototypes = Gaussians(scale * np.array([[0.0], [1.0]]), np.zeros((2, 1)))
    lists = lists_at(x, np.zeros((4, 1)), np.full(4, 0.25))
    ids = match(lists, prototypes, np.zeros((1, 1)), "optimal-transport", streams(1))
    np.testing.assert_array_equal(ids, [[0, 0, 1, 1]])


def test_names_that_the_server_gave_are_taken_and_who_has_none_goes_nowhere(world):
    request = world.agreement(sub_modes=2, list_size=2).request(0, (0, 1))
    examples = world.examples(0)
    names = {client: np.array([[0, 1], [1, client % 2]]) for client in range(11)}
    named = replace(request, names=names)
    for _, group in group_lists(examples, request):
        ids = canonical_ids(examples, group, named)
        np.testing.assert_array_equal(ids[:11], [names[client][group.place] for client in names])
        np.testing.assert_array_equal(ids[11], [-1, -1])


def test_a_device_compares_densities_that_public_examples_steady(world):
    """They count as eight by default; without them ids of clients with few rows would be chance."""
    request = world.agreement(sub_modes=2, list_size=2).request(0, (0, 1))
    examples = world.examples(0)
    for _, group in group_lists(examples, request):
        steady = steadied(group.lists, group.counts, request.space.spread, 8.0)
        expected = match(
            Mixture(group.lists.weights, steady),
            request.prototypes_of(group.place),
            request.space.anchors,
            "signature",
            group.rngs,
        )
        np.testing.assert_array_equal(canonical_ids(examples, group, request), expected)


def test_squared_distances_are_those_of_all_pairs_and_never_negative():
    rng = np.random.default_rng(1)
    a, b = 1e3 + rng.standard_normal((2, 4, 5)), 1e3 + rng.standard_normal((3, 5))
    expected = np.square(a[:, :, None] - b).sum(axis=-1)
    np.testing.assert_allclose(squared_distances(a, b), expected, atol=1e-6)
    assert (squared_distances(b[None], b) >= 0).all()
    np.testing.assert_allclose(np.diagonal(squared_distances(b, b)), 0.0, atol=1e-6)

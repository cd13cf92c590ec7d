"""The list learner: always L entries, the client's own moments, and blind to order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.numerics.mixture import Gaussians, Mixture, fit, moments, one_component
from cslr.paper_constants import PaperConstants
from cslr.protocol import step1_list
from cslr.protocol.head import Head
from cslr.protocol.step1_list import (
    ListLearner,
    candidate_targets,
    clip_embeddings,
    coordinates_of,
    group_lists,
    group_targets,
    learn_lists,
    shares_of,
    steadied,
)
from cslr.seeding import Seeds

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


def test_how_many_clients_are_worked_on_at_a_time_changes_no_bit(monkeypatch):
    rng = np.random.default_rng(5)
    x, mask = rng.standard_normal((5, 9, 70)), rng.random((5, 9)) < 0.8
    found = []
    for cached in (1, 2 * 9 * 70, 10**9):
        monkeypatch.setattr(step1_list, "_CACHED", cached)
        found.append(learn_lists(x, mask, np.ones(70), ListLearner(size=3), streams(5)))
    for other in found[1:]:
        np.testing.assert_array_equal(other.weights, found[0].weights)
        np.testing.assert_array_equal(other.gaussians.mean, found[0].gaussians.mean)
        np.testing.assert_array_equal(other.gaussians.covariance, found[0].gaussians.covariance)


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


@pytest.mark.parametrize("bound", [0.1, 1.0, 2.0])
def test_a_long_embedding_is_as_long_as_the_bound_and_a_short_one_as_it_was(bound):
    """The paper's B_z may differ from 1; without the clip the sensitivity would be unbounded."""
    z = np.array([[3.0, 4.0], [0.5 * bound, 0.0]])
    np.testing.assert_allclose(clip_embeddings(z, bound), [[0.6 * bound, 0.8 * bound], z[1]])


def test_embeddings_are_no_longer_than_the_papers_bound_before_they_have_coordinates(world):
    request, examples = asked(world, 1)
    short = replace(request, paper=PaperConstants(b_z=0.5))
    expected = request.space.into(clip_embeddings(examples.z, 0.5))
    np.testing.assert_array_equal(coordinates_of(examples, short), expected)
    longest = coordinates_of(examples, request)
    np.testing.assert_array_equal(longest, request.space.into(clip_embeddings(examples.z, 1.0)))
    assert not np.allclose(longest, expected)


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


# -- work and identity: rows are gathered, streams opened where they are used ----------------------


def asked(world, size: int, matcher: str = "signature"):
    """A request about all labels at once, and examples of every client."""
    request = world.agreement().request(0, (0, 1, 2, 3))
    learner = ListLearner(size=size)
    return replace(request, learner=learner, matcher=matcher), world.examples(0)


@pytest.mark.parametrize("size", [1, 4])
def test_a_groups_lists_are_those_of_its_rows_among_all_others(world, size):
    """The rows of other labels are left out, and what a client says stays the same."""
    request, examples = asked(world, size)
    x = request.space.into(clip_embeddings(examples.z))
    for _, group in group_lists(examples, request):
        mine = examples.mask & np.isin(examples.labels, group.group)
        streams = [
            Seeds(request.seed).at("task", 0, "label", group.group[0], "client", client)
            for client in examples.clients
        ]
        whole = learn_lists(x, mine, request.space.spread, request.learner, streams)
        np.testing.assert_array_equal(group.counts, mine.sum(axis=1))
        np.testing.assert_allclose(group.lists.weights, whole.weights, atol=1e-12)
        real = whole.weights > 0
        for name in ("mean", "covariance"):
            ours, theirs = (getattr(each.gaussians, name) for each in (group.lists, whole))
            np.testing.assert_allclose(ours[real], theirs[real], rtol=1e-9, atol=1e-12)


def test_all_groups_together_look_at_every_row_about_once(world):
    """Counted, not timed: padded rows of all groups, beside those there are."""
    request, examples = asked(world, 1)
    looked_at = sum(group.mine.size for _, group in group_lists(examples, request))
    assert looked_at <= 2 * examples.mask.size  # of four groups; padding is what is beyond one


@pytest.mark.parametrize(("size", "opened"), [(1, 0), (2, 24)])
def test_streams_are_opened_only_where_lists_begin_at_random(world, size, opened, monkeypatch):
    """Twelve clients have rows of two labels each."""
    request, examples = asked(world, size)
    opening, count = Seeds.at, []

    def counted(seeds, *path):
        count.append(path)
        return opening(seeds, *path)

    monkeypatch.setattr(Seeds, "at", counted)
    list(group_lists(examples, request))
    assert len(count) == opened


def test_one_candidate_is_what_em_finds():
    x, mask, _ = coordinates_of_clients()
    direct = one_component(x, mask, 1e-6)
    found = fit(x, mask, np.zeros((1, len(x), 1, x.shape[-1])), 1, 1e-6)
    np.testing.assert_array_equal(direct.weights, found.weights)
    np.testing.assert_allclose(direct.gaussians.mean, found.gaussians.mean, atol=1e-15)
    np.testing.assert_allclose(direct.gaussians.covariance, found.gaussians.covariance, atol=1e-15)


def coordinates_of_clients() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    counts = np.array([0, 1, 2, 7])
    mask = np.arange(7) < counts[:, None]
    return rng.standard_normal((4, 7, 5)), mask, counts


def test_how_far_a_client_is_padded_does_not_matter_bit_for_bit():
    x, mask, _ = coordinates_of_clients()
    longer = np.concatenate([x, np.full((4, 9, 5), 7.0)], axis=1)
    more = np.concatenate([mask, np.zeros((4, 9), dtype=bool)], axis=1)
    one, two = one_component(x, mask, 1e-6), one_component(longer, more, 1e-6)
    np.testing.assert_array_equal(one.gaussians.mean, two.gaussians.mean)
    np.testing.assert_array_equal(one.gaussians.covariance, two.gaussians.covariance)


# -- many directions, few rows ---------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "found"), [(0, True), (63, True), (64, False)])
def test_clumps_are_looked_for_in_the_first_64_directions_alone(direction, found):
    """With a few dozen examples EM would overfit in hundreds of directions."""
    x = np.zeros((1, 60, 70))
    x[0, :, direction] = 4.0 * (np.arange(60) % 2 * 2 - 1)
    learner, mask = ListLearner(2, starts=8), np.ones((1, 60), dtype=bool)
    lists = learn_lists(x, mask, np.ones(70), learner, streams(1))
    means = np.sort(lists.gaussians.mean[0, :, direction])
    assert lists.gaussians.mean.shape == (1, 2, 70)
    assert np.allclose(means, [-4.0, 4.0], atol=0.1) is found


@pytest.mark.parametrize("size", [1, 3])
def test_a_client_with_one_row_has_variances_of_a_millionth_of_the_public_ones(size):
    """No variance is zero: its density would be infinite."""
    x, _ = clients(b=1, n=20)
    lists = learn(x, np.arange(20)[None] == 3, size)
    floor = 1e-6 * SPECTRUM.mean()
    np.testing.assert_allclose(lists.gaussians.covariance, floor)


def test_targets_of_a_candidate_are_the_mean_of_its_share_of_the_rows():
    """Two clumps and a candidate without rows; what stands in the padding does not matter."""
    x = np.array([[[-4.0], [-4.2], [4.0], [0.0]]])
    mask = np.array([[True, True, True, False]])
    lists = Mixture(
        np.array([[2 / 3, 1 / 3, 0.0]]),
        Gaussians(np.array([[[-4.0], [4.0], [99.0]]]), np.full((1, 3, 1), 0.1)),
    )
    y = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [7.0, 7.0]]])
    found = candidate_targets(y, x, mask, lists, np.array([0.5, 0.5]), 2)
    np.testing.assert_allclose(found, [[[0.0, 0.0], [-0.5, 0.5], [0.0, 0.0]]], atol=1e-9)
    shares = shares_of(lists, x, mask)
    assert shares.shape == (1, 4, 3)
    np.testing.assert_allclose(shares.sum(axis=-1), [[1, 1, 1, 0]], atol=1e-9)
    assert candidate_targets(y, x, mask, lists, np.zeros(2), 0).shape == (1, 3, 0)
    assert not candidate_targets(None, x, mask, lists, np.zeros(2), 2).any()


def test_groups_with_a_label_in_common_are_refused(world):
    request, examples = asked(world, 1)
    shared = replace(request, groups=((0, 1), (1, 2)))
    with pytest.raises(ValueError, match="must not have a label in common"):
        list(group_lists(examples, shared))


def test_a_label_beyond_those_that_clients_hold_has_an_empty_group(world):
    """A federation declares labels that nobody may have yet."""
    request, examples = asked(world, 1)
    people = [group for _, group in group_lists(examples, replace(request, groups=((7,), (0,))))]
    assert people[0].counts.sum() == 0
    np.testing.assert_array_equal(
        people[1].counts, ((examples.labels == 0) & examples.mask).sum(axis=1)
    )


def test_logits_of_a_head_are_no_longer_than_one_before_they_are_averaged(world):
    """Otherwise one row with a score of a thousand would dominate the target of its client."""
    rng = np.random.default_rng(4)
    weights = 1e3 * rng.standard_normal((24, 4)).astype(np.float32)
    identity = np.eye(4, dtype=np.float32)
    head = Head(weights, np.zeros(4, np.float32), identity, np.zeros(4, np.float32))
    request, examples = (
        world.agreement(pooled=True).request(0, (0, 1), head=head),
        world.examples(0),
    )
    assert request.layout.targets == 4
    for x, group in group_lists(examples, request):
        targets = group_targets(examples, x, group, request)
        logits = head.scores(examples.z).astype(np.float64)
        logits -= logits.mean(axis=-1, keepdims=True)
        length = np.linalg.norm(logits, axis=-1, keepdims=True)
        clipped = logits / np.maximum(length, 1.0)
        for client in range(12):
            mine = np.isin(examples.labels[client], group.group) & examples.mask[client]
            if mine.any():
                expected = clipped[client, mine].mean(axis=0)
                np.testing.assert_allclose(targets[client, 0], expected, atol=1e-5)

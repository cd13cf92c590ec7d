"""Targets: bounded vectors, averaged by clients, and sent unless the label determines them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from cslr.numerics.mixture import e_step
from cslr.protocol.head import Family, label_targets
from cslr.protocol.round import statistics_of
from cslr.protocol.step1_list import ListLearner, candidate_targets, learn_lists

LABELS = 4
NAMES = ("classification", "intents", "tagging")
FAMILIES = [Family(name, LABELS) for name in NAMES]
EACH = pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
R = 5


def some_answers(family: Family, n: int, seed: int = 0) -> list[list[int]]:
    """One right output an example, or for intents any number of them."""
    rng = np.random.default_rng(seed)
    if family.name == "intents":
        picks = [rng.permutation(family.outputs) for _ in range(n)]
        return [pick[: rng.integers(1, family.outputs + 1)].tolist() for pick in picks]
    return rng.integers(family.outputs, size=(n, 1)).tolist()


# -- families --------------------------------------------------------------------------------------


def test_a_head_scores_labels_and_in_tagging_two_tags_of_each_but_the_first():
    assert [family.outputs for family in FAMILIES] == [4, 4, 7]
    assert [family.sigmoid for family in FAMILIES] == [False, True, False]
    np.testing.assert_array_equal(FAMILIES[1].label_of_output(), [0, 1, 2, 3])
    np.testing.assert_array_equal(FAMILIES[2].label_of_output(), [0, 1, 1, 2, 2, 3, 3])


@EACH
def test_every_output_is_about_one_of_the_labels_and_every_label_has_one(family):
    np.testing.assert_array_equal(np.unique(family.label_of_output()), np.arange(LABELS))


def test_classification_sends_nothing_about_targets():
    assert [family.sent() for family in FAMILIES] == [0, 4, 7]


@EACH
def test_the_usual_target_of_a_label_is_all_about_it(family):
    assert family.usual.shape == (LABELS, family.outputs)
    about = family.label_of_output() == np.arange(LABELS)[:, None]
    np.testing.assert_array_equal(family.usual.sum(axis=1), 1.0)
    np.testing.assert_array_equal(family.usual[~about], 0.0)
    np.testing.assert_array_equal(family.projected(family.usual), family.usual)


def test_an_entity_is_usually_as_often_begun_as_gone_on_with():
    np.testing.assert_array_equal(Family("tagging", 2).usual, [[1, 0, 0], [0, 0.5, 0.5]])


@EACH
def test_labels_are_expected_to_be_met_in_shares_of_one(family):
    assert family.shares.shape == (LABELS,)
    assert family.shares.sum() == pytest.approx(1.0)
    assert np.ptp(family.shares[1:]) == pytest.approx(0.0)  # no label is publicly preferred
    assert (family.shares[0] > 0.5) == (family.name == "tagging")  # but to name nothing


@EACH
def test_targets_are_one_where_the_answer_is_right(family):
    answers = [answer[:3] for answer in some_answers(family, 30)]  # short enough not to be cut
    y = family.targets(answers)
    assert y.shape == (30, family.outputs)
    for row, answer in zip(y, answers, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(row), sorted(answer))
        np.testing.assert_array_equal(row[answer], 1.0)


@given(st.sampled_from(NAMES), st.integers(1, 12), st.integers(0, 20), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_no_target_is_longer_than_the_bound(name, labels, n, seed):
    family = Family(name, labels)
    y = family.targets(some_answers(family, n, seed))
    assert y.shape == (n, family.outputs)
    assert np.all(np.linalg.norm(y, axis=1) <= family.bound * (1 + 1e-6))


@pytest.mark.parametrize(("intents", "value"), [(1, 1.0), (4, 1.0), (9, 2 / 3), (16, 0.5)])
def test_more_than_four_intents_at_once_are_cut_to_the_bound(intents, value):
    y = Family("intents", 16).targets([list(range(intents))])[0]
    np.testing.assert_allclose(y[:intents], value, rtol=1e-6)
    np.testing.assert_array_equal(y[intents:], 0.0)
    assert np.linalg.norm(y) <= 2.0 + 1e-6


@EACH
def test_an_average_of_targets_is_no_longer_than_the_bound(family):
    mean = family.targets(some_answers(family, 50)).mean(axis=0)
    assert np.linalg.norm(mean) <= family.bound


def test_labels_as_targets_are_one_hot():
    labels = np.array([2, 0, 2])
    np.testing.assert_array_equal(label_targets(labels, 3), np.eye(3)[labels])
    np.testing.assert_array_equal(
        label_targets(labels, 4), Family("classification", 4).targets(labels[:, None])
    )


@EACH
def test_projected_targets_are_the_nearest_possible_ones(family):
    rng = np.random.default_rng(0)
    y = rng.normal(scale=1.0, size=(4, family.outputs))
    found = family.projected(y)
    equal = [] if family.sigmoid else [{"type": "eq", "fun": lambda row: row.sum() - 1}]
    for row, nearest in zip(y, found, strict=True):
        searched = minimize(
            lambda at, row=row: np.square(at - row).sum(),
            np.full(family.outputs, 1 / family.outputs),
            bounds=[(0, 1)] * family.outputs,
            constraints=equal,
            method="SLSQP",
            tol=1e-12,
        )
        np.testing.assert_allclose(nearest, searched.x, atol=1e-5)


@EACH
def test_possible_targets_are_left_as_they_are(family):
    y = family.targets(some_answers(family, 20)).astype(np.float64)
    np.testing.assert_allclose(family.projected(y), y, atol=1e-12)


# -- what a client says about its targets ----------------------------------------------------------


def clients(family: Family, seed: int = 0):
    """x (b, n, r), y (b, n, outputs), mask (b, n): 20, 8, 1 and no rows."""
    rng = np.random.default_rng(seed)
    mask = np.arange(20) < np.array([20, 8, 1, 0])[:, None]
    x = rng.standard_normal((4, 20, R)) + 4.0 * rng.integers(2, size=(4, 20, 1))
    y = family.targets(some_answers(family, 80, seed)).reshape(4, 20, -1)
    return x, y, mask


def asked(family: Family, label: int) -> tuple[np.ndarray, int]:
    """What is usual for a mode of one label, and how many numbers are sent about it."""
    return family.usual_of((label,)), family.sent()


def lists_of(x, mask, size):
    streams = [np.random.default_rng(i) for i in range(len(x))]
    return learn_lists(x, mask, np.ones(R), ListLearner(size=size), streams)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("family", FAMILIES[1:], ids=NAMES[1:])
@pytest.mark.parametrize("label", [0, 2])
def test_candidates_keep_the_clients_mean_target(family, size, label):
    x, y, mask = clients(family)
    lists = lists_of(x, mask, size)
    found = candidate_targets(y, x, mask, lists, *asked(family, label))
    assert found.shape == (4, size, family.outputs)
    shares, _ = e_step(lists, x, mask)
    for i in range(3):
        mean = y[i, mask[i]].mean(axis=0) - family.usual[label]
        held = shares[i].sum(axis=0) / mask[i].sum()
        np.testing.assert_allclose(held @ found[i], mean, atol=1e-6)
        # A list's weights are EM's of one step before: the same but for what that step moved.
        np.testing.assert_allclose(lists.weights[i] @ found[i], mean, atol=0.02)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("family", FAMILIES[1:], ids=NAMES[1:])
def test_no_candidates_target_is_longer_than_the_bound(family, size):
    x, y, mask = clients(family)
    found = candidate_targets(y, x, mask, lists_of(x, mask, size), *asked(family, 1))
    spoken = found[:3] + family.usual[1]
    assert np.all(np.linalg.norm(spoken, axis=-1) <= family.bound * (1 + 1e-6))


@pytest.mark.parametrize("size", [1, 4])
def test_a_client_without_rows_says_nothing_about_targets(size):
    tags = FAMILIES[2]
    x, y, mask = clients(tags)
    found = candidate_targets(y, x, mask, lists_of(x, mask, size), *asked(tags, 1))
    np.testing.assert_array_equal(found[3], 0.0)


@pytest.mark.parametrize("size", [1, 4])
def test_what_stands_in_the_padding_does_not_matter(size):
    tags = FAMILIES[2]
    x, y, mask = clients(tags)
    lists = lists_of(x, mask, size)
    other = np.where(mask[..., None], y, 1e3)
    np.testing.assert_array_equal(
        candidate_targets(other, x, mask, lists, *asked(tags, 1)),
        candidate_targets(y, x, mask, lists, *asked(tags, 1)),
    )


def test_two_clumps_with_different_targets_are_told_apart():
    """Where a label's words begin entities here and go on with them there, a list says which."""
    tags, rng = Family("tagging", 2), np.random.default_rng(0)
    far = np.arange(40) % 2
    x = (0.3 * rng.standard_normal((40, R)) + 6.0 * far[:, None])[None]
    y = tags.targets((1 + far)[:, None].tolist())[None]
    mask = np.ones((1, 40), dtype=bool)
    lists = lists_of(x, mask, 2)
    found = candidate_targets(y, x, mask, lists, *asked(tags, 1))[0] + tags.usual[1]
    order = np.argsort(lists.gaussians.mean[0, :, 0])
    np.testing.assert_allclose(found[order], [[0, 1, 0], [0, 0, 1]], atol=1e-6)


@EACH
def test_without_targets_there_is_nothing_beyond_the_usual(family):
    x, _, mask = clients(family)
    found = candidate_targets(None, x, mask, lists_of(x, mask, 4), *asked(family, 1))
    np.testing.assert_array_equal(found, np.zeros((4, 4, family.sent())))


def test_classification_has_nothing_to_say_even_if_it_has_targets():
    plain = FAMILIES[0]
    x, y, mask = clients(plain)
    found = candidate_targets(y, x, mask, lists_of(x, mask, 1), *asked(plain, 1))
    assert found.shape == (4, 1, 0)


def test_a_classification_with_targets_sends_what_one_without_them_sends(world):
    """Targets that a label determines are not sent, so they cannot reveal anything."""
    examples, agreement = world.examples(0), world.agreement()
    request = agreement.request(0, (0, 1))
    told = replace(examples, targets=label_targets(examples.labels, 4))
    one, two = statistics_of(examples, request), statistics_of(told, request)
    for name, block in vars(one).items():
        np.testing.assert_array_equal(block, getattr(two, name))
    assert one.target.shape[-1] == 0

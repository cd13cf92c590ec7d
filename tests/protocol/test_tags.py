"""BIO tags: the best valid sequence, against every sequence there is."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from cslr.protocol.tags import SPLIT, decode, tag_names, transitions

SEEDS = st.integers(0, 2**32 - 1)


def follows(before: int, tag: int) -> float:
    """Log weight of a tag after another, by its definition; the start of a sentence is an O."""
    label, inside = (tag + 1) // 2, tag % 2 == 0 and tag > 0
    same = (before + 1) // 2 == label
    if inside:
        return 0.0 if same else -np.inf
    return SPLIT if same and label > 0 else 0.0


def weight(scores: np.ndarray, tags: tuple[int, ...]) -> float:
    """Log weight of a whole sentence."""
    total, before = 0.0, 0
    for row, tag in zip(log_softmax(scores, axis=1), tags, strict=True):
        total += row[tag] + follows(before, tag)
        before = tag
    return total


def best(scores: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """The heaviest of all sequences."""
    words, tags = scores.shape
    return max((weight(scores, each), each) for each in product(range(tags), repeat=words))


def is_valid(tags: list[int]) -> bool:
    return all(np.isfinite(follows(a, b)) for a, b in pairwise([0, *tags]))


def starts_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def sentences(seed: int, lengths: list[int], tags: int, scale: float = 2.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal((sum(lengths), tags))


@given(SEEDS, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from([1, 3, 5]))
@settings(max_examples=60, deadline=None)
def test_the_sequence_found_is_the_best_of_all(seed, lengths, tags):
    scores, starts = sentences(seed, lengths, tags), starts_of(lengths)
    found = np.split(decode(scores, starts), starts[1:-1])
    for each, part in zip(found, np.split(scores, starts[1:-1]), strict=True):
        heaviest, sequence = best(part)
        assert weight(part, tuple(each)) == pytest.approx(heaviest)
        assert tuple(each) == sequence


@given(SEEDS, st.lists(st.integers(0, 9), max_size=6), st.integers(1, 4), st.floats(0.1, 20))
@settings(max_examples=60, deadline=None)
def test_whatever_the_scores_the_sequence_is_valid(seed, lengths, labels, scale):
    tags = 2 * labels - 1
    scores, starts = sentences(seed, lengths, tags, scale), starts_of(lengths)
    found = decode(scores, starts)
    assert found.shape == (sum(lengths),)
    for first, end in pairwise(starts.tolist()):
        assert is_valid(found[first:end].tolist())


@given(SEEDS, st.sets(st.sampled_from([1, 2, 3])), st.lists(st.integers(1, 6), min_size=1))
@settings(max_examples=40, deadline=None)
def test_a_tag_that_is_not_possible_is_never_chosen(seed, masked, lengths):
    scores = sentences(seed, lengths, 7)
    label = (np.arange(7) + 1) // 2
    scores[:, np.isin(label, list(masked))] = -np.inf
    found = decode(scores, starts_of(lengths))
    assert not np.isin(label[found], list(masked)).any()


def test_a_single_tag_may_be_impossible_at_a_single_word():
    scores = np.zeros((3, 3))
    scores[:, 2] = 5.0  # I-1 everywhere, but it has to begin
    scores[0, 1] = -np.inf  # not with the first word
    np.testing.assert_array_equal(decode(scores, np.array([0, 3])), [0, 1, 2])


def test_an_entity_goes_on_rather_than_beginning_anew():
    scores = np.zeros((2, 3))
    scores[:, 0] = -1.0
    scores[:, 1] = 1.0  # B-1 is a little likelier than I-1
    np.testing.assert_array_equal(decode(scores, np.array([0, 2])), [1, 2])
    scores[:, 1] = 1.0 - 2 * SPLIT  # and here a new one surely begins
    np.testing.assert_array_equal(decode(scores, np.array([0, 2])), [1, 1])


def test_a_sentence_is_read_as_if_alone():
    lengths = [3, 1, 8, 2]
    scores, starts = sentences(5, lengths, 5), starts_of(lengths)
    alone = [decode(part, np.array([0, len(part)])) for part in np.split(scores, starts[1:-1])]
    np.testing.assert_array_equal(decode(scores, starts), np.concatenate(alone))


def test_an_entity_does_not_go_on_into_the_next_sentence():
    scores = np.array([[-9.0, 9.0, -9.0], [-9.0, -8.0, 9.0]])  # B-1 then I-1, else B-1
    assert decode(scores, np.array([0, 2])).tolist() == [1, 2]
    assert decode(scores, np.array([0, 1, 2])).tolist() == [1, 1]


@pytest.mark.parametrize("starts", [[0], [0, 0], [0, 0, 0]])
def test_no_words_have_no_tags(starts):
    assert decode(np.zeros((0, 5)), np.array(starts)).shape == (0,)


def test_empty_sentences_among_others_are_passed_over():
    scores = sentences(1, [3, 2], 5)
    np.testing.assert_array_equal(
        decode(scores, np.array([0, 0, 3, 3, 5, 5])), decode(scores, np.array([0, 3, 5]))
    )


@given(SEEDS, st.floats(-50, 50))
@settings(max_examples=20, deadline=None)
def test_what_is_added_to_all_scores_of_a_word_does_not_matter(seed, shift):
    scores = sentences(seed, [6], 5)
    shifted = scores + shift * np.arange(6)[:, None]
    starts = np.array([0, 6])
    np.testing.assert_array_equal(decode(shifted, starts), decode(scores, starts))


def test_the_weight_of_every_pair_of_tags_is_that_of_the_definition():
    found = transitions(7)
    assert found.shape == (8, 7)
    np.testing.assert_array_equal(found[0], found[1])  # a sentence begins as after an O
    for before, tag in product(range(7), repeat=2):
        assert found[1 + before, tag] == follows(before, tag)


def test_tags_are_named_after_their_labels():
    assert tag_names(["O", "person", "place"]) == [
        "O",
        "B-person",
        "I-person",
        "B-place",
        "I-place",
    ]
    assert tag_names(["O"]) == ["O"]

"""Wrong rows are refused by argument and row."""

from __future__ import annotations

import numpy as np
import pytest

import cslr
from cslr.api.array_likes import names_of, outcomes_of, texts_or_vectors, unit_names_of
from cslr.errors import DataError


@pytest.mark.parametrize("values", [["a", "b"], np.array(["a", "b"]), ("a", "b")])
def test_texts_stay_texts(values):
    assert texts_or_vectors(values, "X") == ("a", "b")


@pytest.mark.parametrize("values", [[[3, 4], [0, 2]], np.array([[3, 4], [0, 2]])])
def test_embeddings_get_unit_norm(values):
    z = texts_or_vectors(values, "X")
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, [[0.6, 0.8], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("text", "X is one string"),
        (["text", 3], "it is neither"),
        ([1.0, 2.0], r"not of shape \(2,\)"),
        ([[1.0, np.nan], [1.0, 2.0]], "X, row 0: the embedding is not finite or all zero"),
        ([[1.0, 2.0], [np.inf, 2.0]], "X, row 1"),
        ([[1.0, 2.0], [0.0, 0.0]], "X, row 1"),
        ([], r"not of shape \(0,\)"),
    ],
)
def test_what_is_neither_texts_nor_embeddings_is_refused(values, message):
    with pytest.raises(DataError, match=message):
        texts_or_vectors(values, "X")


def test_a_name_that_is_spelt_in_two_ways_is_one_unit():
    assert unit_names_of(["Zo\u00eb", "Zoe\u0308", " Zo\u00eb "], "people", 3) == ["Zo\u00eb"] * 3


def test_a_number_that_is_stored_in_two_ways_is_one_unit():
    """Joining tables can turn integers into floats, or some of them."""
    numbers = [3, 3.0, np.float32(3), np.int64(3), "3"]
    assert unit_names_of(numbers, "clients", 5) == ["3"] * 5
    assert unit_names_of(np.array([3.0, 3.5]), "clients", 2) == ["3", "3.5"]


def test_numbers_are_names_of_clients_and_tasks():
    assert names_of(np.array([3, 1]), "clients", 2) == ["3", "1"]


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
def test_a_missing_name_is_refused(missing):
    with pytest.raises(DataError, match="clients, row 1: the name is missing"):
        names_of(["a", missing], "clients", 2)


@pytest.mark.parametrize(
    ("y", "family", "message"),
    [
        (["a"], "classification", "y has 1 entries, X has 2 rows"),
        ("ab", "classification", "y must be a sequence"),
        (["a", "z"], "classification", "y, row 1: label 'z' is not declared .* labels: a, b"),
        ([0, 1], "classification", r"y, row 0: labels must be strings, not int; use str\(label\)"),
        (["a", float("nan")], "classification", "y, row 1: labels must be strings, not float"),
        (["a", ["a", "b"]], "classification", "y, row 1: a list .* family='intents'"),
        (["a", []], "intents", "y, row 1: no label"),
        ([["a"], ["a", "z"]], "intents", "y, row 1: label 'z'"),
    ],
)
def test_wrong_labels_are_refused(y, family, message):
    with pytest.raises(DataError, match=message):
        outcomes_of(y, family, ["a", "b"], 2)


def test_labels_become_numbers_the_main_one_first():
    assert outcomes_of(np.array(["b", "a"]), "classification", ["a", "b"], 2) == ((1,), (0,))
    assert outcomes_of([["b", "a", "b"], "a"], "intents", ["a", "b"], 2) == ((1, 0), (0,))


def test_a_text_is_never_quoted():
    with pytest.raises(DataError, match="it is neither") as caught:
        texts_or_vectors(["my secret", 3], "X")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("argument", ["clients", "tasks", "y"])
def test_learn_checks_the_length_of_each(arguments, argument):
    arguments[argument] = list(arguments[argument])[:-1]
    with pytest.raises(DataError, match=f"{argument} has 479 entries, X has 480 rows"):
        cslr.learn(**arguments, simulate=True)

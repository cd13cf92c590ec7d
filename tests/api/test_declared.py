"""Declarations: what they say, and what contradicts them."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.api.declared import declared_labels, declared_tasks, registered_clients
from cslr.data.stream import Task
from cslr.errors import DataError

LABELS = ("a", "b", "c")
OUTCOMES = ((2,), (0,), (2,), (1, 2))
NAMES = ["late", "early", "late", "early"]


def test_label_texts_fix_the_labels_and_their_order():
    found = declared_labels({"b": "About b.", "a": "About a."})
    assert found.names == ("b", "a")
    assert found.texts == ("About b.", "About a.")
    np.testing.assert_array_equal(
        declared_labels({"b": [0, 2], "a": [1, 0]}).texts, np.eye(2)[::-1]
    )
    assert declared_labels(["a", "b"]).texts is None


@pytest.mark.parametrize(
    ("label_texts", "message"),
    [
        ("a", "must map each label"),
        (None, "must map each label"),
        ({}, "one or more different labels"),
        (["a", "a"], "one or more different labels"),
        ({0: "About 0."}, r"labels must be non-empty strings, not 0; use str\(label\)"),
        ({"a": "About a.", "b": 3}, "label_texts must be a list of texts or an array"),
    ],
)
def test_labels_that_are_none_are_refused(label_texts, message):
    with pytest.raises(DataError, match=message):
        declared_labels(label_texts)


def test_declared_tasks_keep_their_order_whatever_rows_say():
    declared = {"early": ["b", "a"], "late": "c", "never": ["a"]}
    expected = (Task("early", (1, 0)), Task("late", (2,)), Task("never", (0,)))
    for simulate in (True, False):
        assert declared_tasks(declared, LABELS, NAMES, OUTCOMES, simulate) == expected


def test_a_list_of_tasks_gives_all_labels_to_each():
    found = declared_tasks([2023, 2024], LABELS, None, (), simulate=False)
    assert found == (Task("2023", (0, 1, 2)), Task("2024", (0, 1, 2)))


def test_tasks_are_inferred_in_simulations_alone():
    found = declared_tasks(None, LABELS, NAMES, OUTCOMES, simulate=True)
    assert found == (Task("late", (2,)), Task("early", (0, 1)))
    with pytest.raises(DataError, match="task_labels is missing"):
        declared_tasks(None, LABELS, NAMES, OUTCOMES, simulate=False)
    assert declared_tasks(None, LABELS, None, OUTCOMES, simulate=False) == (Task("all", (0, 1, 2)),)


@pytest.mark.parametrize(
    ("task_labels", "message"),
    [
        ("early", "not a string"),
        ({}, "one or more different tasks"),
        (["early", "early"], "one or more different tasks"),
        ({"early": []}, "task 'early': it has no label"),
        ({"early": ["a", "z"]}, "label 'z' is not in label_texts; labels: a, b, c"),
    ],
)
def test_tasks_that_are_none_are_refused(task_labels, message):
    with pytest.raises(DataError, match=message):
        declared_tasks(task_labels, LABELS, NAMES, OUTCOMES, simulate=False)


def test_the_number_of_clients_is_counted_in_simulations_alone():
    assert registered_clients(None, 7, simulate=True) == 7
    assert registered_clients(9, 7, simulate=True) == registered_clients(9, 7, False) == 9
    with pytest.raises(DataError, match="registered is missing"):
        registered_clients(None, 7, simulate=False)
    with pytest.raises(DataError, match="7 of them have rows, but registered=6"):
        registered_clients(6, 7, simulate=True)

"""Arguments as a stream: rows where they belong, and clients known by name alone."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.api.streamed import GIVEN, Arguments, encoder_name, streamed
from cslr.data.own.load import client_address
from cslr.errors import DataError


@pytest.fixture
def given(arguments):
    """``given(**changes)``: what ``learn`` hands on."""
    keep = set(Arguments.__dataclass_fields__)
    usual = {name: value for name, value in arguments.items() if name in keep}
    return lambda **changes: Arguments(**{**usual, "name": "x", "simulate": False, **changes})


def test_rows_keep_their_order_and_get_numbers(given, arguments):
    embedded = streamed(given(), GIVEN)
    stream = embedded.stream
    assert [task.name for task in stream.tasks] == ["small", "large"]
    assert stream.clients == 50
    assert stream.scenarios == ("class",)
    norms = np.linalg.norm(arguments["X"], axis=1, keepdims=True)
    np.testing.assert_allclose(embedded.train.z, arguments["X"] / norms, atol=1e-6)
    assert [stream.labels[label].name for label in embedded.train.labels] == list(arguments["y"])
    assert len(embedded.test.z) == 0


def test_a_client_is_addressed_by_its_name_whoever_else_has_rows(given, arguments):
    stream = streamed(given(), GIVEN).stream
    of_row = stream.client_ids[stream.train.clients]
    assert of_row.tolist() == [client_address(name) for name in arguments["clients"]]


def test_tasks_with_the_same_labels_are_domains(given):
    embedded = streamed(given(task_labels=["small", "large"]), GIVEN)
    assert embedded.stream.scenarios == ("domain",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_labels": ["small"]}, r"tasks, row \d+: task 'large' is not declared"),
        (
            {"task_labels": {"small": ["ant"], "large": ["cat", "dog"]}},
            r"y, row \d+: label 'bee' is not a label of task 'small'",
        ),
        ({"tasks": None}, "tasks is missing: task_labels declares several"),
        ({"X": np.ones((0, 16)), "y": [], "clients": [], "tasks": []}, "X has no rows"),
    ],
)
def test_rows_that_contradict_their_declaration_are_refused(given, change, message):
    with pytest.raises(DataError, match=message):
        streamed(given(**change), GIVEN)


def test_texts_have_a_usual_encoder_and_embeddings_none():
    assert encoder_name(["a text"], None) == "minilm"
    assert encoder_name(np.ones((1, 3)), None) == GIVEN
    assert encoder_name(np.ones((1, 3)), "mpnet") == "mpnet"


def test_public_sentences_that_stand_in_rows_are_warned_of(given, cache, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    sentences = [f"This is sentence number {number} of all." for number in range(100)]
    texts = {"ant": "About ants.", "bee": "About bees."}
    change = {"X": sentences[:2], "y": ["ant", "bee"], "clients": ["a", "b"], "tasks": None}
    with pytest.warns(UserWarning, match="some sentences also occur in X"):
        streamed(given(public=sentences, label_texts=texts, task_labels=None, **change), "minilm")

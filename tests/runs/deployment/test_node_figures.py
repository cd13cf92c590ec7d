"""What a node measures on its own test rows: shown on its screen, or counted with noise."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cslr.errors import ConfigError
from cslr.federation.parties.question import digest_of
from cslr.runs.deployment import node_figures
from cslr.runs.deployment.node_figures import graded_rows, own_accuracy

LABELS = ("a", "b", "c", "d")
TASKS = {"early": (0, 1), "late": (2, 3)}
TEST_LABELS = np.array([0, 1, 2, 0, 3])
TEST_TASKS = np.array([0, 0, 1, 0, 1])
AGREED = {
    "labels": LABELS,
    "tasks": [SimpleNamespace(name=name, labels=labels) for name, labels in TASKS.items()],
}
CHARTER = SimpleNamespace(unit="person", family="classification", **AGREED)


class Rows(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.tasks)


def embedded(tasks=TEST_TASKS, people=None):
    """Every text gets the scores of label 0, but for its second label."""
    z = np.tile([1.0, 0.0, 0.5, 0.0], (len(tasks), 1))
    stream = SimpleNamespace(test=Rows(tasks=tasks, people=people))
    labels, rows = TEST_LABELS[: len(tasks)], np.arange(len(tasks))
    test = SimpleNamespace(z=z, tasks=tasks, labels=labels, rows=rows)
    return SimpleNamespace(stream=stream, test=test)


class Facts(SimpleNamespace):
    def allowed(self, task: str | None) -> np.ndarray:
        tasks = self.tasks if task is None else [task]
        return np.isin(np.arange(4), [label for name in tasks for label in TASKS[name]])


@pytest.fixture
def node(monkeypatch):
    """``node(tasks, scenario, stream)``: a node with a head of so many tasks."""

    def make(tasks=("early", "late"), scenario="class", rows=None) -> None:
        learnt = {name: TASKS[name] for name in tasks}
        facts = Facts(tasks=learnt, scenario=scenario, family="classification", labels=LABELS)
        predictor = SimpleNamespace(model=facts, scores=lambda z: z)
        rows = embedded() if rows is None else rows
        monkeypatch.setattr(node_figures, "load_predictor", lambda model: predictor)
        monkeypatch.setattr(node_figures, "embedded_rows", lambda *of: (None, rows))
        monkeypatch.setattr(
            node_figures,
            "right_rows",
            lambda of, scores, allowed: np.array(
                [
                    np.where(allowed[task], row, -np.inf).argmax() == label
                    for row, task, label in zip(scores, of.test.tasks, of.test.labels, strict=True)
                ]
            ),
        )

    return make


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (("early", "late"), "40.0 % right on own test rows after early, late; not stored"),
        (("early",), "66.7 % right on own test rows after early; not stored"),
    ],
)
def test_an_operator_is_told_the_share_that_is_right_of_what_was_learnt(
    node, tmp_path, tasks, said
):
    node(tasks)
    assert own_accuracy(None, CHARTER, {}, tmp_path) == said


def test_a_label_that_was_not_learnt_yet_is_never_answered(node, tmp_path):
    """After the second task alone label 0, which has the highest score, is no answer."""
    node(("late",), rows=embedded(np.array([0, 0, 0, 0, 0])))
    assert own_accuracy(None, CHARTER, {}, tmp_path).startswith("20.0 % right")


def test_without_own_test_rows_of_what_was_learnt_an_operator_is_told_so(node, tmp_path):
    node(("early",), rows=embedded(np.array([1, 1])))
    assert own_accuracy(None, CHARTER, {}, tmp_path).endswith("no own test rows to measure it on")


def test_sentences_are_for_the_operator_to_measure(node, tmp_path):
    node()
    tagging = SimpleNamespace(unit="person", family="tagging")
    assert "measure it on your own sentences" in own_accuracy(None, tagging, {}, tmp_path)


@pytest.fixture
def head(tmp_path):
    """The head that is graded, in a node's model."""
    (tmp_path / "seed-13").mkdir()
    (tmp_path / "seed-13" / "head.safetensors").write_bytes(b"a head")
    return digest_of(b"a head")


@pytest.mark.parametrize(
    ("scenario", "right"),
    [("class", [1, 0, 0, 1, 0]), ("task", [1, 0, 1, 1, 0])],
)
def test_the_head_that_is_asked_about_is_graded_as_its_scenario_has_it(
    node, tmp_path, head, scenario, right
):
    people = np.array([4, 4, 5, 6, 6])
    node(scenario=scenario, rows=embedded(people=people))
    graded = graded_rows(None, CHARTER, {}, tmp_path, head)
    np.testing.assert_array_equal(graded.right, np.array(right, dtype=bool))
    np.testing.assert_array_equal(graded.tasks, TEST_TASKS)
    np.testing.assert_array_equal(graded.units, people)


def test_all_rows_of_a_client_are_one_units(node, tmp_path, head):
    node()
    client = SimpleNamespace(unit="client", family="classification", **AGREED)
    graded = graded_rows(None, client, {}, tmp_path, head)
    np.testing.assert_array_equal(graded.units, np.zeros(5))
    with pytest.raises(ConfigError, match="names no column of people"):
        graded_rows(None, CHARTER, {}, tmp_path, head)


def test_a_node_without_test_rows_grades_none(node, tmp_path, head):
    node(rows=embedded(np.zeros(0, dtype=np.int64)))
    graded = graded_rows(None, CHARTER, {}, tmp_path, head)
    assert [len(each) for each in (graded.right, graded.tasks, graded.units)] == [0, 0, 0]
    assert graded.right.dtype == np.bool_


def test_another_head_than_the_nodes_is_not_graded(node, tmp_path, head):
    node(rows=embedded(people=np.zeros(5, dtype=np.int64)))
    assert len(graded_rows(None, CHARTER, {}, tmp_path, head).right) == 5
    assert not len(graded_rows(None, CHARTER, {}, tmp_path, digest_of(b"another")).right)

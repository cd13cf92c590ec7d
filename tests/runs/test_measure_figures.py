"""Figures of a run: which labels may be answered when, what counts, and what was paid for."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cslr.data.streams import Label, Rows, Stream, Task
from cslr.methods.method import Fitted
from cslr.privacy.plan import Budget
from cslr.protocol.head import Family
from cslr.runs import measure
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.measure import (
    PrivateFigures,
    _allowed_of,
    figures_of,
    plain,
    private_figures,
    privately_measured,
    rounded,
)

TASKS = ((0, 1), (2, 3))
LABELS = (0, 1, 2, 3, 0, 2)
CLIENTS = np.array([0, 1, 1, 2, -1, 0])


def rows_of(labels, clients=None, people=None) -> Rows:
    answers = tuple((label,) for label in labels)
    texts = tuple(f"text {n}" for n in range(len(labels)))
    return Rows(texts, answers, np.array(labels, dtype=np.int64) // 2, people, clients)


def study(labels=LABELS, clients=CLIENTS, people=None) -> EmbeddedStream:
    """A row's embedding is the scores that it is to get."""
    rows = rows_of(labels, clients, people)
    stream = Stream(
        name="by hand",
        labels=tuple(Label(f"label {n}", f"about {n}") for n in range(4)),
        tasks=tuple(Task(f"task {n}", own) for n, own in enumerate(TASKS)),
        train=rows,
        test=rows,
        public=("a public sentence",),
        scenarios=("class",),
        clients=3,
    )
    count = len(labels)
    examples = EmbeddedRows(
        z=np.eye(4)[list(labels)] if count else np.zeros((0, 4)),
        labels=np.array(labels, dtype=np.int64),
        targets=np.eye(4)[list(labels)] if count else np.zeros((0, 4)),
        tasks=rows.tasks,
        rows=np.arange(count),
        starts=np.arange(count + 1),
    )
    nothing = np.zeros((0, 4))
    family = Family("classification", 4)
    return EmbeddedStream(stream, family, "none", examples, examples, nothing, nothing, 0.0)


@pytest.fixture
def context(make_context):
    return replace(make_context(), tasks=TASKS)


def right(z: np.ndarray) -> np.ndarray:
    return z


def always(label: int):
    return lambda z: np.tile(np.eye(4)[label], (len(z), 1))


# -- which labels may be answered ------------------------------------------------------------------

NONE, FIRST, SECOND = [], [0, 1], [2, 3]
EVERY = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("scenario", "after", "expected"),
    [
        ("class", 0, [EVERY, EVERY]),
        ("class", 1, [FIRST, EVERY]),
        ("class", 2, [EVERY, EVERY]),
        ("domain", 1, [EVERY, EVERY]),
        ("task", 0, [FIRST, SECOND]),
        ("task", 2, [FIRST, SECOND]),
    ],
)
def test_labels_that_may_be_answered_follow_from_the_scenario(context, scenario, after, expected):
    """On a task that was not learnt yet all of them: else forward transfer would not be seen."""
    found = [np.flatnonzero(each).tolist() for each in _allowed_of(context, scenario, after)]
    assert found == expected


def test_a_row_of_the_matrix_has_a_score_for_each_task_and_for_each_label_learnt(context):
    """A head that always says label 0 answers a label of the first task once it is alone."""
    found = figures_of(study(), context, "class", Fitted(always(0)), 1)
    assert found["scores"] == [pytest.approx(2 / 3), 0.0]
    assert found["labels"] == [1.0, 0.0, None, None]
    assert found["more"] == {}
    before = figures_of(study(), context, "class", Fitted(right), 0)
    assert before["labels"] == [1.0, 1.0, 1.0, 1.0]


def test_without_test_rows_there_is_no_score_and_no_head_is_asked(context):
    def never(z: np.ndarray) -> np.ndarray:
        raise AssertionError("asked")

    found = figures_of(study(labels=(), clients=None), context, "class", Fitted(never), 2)
    assert (found["scores"], found["labels"], found["more"]) == ([None] * 2, [None] * 4, {})


def test_a_task_without_test_rows_has_no_score(context):
    found = figures_of(study((0, 1), CLIENTS[:2]), context, "class", Fitted(right), 2)
    assert found["scores"] == [1.0, None]


def test_models_of_clients_are_scored_on_the_tasks_they_hold_after_the_last_task(context):
    """Client 0 holds both tasks, another only the second; each says always the same label."""
    people = context.clients
    mine = np.flatnonzero(people.clients == 0)
    assert set(people.tasks[mine].tolist()) == {0, 1}
    second = np.flatnonzero((people.clients == 5) & (people.tasks == 1))
    some = np.concatenate([second, mine])
    rows = replace(people, clients=people.clients[some], rows=some)
    opened = replace(context, clients=rows, reads="openly")
    learnt = Fitted(right, personal=[(0, always(0)), (5, always(2))])
    # Of three rows of each task two are right for label 0, and as many for label 2.
    found = figures_of(study(), opened, "class", learnt, 2)
    assert found["more"] == {"personal": pytest.approx(((2 / 3 + 0) / 2 + 2 / 3) / 2)}
    assert figures_of(study(), opened, "class", learnt, 1)["more"] == {}


@pytest.mark.parametrize(
    ("after", "expected"), [(0, (1.0 + 1 / 3) / 2), (1, (1.0 + 2 / 3) / 2), (2, (1.0 + 1 / 3) / 2)]
)
def test_heads_of_encoders_are_scored_on_the_tasks_so_far_or_on_all_before_any(
    context, after, expected
):
    """Two encoders: one head is always right, the other says label 0."""
    embedded = study()
    both = replace(embedded, views=(embedded, embedded))
    learnt = Fitted(right, own=[right, always(0)])
    found = figures_of(both, context, "class", learnt, after)
    assert found["more"]["own_heads"] == pytest.approx(expected)


# -- figures that are paid for ---------------------------------------------------------------------


def test_units_with_test_rows_are_graded_and_rows_of_nobody_left_out():
    everything = [np.ones(4, dtype=bool)] * 2
    found = measure.TestCohort(study(), everything, Fitted(always(0)))._graded()
    np.testing.assert_array_equal(found.right, [True, False, False, False, False])
    np.testing.assert_array_equal(found.units, [0, 1, 1, 2, 0])
    np.testing.assert_array_equal(found.tasks, [0, 0, 1, 1, 1])
    people = study(people=np.array([7, 8, 9, 7, 8, 9]))
    found = measure.TestCohort(people, everything, Fitted(right), "person")._graded()
    np.testing.assert_array_equal(found.units, [7, 8, 9, 7, 9])
    assert found.right.all()


def test_test_rows_that_are_nobodys_cannot_be_counted(context):
    everything = [np.ones(4, dtype=bool)] * 2
    with pytest.raises(ValueError, match="must say whose they are"):
        measure.TestCohort(study(), everything, Fitted(right), "person")._graded()
    with pytest.raises(ValueError, match="test rows must have clients"):
        privately_measured(study(clients=None), context, "class", lambda: Fitted(right))
    ask = SimpleNamespace(kind="list")
    with pytest.raises(ValueError, match="list is not asked of single clients"):
        measure.TestCohort(study(), everything, Fitted(right)).each(ask)


def line(accuracy, error, **more: object) -> dict:
    return {"kind": "evaluation", "accuracy": accuracy, "standard_error": error, **more}


def test_noisy_counts_of_several_seeds_are_averaged_and_so_are_their_errors():
    """Independent noise: the error of a mean over two is the root of the squares, halved."""
    lines = [line([0.5, 0.8], [0.03, 0.06]), line([0.7, 0.6], [0.04, 0.08])]
    found = private_figures(lines)
    np.testing.assert_allclose(found.accuracy, [60, 70])
    np.testing.assert_allclose(found.error, [2.5, 5.0])
    assert found.aa == (pytest.approx(65), pytest.approx(math.hypot(2.5, 5.0) / 2))
    assert not found.before_upgrade
    assert private_figures([]) is None


def test_a_count_of_the_head_before_an_upgrade_is_marked_as_such():
    lines = [line([0.5], [0.1]), line([0.5], [0.1], before_upgrade=True)]
    assert private_figures(lines).before_upgrade


def test_noisy_figures_as_plain_values_name_their_tasks_and_leave_out_what_is_not_known():
    found = PrivateFigures(np.array([60.12345, np.nan]), np.array([2.5, np.inf]), False)
    assert found.as_json(["early", "late"]) == {
        "tasks": [
            {"task": "early", "accuracy": 60.123, "standard_error": 2.5},
            {"task": "late", "accuracy": None, "standard_error": None},
        ],
        "aa": None,
        "aa_standard_error": None,
        "before_upgrade": False,
    }


def test_plain_values_are_finite_or_nothing():
    assert [plain(value) for value in (0.25, math.nan, math.inf)] == [0.25, None, None]
    assert [rounded(value) for value in (1.23456, -math.inf)] == [1.235, None]


def test_right_answers_are_counted_with_noise_that_is_charged(make_context):
    """Without noise the counts are those of the rows: two of three, none of two."""
    context = replace(make_context(), tasks=TASKS)
    plan = replace(context.plan, schedule=replace(context.plan.schedule, evaluation=1))
    assert plan.budget == Budget(math.inf)
    context = replace(context, plan=plan)
    many = np.arange(6)
    embedded = study(clients=many)
    found = privately_measured(embedded, context, "class", lambda: Fitted(right))
    assert found["private"] is True
    assert len(found["accuracy"]) == len(found["standard_error"]) == 2
    assert [charge.label for charge in context.ledger.charges] == ["evaluation"]

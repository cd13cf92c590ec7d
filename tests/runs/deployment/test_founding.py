"""The plan of a federation: what it promises, how many coordinates δ is set aside for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cslr.errors import ConfigError
from cslr.privacy.plan import Schedule
from cslr.protocol.head import Family
from cslr.runs.deployment import founding
from cslr.runs.deployment.founding import (
    Wanted,
    _check_wanted,
    _coordinates,
    _plan,
    _units,
    found,
    usual_colluders,
    usual_threshold,
    wanted_of,
)
from cslr.runs.deployment.source import source_of_stream

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(autouse=True)
def shared_cache(cache, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))


def wanted(**more: object) -> Wanted:
    given = {
        "name": "clinics",
        "source": source_of_stream("clinic", 2, "minilm", 13),
        "members": 5,
        "threshold": 4,
        "colluders": 1,
        "spare": 2,
        "epsilon": 8.0,
        "delta": 1e-5,
        "unit": "person",
    }
    return Wanted(**{**given, **more})


@pytest.mark.parametrize(
    ("members", "colluders", "threshold"),
    [(3, 1, 3), (9, 1, 6), (10, 1, 7), (19, 1, 13), (20, 2, 14), (100, 10, 67)],
)
def test_a_tenth_may_collude_and_two_thirds_must_survive(members, colluders, threshold):
    assert usual_colluders(members) == colluders
    assert usual_threshold(members, colluders) == threshold
    # Two sets of survivors that share colluders alone are more members than there are.
    assert 2 * threshold - members > colluders or threshold == members


@pytest.mark.parametrize(
    ("more", "schedule", "cap"),
    [
        ({}, Schedule(1, head=0), 1),
        ({"unit": "client"}, Schedule(1, head=0), 2),
        ({"cap": 2}, Schedule(1, head=0), 2),
        ({"rounds": 3}, Schedule(0, head=3), 1),
        ({"evaluation": True}, Schedule(1, evaluation=1), 1),
    ],
)
def test_a_plan_has_the_releases_that_are_wanted_and_the_cap_of_its_unit(more, schedule, cap):
    plan = _plan(wanted(**more), 2, 1, 10)
    assert (plan.schedule, plan.cap, plan.releases) == (schedule, cap, 2)
    assert plan.budget.epsilon == 8.0
    assert plan.epsilon("roster") <= 8.0
    shares = plan.clients
    assert (shares.members, shares.threshold, shares.colluders) == (5, 4, 1)
    assert (shares.coordinates, shares.spare) == (10, 2)


def test_terms_that_no_secure_sum_accepts_are_refused_before_anything_is_founded():
    with pytest.raises((ConfigError, ValueError), match="threshold"):
        _plan(wanted(threshold=1), 2, 1, 10)
    assert _plan(wanted(members=300, threshold=200, colluders=30), 2, 1, 10).clients.members == 300


def sizes(*numbers: int):
    """An agreement whose requests about the tasks are so long."""
    layouts = [SimpleNamespace(layout=SimpleNamespace(size=number)) for number in numbers]
    return SimpleNamespace(request=lambda number, labels: layouts[number])


def side(tasks: int, width: int = 6):
    return side_of(Family("classification", 4), [(n,) for n in range(tasks)], width)


def side_of(family: Family, tasks: list[tuple[int, ...]], width: int = 6):
    stream = SimpleNamespace(tasks=[SimpleNamespace(labels=labels) for labels in tasks])
    return SimpleNamespace(stream=stream, public=np.zeros((9, width)), family=family)


@pytest.mark.parametrize(
    ("more", "coordinates"),
    [
        ({}, 7),
        ({"evaluation": True}, 7),
        ({"rounds": 2}, (6 + 1) * 4),
        ({"rounds": 2, "evaluation": True}, 28),
    ],
)
def test_delta_is_set_aside_for_the_release_with_the_most_coordinates(more, coordinates):
    assert _coordinates(sizes(5, 7, 3), side(3), wanted(**more)) == coordinates


@pytest.mark.parametrize(
    ("tasks", "outputs"),
    [
        ([(0, 1), (0, 2, 3, 4), (0, 5)], 6),  # B- and I- of three types
        ([(0, 1), (0, 2)], 2),
        ([(1,), (2, 3)], 4),  # O is a label of every task
        ([(0, 1, 2), (0, 2, 3)], 4),
        ([(0, 1), (0, 1, 2, 3, 4, 5)], 11),  # a task of all types trains O, too
    ],
)
def test_delta_is_set_aside_for_the_task_with_the_most_types(tasks, outputs):
    found = _coordinates(sizes(), side_of(Family("tagging", 6), tasks), wanted(rounds=2))
    assert found == (6 + 1) * outputs


def test_an_evaluation_has_two_coordinates_for_each_task():
    """How many were right, of how many."""
    many = side(20)
    assert _coordinates(sizes(*[5] * 20), many, wanted(evaluation=True)) == 40
    assert _coordinates(sizes(*[5] * 20), many, wanted(evaluation=True, rounds=1)) == 40
    assert _coordinates(sizes(*[5] * 20), many, wanted()) == 5


def apart(family: str, tasks: list[tuple[int, ...]]):
    """A source that declares four labels and these tasks."""
    declared = SimpleNamespace(
        family=family, labels=range(4), tasks=[SimpleNamespace(labels=labels) for labels in tasks]
    )
    return SimpleNamespace(without_rows=lambda: declared)


def test_gradients_are_asked_for_where_no_label_would_be_forgotten():
    """In tagging types may arrive task by task; elsewhere every task must have all labels."""
    _check_wanted(wanted(source=apart("tagging", [(0, 1), (0, 2, 3)]), rounds=2))
    _check_wanted(wanted(source=apart("intents", [(0, 1, 2, 3)] * 2), rounds=2))
    for family, tasks in (
        ("classification", [(0, 1), (2, 3)]),
        ("intents", [(0, 1, 2, 3), (2, 3)]),
        ("tagging", [(0,), (0, 1, 2, 3)]),  # a task without types
    ):
        _check_wanted(wanted(source=apart(family, tasks)))
        with pytest.raises(ConfigError, match="use --head released"):
            _check_wanted(wanted(source=apart(family, tasks), rounds=2))


@pytest.mark.parametrize(
    ("stream", "rounds", "suits"), [("ward", 0, True), ("ward", 2, False), ("clinic", 0, False)]
)
def test_a_founder_learns_where_a_run_would_choose_gradient_rounds(stream, rounds, suits):
    founded = found(wanted(source=source_of_stream(stream, 2, "minilm", 13), rounds=rounds))
    assert founded.suits_rounds is suits


def test_a_charter_says_what_was_founded_and_leads_back_to_it():
    asked = wanted(cap=2)
    made = found(asked)
    charter, stream = made.charter, made.embedded.stream
    assert wanted_of(charter, made.source) == asked
    assert charter.labels == tuple(label.name for label in stream.labels)
    assert [(task.name, task.labels) for task in charter.tasks] == [
        (task.name, task.labels) for task in stream.tasks
    ]
    assert charter.units == _units(made.embedded, asked).count == stream.registered_people
    assert _units(made.embedded, wanted(unit="client")).count == 5
    assert charter.plan.clients.coordinates == charter.coordinates > 1
    assert charter.encoder == made.embedded.encoder
    assert not len(made.embedded.train.z)


def test_a_plan_that_never_fits_its_own_coordinates_is_refused(monkeypatch):
    """The number of coordinates changes the plan, and the plan may change their number."""
    turns = iter(range(2, 99))
    monkeypatch.setattr(founding, "_coordinates", lambda *of: next(turns))
    with pytest.raises(ConfigError, match="no plan fits its own number of coordinates"):
        found(wanted())
    assert next(turns) == 5  # three attempts


def test_more_nodes_than_a_secure_sum_has_are_refused():
    with pytest.raises(ConfigError, match="at most 10000 members, not 70000"):
        _plan(wanted(members=70_000), 2, 1, 1)

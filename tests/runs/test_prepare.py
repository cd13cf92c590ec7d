"""What a run declares of its units, before anybody's rows are read."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.stream import dirichlet_partition
from cslr.data.streams import load_stream
from cslr.errors import ConfigError, PrivacyError
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.plan import Budget, Schedule
from cslr.protocol.step4_aggregate.contribution import MOST_ROWS, Units
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import SettledConfig
from cslr.runs.prepare import (
    FEW_ROWS,
    MANY_CLIENTS,
    _addresses,
    _cap_memory,
    _kinds,
    _people,
    _registered,
    _shares,
    _units,
    ledger_of,
    noise_of_the_paper,
    plan_of,
    population_of,
)


@pytest.fixture(scope="module")
def clinic():
    return load_stream("clinic", None)


def test_simulated_clients_share_the_rows_of_the_tasks_they_may_speak_in(clinic):
    config, rows, tasks = load_config(None, {}), len(clinic.train), len(clinic.tasks)
    every, one = replace(clinic, cap=None), replace(clinic, cap=1)
    for stream, count, expected in (
        (every, 10, rows // (10 * tasks)),
        (one, 10, rows // 10),
        (one, 2 * rows, 1),
    ):
        found = _units(config, stream, count)
        assert (found.count, found.rows) == (count, expected)


def test_of_clients_with_rows_of_their_own_only_their_number_is_known(clinic):
    config, own = load_config(None, {}), replace(clinic, partition="given")
    assert _units(config, own, MANY_CLIENTS) == Units(MANY_CLIENTS, FEW_ROWS)
    assert _units(config, own, MANY_CLIENTS - 1) == Units(MANY_CLIENTS - 1, MOST_ROWS)


def test_from_500_clients_on_a_label_counts_fully_from_two_rows_and_below_from_eight(clinic):
    """As docs/decisions.md has it; the plan of a federation stands on it."""
    config, own = load_config(None, {}), replace(clinic, partition="given")
    assert [_units(config, own, count).rows for count in (499, 500, 501)] == [8, 2, 2]


def test_of_people_the_stream_says_how_many_rows_they_have(clinic):
    config = load_config(None, {"privacy.unit": "person"})
    stream = replace(clinic, rows_per_person=3, clients_per_person=2)
    assert _units(config, stream, 50) == Units(50, 3, 2)


def test_of_people_with_several_tasks_is_declared_how_many(clinic):
    config = load_config(None, {"privacy.unit": "person"})
    stream = replace(clinic, tasks_per_person=2)
    assert _units(config, stream, 50) == Units(50, 3, 1, 2)
    assert plan_of(settled_of(**{"privacy.unit": "person"}), 4, None, 2).cap == 2
    assert plan_of(settled_of(), 4, 3, 2).cap == 3  # a client's are its own


def test_a_client_with_few_rows_has_few_tasks(clinic):
    """Against rows shared out as declared; the more rows, the nearer to all tasks."""
    config, stream, tasks = load_config(None, {}), clinic, len(clinic.tasks)
    found = [_units(config, stream, count).tasks for count in (2, 40, 200)]
    assert found == sorted(found, reverse=True)
    assert 0.9 * tasks < found[0] <= tasks
    rng = np.random.default_rng(0)
    owners = dirichlet_partition(stream.train.labels, 200, stream.alpha, rng, min_rows=0)
    held = len(np.unique(np.stack([owners, stream.train.tasks]), axis=1)[0]) / 200
    assert found[2] == pytest.approx(held, rel=0.25)
    # Of very many clients hardly any has a row, and none has two.
    assert _units(config, stream, 10**8).tasks == pytest.approx(len(stream.train) / 10**8, rel=1e-3)


# -- the plan --------------------------------------------------------------------------------------


def settled_of(**settings: object) -> SettledConfig:
    return SettledConfig.of(load_config(None, settings))


@pytest.mark.parametrize(
    ("settings", "cap", "expected"),
    [
        ({}, 3, 3),
        ({}, None, 4),
        ({"privacy.cap": 2}, 3, 2),
        ({"privacy.unit": "person"}, 3, 1),
        ({"privacy.unit": "person", "privacy.cap": 2}, 3, 2),
        ({"method": "dp-joint", "privacy.cap": 2}, 3, 4),
    ],
    ids=["of the stream", "all tasks", "as set", "of a person", "of a person, as set", "a curator"],
)
def test_a_unit_contributes_to_so_many_of_four_tasks(settings, cap, expected):
    assert plan_of(settled_of(**settings), 4, cap).cap == expected


def test_a_plan_promises_what_the_configuration_says():
    settings = {"privacy.epsilon": 2.0, "privacy.delta": 1e-6, "privacy.unit": "person"}
    plan = plan_of(settled_of(**settings), 3, None)
    assert plan.budget == Budget(2.0, 1e-6, "roster", unit="person")
    assert plan.epsilon("roster") == pytest.approx(2.0, rel=1e-5)
    assert (plan.releases, plan.schedule.evaluation) == (3, 0)
    assert plan_of(settled_of(**{"privacy.evaluate": "private"}), 3, None).schedule.evaluation == 1


@pytest.mark.parametrize(
    ("settings", "q", "head_q"),
    [
        ({"privacy.participation": 0.5, "paper.q": 0.4}, 0.5, 0.5),
        ({"method": "dp-sgd", "privacy.participation": 0.5}, 0.5, 1.0),
        ({"method": "cslr-paper", "privacy.participation": 0.5, "paper.q": 0.4}, 0.4, 0.4),
    ],
    ids=["participation", "a head of its own rate", "the paper's"],
)
def test_clients_take_part_as_often_as_set(settings, q, head_q):
    plan = plan_of(settled_of(**settings), 2, None)
    assert (plan.q, plan.head_q) == (q, head_q)


def test_a_method_that_releases_nothing_has_a_plan_without_noise():
    plan = plan_of(settled_of(method="joint"), 3, None)
    assert math.isinf(plan.budget.epsilon)
    assert plan.sigma is None
    assert plan.schedule == Schedule()


def test_the_papers_noise_is_that_of_its_table_where_it_is_asked_for():
    def noise(epsilon: float, calibration: str = "sigma") -> float | None:
        settings = {"privacy.epsilon": epsilon, "paper.calibration": calibration}
        return noise_of_the_paper(load_config(None, {"method": "cslr-paper", **settings}))

    assert [noise(epsilon) for epsilon in (1.0, 4.0, 8.0)] == [3.2, 1.45, 0.95]
    assert noise(math.inf) is None
    assert noise(4.0, "epsilon") is None
    with pytest.raises(ConfigError, match="for ε = 1, 4, 8, not for 3"):
        noise(3.0)


# -- who holds what --------------------------------------------------------------------------------


def test_registered_are_the_clients_or_the_people_that_are_declared_or_occur(clinic):
    clients = settled_of()
    assert _registered(clients, clinic) == clinic.clients
    assert _registered(settled_of(**{"stream.clients": 7}), clinic) == 7
    people = settled_of(**{"privacy.unit": "person"})
    assert _registered(people, replace(clinic, people=99)) == 99
    assert _registered(people, clinic) == len(np.unique(clinic.train.people))
    nobody = replace(clinic, train=replace(clinic.train, people=None))
    assert _registered(people, nobody) == len(clinic.train)
    own = replace(people, declaration=object())  # whose rows are not counted
    assert _registered(own, replace(clinic, people=None)) == 0


def test_a_person_is_who_a_client_says_and_without_names_every_row_is_one(clinic):
    rows, clients = np.array([0, 2, 1]), np.array([1, 0, 1])
    train = replace(clinic.train, people=np.array([5, 5, 9] + [0] * (len(clinic.train) - 3)))
    unit, count, ids = _people(replace(clinic, train=train), clients, rows)
    assert (unit.tolist(), count, ids) == ([1, 0, 1], 2, None)
    unit, count, _ = _people(replace(clinic, train=replace(train, people=None)), clients, rows)
    assert (len(set(unit.tolist())), count) == (3, 3)
    with pytest.raises(ConfigError, match="a person would be in several"):
        _people(replace(clinic, train=train), np.array([0, 1, 1]), np.array([0, 1, 2]))


def test_people_of_own_rows_have_addresses_and_so_have_those_without_rows(clinic):
    """Two of three declared people have rows, and each may be in two clients: six addresses."""
    train = replace(clinic.train, people=np.arange(len(clinic.train)) % 2)
    own = replace(
        clinic, train=train, person_ids=np.array([70, 80]), people=3, clients_per_person=2
    )
    unit, count, ids = _people(own, np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert (unit.tolist(), count, ids.tolist()) == ([0, 1, 0], 6, [70, 80, -1, -2, -3, -4])
    _, count, ids = _people(replace(own, people=None), np.array([0]), np.array([0]))
    assert (count, ids.tolist()) == (4, [70, 80, -1, -2])


def test_clients_of_own_rows_have_addresses_too():
    assert _addresses(np.array([5, 9]), 4).tolist() == [5, 9, -1, -2]


def test_the_true_mode_of_an_example_is_what_its_stream_knows_else_its_label():
    train = SimpleNamespace(labels=np.array([3, 4, 4]), rows=np.array([0, 1, 1]))
    for kinds, expected in ((None, [3, 4, 4]), (np.array([7, 8]), [7, 8, 8])):
        stream = SimpleNamespace(train=SimpleNamespace(kinds=kinds))
        found = _kinds(SimpleNamespace(stream=stream, train=train))
        assert found.tolist() == expected


def test_a_client_holds_all_words_of_its_rows(clinic, monkeypatch):
    """Three rows of two, one and three words; the last and the second are of client 1."""
    held = np.array([1, 0, 1]), np.array([2, 0, 1])
    monkeypatch.setattr("cslr.runs.prepare.assign_clients", lambda *_: held)
    train = SimpleNamespace(
        z=np.zeros((6, 2)),
        labels=np.zeros(6, dtype=int),
        tasks=np.zeros(6, dtype=int),
        targets=None,
        rows=np.array([0, 0, 1, 2, 2, 2]),
        starts=np.array([0, 2, 3, 6]),
    )
    embedded = SimpleNamespace(stream=clinic, train=train, encoders=1)
    config = load_config(None, {"stream.clients": 8, "stream.poisoning": "mislead-0.25"})
    found = population_of(config, embedded, 13)
    assert found.held.tolist() == [3, 4, 5, 0, 1, 2]
    assert found.clients.tolist() == [1, 1, 1, 0, 0, 1]
    assert (found.count, found.attack) == (8, "mislead")
    assert len(set(found.hostile.tolist())) == 2


def test_shares_of_labels_are_those_among_the_test_examples_of_a_task():
    embedded = SimpleNamespace(
        stream=SimpleNamespace(tasks=range(3)),
        family=SimpleNamespace(labels=4),
        test=SimpleNamespace(tasks=np.array([0, 0, 0, 2]), labels=np.array([0, 0, 1, 3])),
    )
    expected = [[2 / 3, 1 / 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(_shares(embedded), expected)


# -- ledgers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "epsilon", "scope"),
    [
        ({"privacy.epsilon": 4.0}, 4.0, "end_to_end"),
        ({"privacy.epsilon": 4.0, "privacy.budget": 6.0}, 6.0, "end_to_end"),
        ({"privacy.epsilon": 4.0, "head.kind": "federated"}, 4.0, "replay"),
        ({"privacy.epsilon": 4.0, "method": "joint"}, math.inf, "end_to_end"),
        (
            {"privacy.epsilon": 4.0, "method": "cslr-paper", "paper.calibration": "sigma"},
            math.inf,
            "replay",
        ),
    ],
    ids=["epsilon", "budget", "replay alone", "openly", "the paper's noise"],
)
def test_the_ledger_of_a_simulation_is_in_its_directory_with_the_budget_that_holds(
    tmp_path, settings, epsilon, scope
):
    settled = settled_of(**settings)
    directory = RunDirectory(tmp_path / "run", settled.given)
    directory.begin()
    with ledger_of(settled, 13, directory) as ledger:
        budget = ledger.federation.budget
    assert (budget.epsilon, budget.scope) == (epsilon, scope)
    assert (tmp_path / "run" / "seed-13" / "ledger.jsonl").exists()


def test_what_a_run_is_compared_with_is_paid_for_nowhere(tmp_path):
    settled = settled_of(**{"privacy.epsilon": 4.0}).compared_with("dp-class-stats")
    directory = RunDirectory(tmp_path / "run", settled.given)
    directory.begin()
    with ledger_of(settled, 13, directory) as ledger:
        assert math.isinf(ledger.federation.budget.epsilon)
    assert not list(directory.path.rglob("ledger.jsonl"))


def test_only_an_enforced_cap_is_remembered(tmp_path):
    def memory(mode: str, cap: int, *charges: Charge) -> object:
        settings = {"privacy.mode": mode, "privacy.cap": cap}
        if mode == "enforced":
            settings["privacy.federation"] = tmp_path
        settled = settled_of(**settings)
        return _cap_memory(
            settled.config, plan_of(settled, 3, None), SimpleNamespace(charges=charges)
        )

    assert memory("simulated", 1) is None
    assert memory("enforced", 3) is None  # no cap
    assert not (tmp_path / "spoken.json").exists()
    assert isinstance(memory("enforced", 1), CapMemory)
    assert (tmp_path / "spoken.json").exists()
    with pytest.raises(PrivacyError, match="is older than the ledger"):
        memory("enforced", 1, Charge("task 1", 1, "replay", 1.0, task=1))

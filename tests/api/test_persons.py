"""``learn`` with people inside clients as the units of privacy."""

from __future__ import annotations

import numpy as np
import pytest

import cslr
from cslr.api.persons import DeclaredPeople, people_of_rows
from cslr.data.own.people import person_address
from cslr.errors import ConfigError, DataError


@pytest.fixture
def with_people(arguments):
    """Five clients that hold some hundred people, each with a few rows."""
    people = np.random.default_rng(2).integers(160, size=len(arguments["X"]))
    return {
        **arguments,
        "clients": [f"clinic {person % 5}" for person in people],
        "people": [f"patient {person}" for person in people],
        "registered": 5,
        "unit": "person",
        "registered_people": 200,
        "rows_per_person": 2,
    }


def test_people_are_hidden_and_the_ledger_says_so(with_people, tmp_path):
    model = cslr.learn(**with_people, ledger=tmp_path / "ledger")
    assert model.privacy == "enforced"
    written = (tmp_path / "ledger" / "ledger.jsonl").read_text().replace(" ", "")
    assert '"unit":"person"' in written
    assert '"cap":1' in written
    assert model.epsilon("roster") == pytest.approx(4.0, abs=1e-3)
    assert model.score(with_people["X"], with_people["y"]) > 0.9


@pytest.mark.parametrize(("declared", "cap"), [({}, 1), ({"tasks_per_person": 2}, 2)])
def test_people_contribute_to_as_many_tasks_as_are_declared(with_people, tmp_path, declared, cap):
    cslr.learn(**with_people, **declared, ledger=tmp_path / "ledger")
    assert f'"cap":{cap}' in (tmp_path / "ledger" / "ledger.jsonl").read_text().replace(" ", "")


def test_a_cap_counts_more_than_the_tasks_of_people(with_people, tmp_path):
    cslr.learn(**with_people, tasks_per_person=2, cap=1, ledger=tmp_path / "ledger")
    assert '"cap":1' in (tmp_path / "ledger" / "ledger.jsonl").read_text().replace(" ", "")


def test_a_ledger_of_people_refuses_clients(with_people, arguments, tmp_path):
    cslr.learn(**with_people, ledger=tmp_path / "ledger", budget=9.0)
    with pytest.raises(cslr.CslrError, match=r"unit|person"):
        cslr.learn(**arguments, ledger=tmp_path / "ledger", budget=9.0)


def test_a_simulation_counts_people_itself(with_people):
    del with_people["registered_people"], with_people["registered"]
    model = cslr.learn(**with_people, simulate=True)
    assert model.privacy == "simulated"


def test_numbers_of_people_are_declared_where_privacy_is_enforced(with_people, tmp_path):
    del with_people["registered_people"]
    with pytest.raises(DataError, match="registered_people is missing"):
        cslr.learn(**with_people, ledger=tmp_path / "ledger")
    assert not (tmp_path / "ledger" / "ledger.jsonl").exists()


def test_more_people_than_registered_are_refused(with_people):
    with pytest.raises(DataError, match=r"people: .* of them have rows, but registered_people=3"):
        cslr.learn(**{**with_people, "registered_people": 3}, simulate=True)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"people": None}, DataError, "people is missing"),
        ({"unit": "client"}, ConfigError, "are for unit='person'"),
        ({"unit": "row"}, ConfigError, "unit must be 'client' or 'person'"),
        ({"clients_per_person": 0}, ConfigError, "at least 1"),
        ({"tasks_per_person": 0}, ConfigError, "at least 1"),
        ({"tasks_per_person": 3}, ConfigError, "tasks_per_person=3 is more than the 2 tasks"),
    ],
)
def test_a_wrong_unit_is_refused_by_name(with_people, changed, error, message):
    with pytest.raises(error, match=message):
        cslr.learn(**{**with_people, **changed}, simulate=True)


def test_a_person_in_two_clients_must_be_declared(with_people):
    with_people["clients"][0] = f"clinic {(int(with_people['clients'][1][-1]) + 1) % 5}"
    with_people["people"][0] = with_people["people"][1]
    with pytest.raises(DataError, match=r"has rows in 2 clients .* clients_per_person=1"):
        cslr.learn(**with_people, simulate=True)


def test_a_person_in_two_clients_is_two_units_with_half_the_bound_each():
    declared = DeclaredPeople("person", 10, clients_per_person=2)
    people = people_of_rows(["ann", "bob", "ann"], ["a", "a", "b"], declared, simulate=False)
    assert people.units.tolist() == [0, 1, 2]
    assert people.ids.tolist() == [
        person_address(*each) for each in (("a", "ann"), ("a", "bob"), ("b", "ann"))
    ]
    assert people.registered == 10


def test_an_address_depends_on_no_other_row():
    declared = DeclaredPeople("person", 10)
    few = people_of_rows(["zoe"], ["b"], declared, simulate=False)
    many = people_of_rows(["ann", "zoe"], ["a", "b"], declared, simulate=False)
    assert many.ids[many.units[1]] == few.ids[few.units[0]]


def test_a_person_whose_name_is_spelt_in_two_ways_is_one_person():
    """As for rows from a file; otherwise each spelling would be a unit of its own."""
    declared = DeclaredPeople("person", registered=3)
    found = people_of_rows(["Zo\u00eb", "Zoe\u0308 "], ["a", "a"], declared, simulate=False)
    assert len(found.ids) == 1
    with pytest.raises(DataError, match="has rows in 2 clients"):
        people_of_rows(["Zo\u00eb", "Zoe\u0308"], ["a", "b"], declared, simulate=False)

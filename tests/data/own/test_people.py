"""People inside clients as units: addresses, test rows and how many clients may hold one."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.own import check, load_own
from cslr.data.own.draft import draft
from cslr.data.own.people import person_address, typical
from cslr.errors import ConfigError, DataError
from cslr.federation.simulation import Population
from cslr.runs.own_data import complete
from cslr.runs.prepare import _people

PUBLIC = ("A public sentence.", "Another one.")


@pytest.fixture
def by_person(declare):
    """A declaration with a person as the unit."""

    def make(**changes):
        privacy = {"epsilon": 4.0, "unit": "person"}
        return declare(**({"privacy": privacy, "people": 5} | changes))

    return make


def addresses(stream) -> list[int]:
    return stream.person_ids[stream.train.people].tolist()


def test_people_are_numbered_with_their_client_and_addressed_by_both_names(write, rows, by_person):
    stream = load_own(write("csv", rows), by_person(), PUBLIC).stream
    expected = [("north", "p1"), ("east", "p2"), ("north", "p1")]
    assert addresses(stream) == [person_address(*names) for names in expected]
    assert (stream.people, stream.rows_per_person, stream.clients_per_person) == (5, 1, 1)


def test_a_person_contributes_to_as_many_tasks_as_declared(write, rows, by_person):
    assert load_own(write("csv", rows), by_person(), PUBLIC).stream.tasks_per_person == 1
    declared = by_person(tasks_per_person=2)
    assert load_own(write("csv", rows), declared, PUBLIC).stream.tasks_per_person == 2


def test_typical_people_have_the_median_of_rows_and_of_tasks():
    assert typical({}) == (1, 1)
    rows = {("a", 0): 4, ("a", 1): 4, ("b", 0): 1, ("b", 1): 6, ("c", 0): 4}
    assert typical(rows) == (4, 2)


def test_an_address_depends_on_nobody_else(write, rows, by_person):
    every = load_own(write("csv", rows), by_person(), PUBLIC).stream
    alone = load_own(write("csv", rows[:1]), by_person(), PUBLIC).stream
    assert addresses(alone) == addresses(every)[:1]


def test_two_names_are_not_mistaken_for_two_others():
    assert person_address("ab", "c") != person_address("a", "bc")


def test_a_person_may_be_with_as_many_clients_as_declared(write, rows, by_person):
    twice = [*rows, rows[0] | {"client": "east"}]
    declared = by_person(clients_per_person=2)
    stream = load_own(write("csv", twice), declared, PUBLIC).stream
    assert addresses(stream)[3] == person_address("east", "p1")
    assert addresses(stream)[0] == person_address("north", "p1")
    with pytest.raises(DataError, match="person 'p1' is in client 'east' here"):
        load_own(write("csv", twice), by_person(), PUBLIC, skip_bad_rows=True)


def test_one_client_more_than_declared_is_refused_and_cannot_be_left_out(write, rows, by_person):
    thrice = [*rows, rows[0] | {"client": "east"}, rows[0] | {"client": "west"}]
    with pytest.raises(DataError, match="clients_per_person = 2 is declared"):
        load_own(write("csv", thrice), by_person(clients_per_person=2), PUBLIC, skip_bad_rows=True)


def test_registered_places_do_not_depend_on_rows(write, rows, by_person):
    def places(some, **changes):
        stream = load_own(write("csv", some), by_person(**changes), PUBLIC).stream
        return _people(stream, stream.train.clients, np.arange(len(stream.train)))[1]

    assert places(rows) == places(rows[:1]) == 5
    assert places(rows, clients_per_person=2) == 10


def test_more_people_than_declared_are_refused(write, rows, by_person):
    with pytest.raises(DataError, match="rows of 3 people, but people = 2 is declared"):
        load_own(write("csv", rows), by_person(people=2), PUBLIC)
    report = check(write("csv", rows), by_person(people=2))
    assert any("people = 2 is declared, but 3 people have rows" in each for each in report.findings)


def test_a_row_without_a_person_is_a_bad_row(write, rows, by_person):
    with pytest.raises(DataError, match="person"):
        load_own(write("csv", [*rows, rows[0] | {"person": ""}]), by_person(), PUBLIC)


def test_nobody_moves_another_person_between_train_and_test(write, rows, by_person):
    """With a client as the unit a client's people are counted; here a count would reveal one."""
    many = [{**rows[0], "person": f"p{n}"} for n in range(40)]
    declared = by_person(columns={"task": "task", "person": "person"}, people=50, test_share=0.3)

    def tested(some):
        stream = load_own(write("csv", some), declared, PUBLIC).stream
        return set(stream.person_ids[stream.test.people].tolist())

    every = tested(many)
    assert 5 <= len(every) <= 20
    for gone in range(0, 40, 5):
        without = [row for row in many if row["person"] != f"p{gone}"]
        assert tested(without) == every - {person_address("north", f"p{gone}")}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"people": None}, "needs people"),
        ({"columns": {"task": "task", "split": "split"}}, "needs columns.person"),
        ({"clients_per_person": 9}, "more than clients = 4"),
        ({"tasks_per_person": 3}, "more than the 2 declared tasks"),
        ({"privacy": {"epsilon": 4.0}}, "people is for people as units"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(by_person, changes, told):
    with pytest.raises(ValueError, match=told):
        by_person(**changes)


def test_a_report_says_whom_privacy_hides(write, rows, by_person):
    report = check(write("csv", rows), by_person())
    assert report.ready
    assert any("people with rows: 3 of 5 registered" in line for line in report.as_lines())


def test_delta_is_compared_with_the_number_of_people(write, rows, by_person):
    privacy = {"epsilon": 4.0, "unit": "person", "delta": 1e-3}
    report = check(write("csv", rows), by_person(people=2000, privacy=privacy))
    assert any("1/2000, one over the number of people" in each for each in report.remarks)


def test_a_draft_proposes_a_person_where_a_column_names_people(write, rows):
    text = draft(write("csv", rows))
    assert 'unit = "person"  # confirm' in text
    assert "people = 3  # confirm" in text
    without = [{k: v for k, v in row.items() if k != "person"} for row in rows]
    assert 'unit = "client"  # confirm' in draft(write("jsonl", without))


def test_a_declaration_settles_the_unit(write, rows, by_person, tmp_path):
    (tmp_path / "public.txt").write_text("\n".join(f"Sentence {n}." for n in range(120)))
    path, declared = write("csv", rows), by_person()

    def given(**more):
        settings = {"stream.data": path, "stream.public": tmp_path / "public.txt", **more}
        return complete(load_config(None, settings), declared)

    assert given().privacy.unit == "person"
    with pytest.raises(ConfigError, match=r"--unit client: .* promises to hide one person"):
        given(**{"privacy.unit": "client"})


def test_a_population_of_people_speaks_by_their_addresses(write, rows, by_person):
    stream = load_own(write("csv", rows), by_person(), PUBLIC).stream
    unit, count, ids = _people(stream, stream.train.clients, np.arange(3))
    people = Population(
        np.zeros((3, 2)), stream.train.labels, stream.train.tasks, unit, count, ids=ids
    )
    speaking = people.cohort(0, np.ones(count, dtype=bool), cap=2).batches()
    asked = {client for batch in speaking for client in batch.clients}
    assert asked == {person_address("north", "p1"), person_address("east", "p2")}

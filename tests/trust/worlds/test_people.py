"""Two worlds that differ in one person inside a client: what carries no noise is the same."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.data.own.people import person_address
from cslr.methods import gradient_rounds
from cslr.protocol.updates import update_ask
from cslr.seeding import Seeds

from .world import (
    Case,
    World,
    differences,
    ledger_kinds,
    moved,
    only_person,
    rows_of,
    without_person,
)

pytestmark = pytest.mark.xdist_group("worlds")

MANY, SINGLE, ALONE, TESTED = "many", "c0-20", "c5-0", "tested-0"
FEW_ROUNDS = ("--head", "rounds", "--set", "head.rounds=2")
CASES = [
    Case("classification", clients_per_person=1),
    Case("intents", ("--cap", "2"), clients_per_person=1),
    Case("tagging", ("--head", "released"), clients_per_person=1),
    Case(flags=("--method", "dp-sgd"), clients_per_person=1),
    Case(flags=("--method", "dp-class-stats"), clients_per_person=1),
    Case(flags=("--cap", "1", "--q", "0.5"), clients_per_person=1),
    Case(upgrade=True, clients_per_person=1),
    Case(flags=("--set", "replay.sub_modes=2"), clients_per_person=1),
    Case("tagging", FEW_ROUNDS, clients_per_person=1),
    Case(flags=("--method", "dp-stat-share"), clients_per_person=1),
    Case("tagging", FEW_ROUNDS, clients_per_person=1, apart=True),
]
LISTS, ROUNDS, APART = CASES[7], CASES[8], CASES[10]
QUICK = [(CASES[0], MANY), (CASES[0], SINGLE), (CASES[0], ALONE), (CASES[3], MANY)]
QUICK += [(LISTS, MANY), (ROUNDS, ALONE), (APART, MANY)]


def troubles(play, case: Case, person: str) -> list[str]:
    rows = rows_of(case.family)
    one, other = play(case, rows), play(case, without_person(rows, person))
    return differences(one, other)


@pytest.mark.parametrize(("case", "person"), QUICK, ids=str)
def test_a_person_moves_sums_by_their_bound_and_nothing_else(play, case, person):
    assert troubles(play, case, person) == []


@pytest.mark.trust
def test_no_case_shows_a_person_beyond_its_bound(play, card):
    pairs = [(case, person) for case in CASES for person in (MANY, SINGLE, ALONE)]
    bad = [
        f"{case} without {person}: {trouble}"
        for case, person in pairs
        for trouble in troubles(play, case, person)
    ]
    card(
        "two worlds, people inside clients",
        "nothing without noise differs, sums within their bound",
        f"{len(pairs)} pairs of runs, {len(bad)} differences",
        not bad,
    )
    assert bad == []


@pytest.mark.parametrize(
    ("case", "person"),
    [
        (CASES[0], MANY),
        (CASES[0], SINGLE),
        (CASES[0], ALONE),
        (LISTS, MANY),
        (CASES[2], SINGLE),
        (APART, MANY),
    ],
    ids=str,
)
def test_what_a_person_adds_to_a_sum_depends_on_nobody_else(play, case, person):
    """Exactly, in integers: no clip, mean, cap, lot or batch of a client stands between people."""
    rows = rows_of(case.family)
    worlds = (rows, without_person(rows, person), only_person(rows, person))
    every, others, own = (play(case, each) for each in worlds)
    assert moved(every, others)
    for name, (total, _) in every.sums.items():
        assert np.array_equal(total - others.sums[name][0], own.sums[name][0])


@pytest.mark.parametrize(
    ("family", "flags", "apart"),
    [
        ("classification", (), False),
        ("classification", ("--method", "dp-sgd"), False),
        ("tagging", FEW_ROUNDS, False),
        ("tagging", FEW_ROUNDS, True),
    ],
)
def test_a_person_of_two_clients_moves_sums_by_their_bound(play, family, flags, apart):
    case, rows = Case(family, flags, clients_per_person=2, apart=apart), rows_of(family)
    rows = [*rows, *[{**row, "client": "c1"} for row in rows if row["person"] == MANY]]
    one, other = play(case, rows), play(case, without_person(rows, MANY))
    assert differences(one, other) == []
    assert moved(one, other)


def test_a_person_who_speaks_of_another_task_in_each_client_costs_no_more(play):
    """Under a cap of one each client picks a task by itself: half of the bound in each of two."""
    name = next(
        name
        for name in (f"many-{number}" for number in range(50))
        if _chosen("c0", name) != _chosen("c1", name)
    )
    case, rows = Case(flags=("--cap", "1"), clients_per_person=2), rows_of("classification")
    many = [row for row in rows if row["person"] == MANY]
    rows = [row for row in rows if row["person"] != MANY]
    both = [*rows, *[row | {"client": c, "person": name} for row in many for c in ("c0", "c1")]]
    one, other = play(case, both), play(case, rows)
    assert differences(one, other) == []
    moves = [
        np.linalg.norm((total - other.sums[label][0]).astype(float)) / steps
        for label, (total, steps) in one.sums.items()
    ]
    assert len(moves) == 2
    assert 0 < min(moves) <= max(moves) <= 0.5 + 1e-9
    assert sum(np.square(moves)) <= 1, "what a cap of one is charged for"


def test_a_method_that_clips_as_for_one_client_releases_nothing(tmp_path, monkeypatch):
    """Its default is one client a person; where two hold some, a sum would move by twice that."""
    monkeypatch.setattr(
        gradient_rounds,
        "update_ask",
        lambda update, training, norm, *_: update_ask(update, training, norm),
    )
    flags = ("--head", "rounds", "--set", "head.rounds=2")
    world = World(
        tmp_path / "world", Case("tagging", flags, clients_per_person=2), rows_of("tagging")
    )
    with pytest.raises(ValueError, match="share >= 2, not 1"):
        world.run()
    assert world.transcript.sums == {}


def _chosen(client: str, person: str) -> int:
    """The task, of two, that a person speaks of in a client under a cap of one."""
    return int(Seeds(person_address(client, person)).at("cap").random(2).argmin())


def test_a_person_whose_answers_are_counted_moves_the_count_by_its_bound(play):
    case = Case(flags=("--evaluate", "private"), clients_per_person=1)
    rows = rows_of("classification")
    one, other = play(case, rows), play(case, without_person(rows, TESTED))
    assert differences(one, other) == []
    assert not np.array_equal(one.sums["evaluation/0"][0], other.sums["evaluation/0"][0])


@pytest.mark.parametrize(
    ("case", "died", "charges"),
    [(CASES[0], "task 0", 2), (APART, "task 0 update 1", 4), (APART, "task 1 update 0", 4)],
    ids=str,
)
def test_a_person_that_is_gone_after_a_crash_does_not_show(tmp_path, case, died, charges):
    rows, ends = rows_of(case.family), []
    for later in (rows, without_person(rows, MANY)):
        world = World(tmp_path / "world", case, rows)
        assert world.run(dies_at=died) == -9
        world.write(later)
        assert world.run() == 0
        ends.append(world.end())
    assert differences(*ends) == []
    assert ledger_kinds(ends[0]).count("charge") == charges


def test_a_ledger_of_one_unit_refuses_the_other(tmp_path):
    rows = rows_of("classification")
    world = World(tmp_path / "world", Case(clients_per_person=1), rows)
    assert world.run() == 0
    declared = world.root / "rows.cslr.toml"
    text = declared.read_text().replace(', unit = "person"', "").replace("people = 200\n", "")
    declared.write_text(text.replace("clients_per_person = 1\n", ""))
    assert world.run("--run-dir", "second") == 2
    assert "belongs to another federation; it differs in" in world.transcript.exits[-1][2]
    assert "unit" in world.transcript.exits[-1][2]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--method", "fedcil"), "cannot hide one person"),
        (("--unit", "client"), "promises to hide one person"),
    ],
)
def test_what_cannot_hide_a_person_is_refused_by_name(tmp_path, flags, told):
    world = World(tmp_path / "world", Case(flags=flags, clients_per_person=1), rows_of("intents"))
    assert world.run() == 2
    assert told in world.transcript.exits[-1][2]

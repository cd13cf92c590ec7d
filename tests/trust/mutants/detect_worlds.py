"""Looks at whole runs of the program: what a client's rows change, and what a budget allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.privacy.ledger.book import Ledger

from ..worlds.world import (
    Case,
    Rows,
    Transcript,
    World,
    differences,
    only_person,
    rows_of,
    without,
    without_person,
)
from .lab import Finding, Lab

LARGE = "c0"
BOTH = "c1-0"
"""A person with rows of one task, two labels, whose contribution is as long as is allowed."""
DECLARED = 8.0


def two_worlds(lab: Lab, seed: int) -> Finding:
    """With and without one client: what carries no noise is the same, byte for byte."""
    rows, ends = rows_of("classification"), []
    root = lab.room() / "world"
    for present in (rows, without(rows, LARGE)):
        world = World(root, Case(), present)
        world.run()
        ends.append(world.end())
    return _finding(differences(*ends))


def changed_after_a_crash(lab: Lab, seed: int) -> Finding:
    """Whether rows changed between a crash and its resumption shows nowhere."""
    rows, ends = rows_of("classification"), []
    root = lab.room() / "world"
    for later in (rows, without(rows, LARGE)):
        world = World(root, Case(), rows)
        world.run(dies_at="task 0")
        world.write(later)
        world.run()
        ends.append(world.end())
    return _finding(differences(*ends))


def one_budget(lab: Lab, seed: int) -> Finding:
    """Runs on one file, under whatever ledger, cost no more together than is declared."""
    world = World(lab.room() / "world", Case(), rows_of("classification"))
    world.run("--federation", "f1")
    world.run("--run-dir", "second", "--federation", "f2")
    world.run("--run-dir", "third")
    ledgers = sorted(world.root.rglob("ledger.jsonl"))
    spent = [Ledger.read(path).epsilon("end_to_end", "roster") for path in ledgers]
    return Finding(sum(spent) > DECLARED + 1e-6, f"{len(spent)} ledgers, ε = {sum(spent):.2f}")


def people_add_up(lab: Lab, seed: int) -> Finding:
    """What a person adds to a sum is the same in company and alone, exactly."""
    rows, found = rows_of("classification"), []
    root = lab.room() / "world"
    every = _people(root, rows)
    for person in ("many", "c0-20"):
        others = _people(root, without_person(rows, person))
        own = _people(root, only_person(rows, person))
        for name, (total, _) in every.sums.items():
            if not np.array_equal(total - others.sums[name][0], own.sums[name][0]):
                found.append(f"{person} adds something else to {name}")
    return _finding(found)


def person_of_two_clients(lab: Lab, seed: int) -> Finding:
    """Without a person whom two clients hold every sum moves by at most its bound."""
    rows = rows_of("classification")
    rows += [{**row, "client": "c2"} for row in rows if row["person"] == BOTH]
    root = lab.room() / "world"
    ends = [_people(root, each, 2) for each in (rows, without_person(rows, BOTH))]
    return _finding(differences(*ends))


def _people(root: Path, rows: Rows, clients_per_person: int = 1) -> Transcript:
    world = World(root, Case(clients_per_person=clients_per_person), rows)
    world.run()
    return world.end()


def _finding(found: list[str]) -> Finding:
    return Finding(bool(found), "; ".join(found)[:200] or "nothing differs")

"""Looks at whole runs of the program: what a client's rows change, and what a budget allows."""

from __future__ import annotations

from cslr.privacy.ledger.book import Ledger

from ..worlds.world import Case, World, differences, rows_of, without
from .lab import Finding, Lab

LARGE = "c0"
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


def _finding(found: list[str]) -> Finding:
    return Finding(bool(found), "; ".join(found)[:200] or "nothing differs")

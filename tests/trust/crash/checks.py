"""What must hold after a run was disturbed, however it was."""

from __future__ import annotations

import hashlib
from typing import Any

from cslr.privacy.ledger.book import Ledger
from cslr.runs.directory import SeedDirectory

from .points import Points
from .study import Case

Tree = dict[str, bytes]


def tree(case: Case) -> Tree:
    """Every file by name; a temporary file that a dead process left behind is nobody's."""
    return {
        str(path.relative_to(case.root)): path.read_bytes()
        for path in sorted(case.root.rglob("*"))
        if path.is_file() and path.suffix != ".part"
    }


def differing(case: Case, undisturbed: Tree) -> list[str]:
    """The names of files that are not as in the undisturbed run."""
    found = tree(case)
    return [
        name
        for name in sorted(found.keys() | undisturbed.keys())
        if found.get(name) != undisturbed.get(name)
    ]


def witnessed(case: Case) -> list[dict[str, Any]]:
    """Every value that left the mechanism, in order, in all processes."""
    return Points(case.root).noted("released")


def unpaid(case: Case) -> list[str]:
    """Releases that were not on the disk's account when they happened, or share an entry."""
    wrong = []
    payloads: dict[str, set[str]] = {}
    for note in witnessed(case):
        payloads.setdefault(note["label"], set()).add(note["digest"])
        if note["key"] not in note["durable"]:
            wrong.append(f"{note['label']}: released before its charge was durable")
    charged = [charge.label for charge in ledger_of(case).charges] if payloads else []
    for label, different in payloads.items():
        if len(different) > charged.count(label):
            wrong.append(f"{label}: {len(different)} payloads for {charged.count(label)} charges")
    return wrong


def unsettled(case: Case) -> list[str]:
    """Of a finished run: charges without their result, results that are others, keys left over."""
    ledger = ledger_of(case)
    digests = {
        record["body"]["label"]: record["body"]["digest"]
        for record in ledger.records
        if record["kind"] == "settled"
    }
    kept = SeedDirectory(case.kept)
    wrong = []
    for label in {charge.label for charge in ledger.charges}:
        vector = kept.load(label)
        if vector is None:
            wrong.append(f"{label}: charged, not kept")
        elif hashlib.sha256(vector.astype("<f8").tobytes()).hexdigest() != digests.get(label):
            wrong.append(f"{label}: not what was settled")
    keys = case.federation / "keys"
    left = [path.name for path in keys.iterdir()] if keys.is_dir() else []
    return wrong + [f"{name}: key left over" for name in left]


def spent(case: Case) -> float:
    """ε of the ledger, against the roster."""
    return ledger_of(case).epsilon("end_to_end", "roster")


def ledger_of(case: Case) -> Ledger:
    return Ledger.read(case.ledger)

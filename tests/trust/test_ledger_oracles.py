"""The ledger's ε beside four accountants, two of them other people's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.ledger.verify import verify
from cslr.privacy.plan import Budget, calibrate
from cslr.seeding import Seeds

pytestmark = pytest.mark.trust
Card = Callable[[str, str, str, bool], None]


def charges_of(kind: str) -> list[Charge]:
    """Everybody in every round, by lot, and both: lists, sums behind one coin, and updates."""
    if kind == "full":
        return [Charge(f"task {t}", t, "replay", 2.65) for t in range(6)]
    if kind == "sampled":
        return [Charge(f"task {t}", t, "replay", 0.73, 0.3) for t in range(4)]
    charges = []
    for task in range(3):
        sums = [Charge(f"{task} {name}", task, "replay", 1.8, 0.3, task) for name in "abcd"]
        update = Charge(f"{task} update", 20 + task, "replay", 0.8, 0.2, task)
        charges += [Charge(f"{task} list", 10 + task, "replay", 0.95, 1.0, task), *sums, update]
    return charges


def ledgers(directory: Path) -> list[Path]:
    """One of each kind; in the last a client is in one task only."""
    made = []
    for kind in ("full", "sampled", "mixed"):
        path = directory / kind / "ledger.jsonl"
        federation = Federation(kind, Budget(math.inf), "simulated")
        with Ledger.at(path, federation, SeededKeys(Seeds(13))) as ledger:
            if kind == "mixed":
                ledger.fix_plan(calibrate(Budget(math.inf), 3, cap=1), {})
            for charge in charges_of(kind):
                pay(ledger, charge)
        made.append(path)
    return made


def pay(ledger: Ledger, charge: Charge) -> None:
    ledger.charge(charge, lambda key: key.hex())
    ledger.settle(charge.label, "digest")


def test_four_accountants_agree_with_the_ledger(tmp_path: Path, card: Card):
    for module in ("opacus", "prv_accountant"):
        pytest.importorskip(module)
    found = [verify(path) for path in ledgers(tmp_path)]
    asked = [o for each in found for cost in each.costs for o in cost.opinions]
    agreeing = sum(opinion.agrees is True for opinion in asked)
    accountants = {opinion.accountant for opinion in asked} - {"definition"}
    holds = agreeing == len(asked) and all(each.holds for each in found)
    card(
        "ledger verified by PLD, RDP, Opacus and PRV",
        "all agree",
        f"{agreeing} of {len(asked)} opinions on {len(found)} ledgers",
        holds,
    )
    assert accountants == {"PLD", "RDP", "Opacus", "PRV"}
    assert all(each.holds for each in found)
    assert agreeing == len(asked)

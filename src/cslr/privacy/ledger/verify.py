"""Verify a ledger, and recompute its ε with independent accountants. Read-only."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cslr.errors import LedgerCorrupted
from cslr.privacy.accounting import ADVERSARIES, SCOPES, Adversary, Scope
from cslr.privacy.ledger.accountants import Kinds, Opinion, opinions, recount
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys

__all__ = ["Check", "Cost", "Verification", "verify"]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    finding: str
    holds: bool


@dataclass(frozen=True)
class Cost:
    """An ε of the ledger and the results of other accountants for it."""

    scope: Scope
    adversary: Adversary
    epsilon: float
    opinions: tuple[Opinion, ...]

    @property
    def agreed(self) -> bool:
        """Whether no accountant disagrees."""
        return all(opinion.agrees is not False for opinion in self.opinions)


@dataclass(frozen=True)
class Verification:
    """All checks of one ledger."""

    path: Path
    checks: tuple[Check, ...]
    costs: tuple[Cost, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether all checks passed."""
        return all(check.holds for check in self.checks) and all(c.agreed for c in self.costs)

    def as_json(self) -> dict[str, Any]:
        """Plain values; JSON has no ∞, so that is null."""
        return {
            "path": str(self.path),
            "holds": self.holds,
            "checks": [asdict(check) for check in self.checks],
            "epsilon": [
                {**asdict(cost), "epsilon": cost.epsilon if math.isfinite(cost.epsilon) else None}
                for cost in self.costs
            ],
        }


def verify(path: Path) -> Verification:
    """Check chain, head, plan, charges, keys and budget, and recompute every ε."""
    try:
        ledger = Ledger.read(path)
    except LedgerCorrupted as error:
        return Verification(path, (Check("chain", str(error), False),))
    checks = (
        _chain(ledger),
        _head(ledger),
        _plan(ledger),
        _charges(ledger),
        _keys(ledger, path.parent / "keys"),
        _budget(ledger),
    )
    return Verification(path, checks, _costs(ledger))


def _chain(ledger: Ledger) -> Check:
    count, newest = ledger.newest
    text = f"{count} records, last hash {newest[:16]}…; federation {ledger.id}"
    return Check("chain", text, True)


def _head(ledger: Ledger) -> Check:
    """The head file; if it exists, it was compared when the ledger was read."""
    if not ledger.headless:
        return Check("head", "the chain is complete up to the recorded head", True)
    needed = ledger.federation.privacy == "enforced" and ledger.newest[0] > 1
    return Check("head", "missing: truncation of the ledger cannot be detected", not needed)


def _plan(ledger: Ledger) -> Check:
    if ledger.cap is not None:
        unit, tasks = ledger.federation.budget.unit, "task" if ledger.cap == 1 else "tasks"
        text = (
            f"fixed before the first release; a {unit} contributes to at most {ledger.cap} {tasks}"
        )
        return Check("plan", text, True)
    late = any(record["kind"] == "plan" for record in ledger.records)
    return Check("plan", "fixed after a release: its cap is not applied" if late else "none", True)


def _charges(ledger: Ledger) -> Check:
    every, open_ = len(ledger.charges), len(ledger.unsettled)
    text = f"{every} charges, {every - open_} settled"
    if open_:
        text += f", {open_} open: repeat the command of the run to finish them"
    return Check("charges", text, True)


def _keys(ledger: Ledger, directory: Path) -> Check:
    """Report noise keys of settled releases, which must be deleted."""
    left = EphemeralKeys(directory).left_over(ledger.unsettled)
    charged = {f"{attempt:06d}" for attempt in range(len(ledger.charges))}
    bad = [file.name for file in left if file.name.partition("-")[0] in charged]
    if bad:
        return Check(
            "keys", f"left over from settled releases, remove them: {', '.join(bad)}", False
        )
    unused = f"; {len(left)} never used" if left else ""
    return Check("keys", f"none left over from a settled release{unused}", True)


def _budget(ledger: Ledger) -> Check:
    budget = ledger.federation.budget
    spent = ledger.epsilon(budget.scope, budget.adversary)
    text = f"{_shown(spent)} of {_shown(budget.epsilon)} spent against {budget.adversary}"
    return Check("budget", text, spent <= budget.epsilon + 1e-6)


def _costs(ledger: Ledger) -> tuple[Cost, ...]:
    computed: dict[tuple[frozenset[tuple[tuple[float, float], int]], float], list[Opinion]] = {}

    def opinions_on(rounds: Kinds, epsilon: float) -> list[Opinion]:
        key = (frozenset(rounds.items()), round(epsilon, 9))
        if key not in computed:
            computed[key] = opinions(rounds, ledger.federation.budget.delta, epsilon)
        return computed[key]

    costs, charges, cap = [], ledger.charges, ledger.effective_cap
    for scope in SCOPES:
        for adversary in ADVERSARIES:
            epsilon = ledger.epsilon(scope, adversary)
            counted = [c for c in charges if scope == "end_to_end" or c.part == "replay"]
            if adversary == "server" or any(c.sigma is None for c in counted) or not counted:
                # Nothing to compute: ∞ by definition, or nothing spent.
                expected = math.inf if counted else 0.0
                results = [Opinion("definition", _shown(expected), epsilon == expected)]
            else:
                results = opinions_on(recount(counted, adversary == "public", cap), epsilon)
            costs.append(Cost(scope, adversary, epsilon, tuple(results)))
    return tuple(costs)


def _shown(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.5g}"

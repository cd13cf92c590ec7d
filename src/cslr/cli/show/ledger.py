"""Print the charges of a ledger and the ε they add up to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cslr.privacy.accounting import ADVERSARIES, SCOPES
from cslr.privacy.ledger.book import Ledger
from cslr.protocol.messages import messages_of

__all__ = ["ledger_report", "print_ledger"]


def ledger_report(path: Path) -> dict[str, Any]:
    """The verified contents of a ledger file, with ε recomputed from its charges."""
    ledger = Ledger.read(path)
    budget = ledger.federation.budget
    open_ = {attempt for _, attempt in ledger.unsettled}
    return {
        "path": str(path),
        "federation": ledger.federation.name,
        "id": ledger.id,
        "privacy": ledger.federation.privacy,
        "unit": budget.unit,
        "adjacency": "zero-out",
        "delta": budget.delta,
        "budget": {"epsilon": _finite(budget.epsilon), "adversary": budget.adversary},
        "epsilon": {
            scope: {who: _finite(ledger.epsilon(scope, who)) for who in ADVERSARIES}
            for scope in SCOPES
        },
        "charges": [
            {
                "label": charge.label,
                "part": charge.part,
                "message": messages_of(charge)[0].name,
                "sigma": charge.sigma,
                "q": charge.q,
                "settled": number not in open_,
            }
            for number, charge in enumerate(ledger.charges)
        ],
    }


def print_ledger(report: dict[str, Any], console: Console) -> None:
    """Print the charges, then the ε they add up to."""
    console.print(
        f"\n[bold]{report['federation']}[/bold] · privacy: {report['privacy']} · unit: one "
        f"{report['unit']}, zero-out · δ = {report['delta']:g} · {report['path']}"
    )
    table = Table(title="Charges", title_justify="left")
    for name in ("release", "σ", "q", "state", "message of a client"):
        table.add_column(name)
    for charge in report["charges"]:
        sigma = "none: ε = ∞" if charge["sigma"] is None else f"{charge['sigma']:.4g}"
        state = "settled" if charge["settled"] else "open"
        table.add_row(charge["label"], sigma, f"{charge['q']:g}", state, charge["message"])
    console.print(table)
    costs = Table(title=f"Spent, ε of one {report['unit']}", title_justify="left")
    costs.add_column("scope")
    for who in ADVERSARIES:
        costs.add_column(who, justify="right")
    for scope, values in report["epsilon"].items():
        costs.add_row(scope.replace("_", " "), *[_shown(values[who]) for who in ADVERSARIES])
    console.print(costs)
    budget = report["budget"]
    console.print(
        f"Budget: ε = {_shown(budget['epsilon'])} of one {report['unit']} against the adversary "
        f"{budget['adversary']}."
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"

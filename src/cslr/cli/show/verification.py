"""Print the result of verifying a ledger."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from cslr.privacy.ledger.accountants import Opinion
from cslr.privacy.ledger.verify import Verification

__all__ = ["print_verification"]


def print_verification(verification: Verification, console: Console) -> None:
    """Print the checks, then every ε next to the values of other accountants."""
    console.print(f"\n[bold]{verification.path}[/bold]")
    table = Table(title="Checks", title_justify="left")
    for name in ("", "finding", "holds"):
        table.add_column(name)
    for check in verification.checks:
        table.add_row(check.name, check.finding, "yes" if check.holds else "[red]no[/red]")
    console.print(table)
    if verification.costs:
        costs = Table(title="ε recomputed", title_justify="left")
        for name in ("scope", "against", "ledger", "accountant", "says", ""):
            costs.add_column(name)
        for cost in verification.costs:
            start = [cost.scope.replace("_", " "), cost.adversary, _shown(cost.epsilon)]
            for opinion in cost.opinions:
                costs.add_row(*start, opinion.accountant, opinion.says, _verdict(opinion))
                start = ["", "", ""]
        console.print(costs)
    console.print("All checks passed." if verification.holds else "[red]Verification failed.[/red]")


def _verdict(opinion: Opinion) -> str:
    if opinion.agrees is None:
        return "–"
    return "agrees" if opinion.agrees else "[red]disagrees[/red]"


def _shown(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.5g}"

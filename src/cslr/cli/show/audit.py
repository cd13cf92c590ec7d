"""An audit as a person reads it: the lower bounds beside the claim, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cslr.audit.confidence import Bound
from cslr.audit.plans import Audited

__all__ = ["audit_json", "print_audit"]


def audit_json(audited: Audited, bounds: Sequence[Bound], seed: int) -> dict[str, Any]:
    """The object ``cslr audit --json`` prints and ``audit.json`` holds."""
    return {
        "plan": audited.plan.as_dict(),
        "name": audited.name,
        "clients": audited.clients,
        "labels": audited.labels,
        "dimension": audited.dimension,
        "adversary": "roster",
        "seed": seed,
        "holds": all(bound.holds for bound in bounds),
        "bounds": [bound.as_json() for bound in bounds],
    }


def print_audit(audited: Audited, bounds: Sequence[Bound], console: Console) -> None:
    """One line per attack, then what it means."""
    plan = audited.plan
    sigma = "none" if plan.sigma is None else f"{plan.sigma:.4g}"
    console.print(
        f"\n[bold]{escape(audited.name)}[/bold]: {plan.releases} tasks, a client in at most "
        f"{plan.cap}, σ = {sigma}. Claimed: ε = {_shown(plan.epsilon('roster'))} at "
        f"δ = {plan.budget.delta:g} against roster."
    )
    table = Table(title="What attacks could show", title_justify="left")
    table.add_column("attack on")
    for name in ("lower bound of ε", "claimed ε", "confidence", "right guesses", "claim"):
        table.add_column(name, justify="right")
    for bound in bounds:
        verdict = "holds" if bound.holds else "[bold red]REFUTED[/bold red]"
        table.add_row(
            bound.what,
            f"{bound.lower:.2f}",
            _shown(bound.claimed),
            f"{100 * bound.confidence:g} %",
            f"{bound.correct:,} of {bound.guesses:,}",
            verdict,
        )
    console.print(table)
    if all(bound.holds for bound in bounds):
        console.print("No attack showed more than is claimed. That is evidence, not a proof.")
        return
    console.print(
        "[bold red]AN ATTACK SHOWS MORE THAN IS CLAIMED.[/bold red] Release nothing with this "
        "build. Repeat with another --seed: an honest mechanism is refuted by chance at most as "
        "often as the confidence leaves room for."
    )


def _shown(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"

"""Print the result of an audit: lower bounds next to the claimed ε."""

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
        "unit": audited.plan.budget.unit,
        "clients": audited.clients,
        "labels": audited.labels,
        "dimension": audited.dimension,
        "adversary": "roster",
        "seed": seed,
        "holds": all(bound.holds for bound in bounds),
        "bounds": [bound.as_json() for bound in bounds],
    }


def print_audit(audited: Audited, bounds: Sequence[Bound], console: Console) -> None:
    """One row per attack, then the conclusion."""
    plan = audited.plan
    sigma = "none" if plan.sigma is None else f"{plan.sigma:.4g}"
    console.print(
        f"\n[bold]{escape(audited.name)}[/bold]: {plan.releases} tasks, at most {plan.cap} "
        f"per {plan.budget.unit}, σ = {sigma}. Claimed: ε = {_shown(plan.epsilon('roster'))} for "
        f"a {plan.budget.unit} at δ = {plan.budget.delta:g} against the roster."
    )
    table = Table(title="Results of the attacks", title_justify="left")
    table.add_column("attack on")
    for name in ("lower bound on ε", "claimed ε", "confidence", "correct guesses", "claim"):
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
        console.print("No lower bound exceeds the claimed ε. This is evidence, not a proof.")
        return
    console.print(
        "[bold red]A LOWER BOUND EXCEEDS THE CLAIMED ε.[/bold red] Do not release anything "
        "with this build. Repeat with another --seed: a correct mechanism fails each test by "
        "chance with probability at most 1 − confidence."
    )


def _shown(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"

"""An audit as a person reads it: the lower bounds beside the claim, as a table and a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cslr.audit.bounds import Bound
from cslr.audit.plans import Audited
from cslr.files import write_atomic

__all__ = ["audit_json", "plot_audit", "print_audit"]

_GOOD, _BAD, _CLAIM = "#1f5fa8", "#b5432e", "#222222"


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


def plot_audit(audited: Audited, bounds: Sequence[Bound], path: Path) -> None:
    """Write the lower bounds as bars beside the claim."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.4 + 0.6 * len(bounds)), layout="constrained")
    axes = figure.add_subplot()
    names = [f"{bound.what}\n{100 * bound.confidence:g} % confidence" for bound in bounds]
    colours = [_GOOD if bound.holds else _BAD for bound in bounds]
    bars = axes.barh(names, [bound.lower for bound in bounds], color=colours, height=0.55)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    claimed = audited.plan.epsilon("roster")
    if math.isfinite(claimed):
        axes.axvline(claimed, color=_CLAIM, linestyle="--")
    most = max([bound.lower for bound in bounds] + [claimed if math.isfinite(claimed) else 0.0])
    axes.set_xlim(0, 1.15 * max(most, 0.1))
    axes.invert_yaxis()
    axes.set_xlabel(f"lower bound of ε at δ = {audited.plan.budget.delta:g}")
    title = f"{audited.name}: what attacks could show, and what is claimed: ε = {_shown(claimed)}"
    axes.set_title(title, fontsize=10, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())


def _shown(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"

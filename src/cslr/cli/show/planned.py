"""Print a plan: its noise, its privacy cost, what it releases, and a forecast."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from cslr.methods.outlook import Outlook
from cslr.privacy.accounting import ADVERSARIES, SCOPES, Scope, epsilon_of, replace_one_epsilon

__all__ = ["outlook_values", "print_outlook"]

_UNITS = {"client": "clients", "person": "people"}


def outlook_values(outlook: Outlook) -> dict[str, Any]:
    """The object that ``cslr plan --json`` prints; null stands for ∞, which JSON lacks."""
    plan, federation = outlook.plan, outlook.federation
    costs = {
        scope: {who: _finite(cost) for who, cost in zip(ADVERSARIES, found, strict=True)}
        for scope, found in _epsilons(outlook).items()
    }
    return {
        "sigma": plan.sigma or plan.head_sigma,
        "releases": plan.releases,
        "cap": plan.cap,
        "delta": plan.budget.delta,
        "unit": plan.budget.unit,
        "units": federation.units,
        "epsilon": costs,
        "replace_one_epsilon": _finite(_replaced(outlook)),
        "signal_to_noise": _finite(outlook.signal),
        "speakers_per_task": outlook.speakers,
        "messages_per_task": outlook.messages,
        "head": "rounds" if outlook.rounds else "released",
        "resolution": outlook.resolution.facts(),
        "released": outlook.releases(),
        "share_of_gap": outlook.share,
        "suggested_cap": outlook.best_cap,
        "caps": [vars(each) for each in outlook.caps],
        "advice": outlook.verdict(),
    }


def print_outlook(outlook: Outlook, console: Console) -> None:
    """Print noise and cost, then what is released and the forecast, then other caps."""
    plan, federation = outlook.plan, outlook.federation
    unit, units = plan.budget.unit, _UNITS[plan.budget.unit]
    sigma = _number(plan.sigma or plan.head_sigma)
    console.print(
        f"\nNoise multiplier [bold]σ = {sigma}[/bold] for each of {len(plan.charges())} releases; "
        f"a {unit} contributes to at most {plan.cap} of {plan.releases} tasks."
    )
    console.print(_costs(outlook))
    console.print(
        "With replace-one adjacency instead of zero-out, the same noise gives ε = "
        f"{_number(_replaced(outlook))} (roster)."
    )
    console.print(
        f"{federation.units:,} {units}, ε = {plan.budget.epsilon:g} for a {unit}: about "
        f"{outlook.speakers:,.0f} contribute to each task; {outlook.releases()}."
    )
    ratio = _number(float(f"{outlook.signal:.2g}"))
    console.print(f"Signal-to-noise ratio of the forecast: [bold]{ratio}[/bold]")
    console.print(outlook.verdict())
    if len(outlook.caps) > 1:
        console.print(_caps(outlook))
        if not outlook.cap_matters:
            console.print("The cap does not change this forecast.")
        elif outlook.best_cap != plan.cap:
            console.print(f"Suggested: --cap {outlook.best_cap}.")


def _costs(outlook: Outlook) -> Table:
    plan = outlook.plan
    level = "User-level ε" if plan.budget.unit == "client" else "ε of one person"
    table = Table(title=f"{level} at δ = {plan.budget.delta:g}", title_justify="left")
    table.add_column("scope")
    for who in ADVERSARIES:
        table.add_column(who, justify="right")
    head = "gradient rounds of the head" if outlook.rounds else "head on released replay"
    names: dict[Scope, str] = {"replay": "replay", "end_to_end": f"end to end ({head})"}
    for scope, costs in _epsilons(outlook).items():
        table.add_row(names[scope], *map(_number, costs))
    return table


def _epsilons(outlook: Outlook) -> dict[Scope, list[float]]:
    """ε of each scope against each adversary, as the ledger of a run would show it.

    A head that is trained on the replay costs nothing more; one of gradient rounds has no replay.
    """
    plan = outlook.plan
    charges, delta = plan.charges(), plan.budget.delta
    return {
        scope: [epsilon_of(charges, delta, who, scope, plan.cap) for who in ADVERSARIES]
        for scope in SCOPES
    }


def _caps(outlook: Outlook) -> Table:
    """Noise and forecast for other caps."""
    unit = outlook.plan.budget.unit
    table = Table(title=f"Caps compared at the same ε for a {unit}", title_justify="left")
    for column in ("cap", "σ", "contributors per task", "share of the gap"):
        table.add_column(column, justify="right")
    for each in outlook.caps:
        row = (str(each.cap), _number(each.sigma), f"{each.speakers:,.0f}", f"{each.percent} %")
        table.add_row(*row)
    return table


def _replaced(outlook: Outlook) -> float:
    plan = outlook.plan
    return replace_one_epsilon(plan.charges(), plan.budget.delta, cap=plan.cap)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return "∞" if math.isinf(value) else f"{value:.4g}"

"""``cslr plan`` and ``cslr ledger``: noise for a privacy target, and what was spent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from click import Context
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from cslr.config import ReplayConfig

__all__ = ["ledger_app", "plan_command"]


def plan_command(
    epsilon: Annotated[float, typer.Option(help="Target ε.")] = 4.0,
    delta: Annotated[float, typer.Option(help="δ.")] = 1e-5,
    clients: Annotated[int, typer.Option(min=1, help="Number of registered clients N.")] = 20,
    unit: Annotated[str, typer.Option(help="Unit of privacy: client or person.")] = "client",
    people: Annotated[
        int | None, typer.Option(min=1, help="Number of registered people, with --unit person.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Number of tasks; each is one release.")] = 4,
    cap: Annotated[
        int | None,
        typer.Option(
            help=r"Maximum number of tasks a unit contributes to. \[client: all; person: 1]"
        ),
    ] = None,
    participation: Annotated[
        float, typer.Option("--participation", "--q", help="Participation rate q in (0, 1].")
    ] = 1.0,
    adversary: Annotated[
        str, typer.Option(help="Adversary that ε holds against: roster or public.")
    ] = "roster",
    dimension: Annotated[
        int, typer.Option(min=1, help="r: number of released directions.")
    ] = ReplayConfig().directions,
    modes: Annotated[int, typer.Option(min=1, help="Modes released per task.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Compute the noise multiplier σ for a target (ε, δ), its cost and a forecast of utility.

    No data are read and no budget is spent.

    Example: `cslr plan --epsilon 4 --clients 100 --tasks 6 --cap 1`

    Example: `cslr plan --epsilon 4 --unit person --people 12000 --tasks 4`
    """
    from typing import get_args

    from cslr.errors import ConfigError
    from cslr.privacy.accounting import ADVERSARIES, replace_one_epsilon
    from cslr.privacy.plan import Budget, Unit, calibrate, forecast, promise_warnings

    if unit not in get_args(Unit):
        raise ConfigError(f"--unit is client or person, not {unit!r}")
    if (unit == "person") != (people is not None):
        raise ConfigError("--unit person and --people N, all registered people, go together")
    count = clients if people is None else people
    budget = Budget(epsilon, delta, adversary, unit=unit)  # type: ignore[arg-type]
    plan = calibrate(budget, tasks, participation, cap or (1 if unit == "person" else None))
    outlook = forecast(plan, count, dimension * modes)
    costs = {who: plan.epsilon(who) for who in ADVERSARIES}
    replaced = replace_one_epsilon(plan.charges(), delta, cap=plan.cap)
    for warning in promise_warnings(epsilon, delta, count, budget.unit):
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        finite = {who: cost if math.isfinite(cost) else None for who, cost in costs.items()}
        typer.echo(
            json.dumps(
                {
                    "sigma": plan.sigma,
                    "releases": tasks,
                    "cap": plan.cap,
                    "delta": delta,
                    "unit": unit,
                    "units": count,
                    "epsilon": {"replay": finite, "end_to_end": finite},
                    "replace_one_epsilon": replaced if math.isfinite(replaced) else None,
                    "signal_to_noise": outlook.signal_to_noise
                    if math.isfinite(outlook.signal_to_noise)
                    else None,
                    "advice": outlook.advice,
                }
            )
        )
        return
    console = Console()
    sigma = "none" if plan.sigma is None else f"{plan.sigma:.4g}"
    console.print(
        f"\nNoise multiplier [bold]σ = {sigma}[/bold] for each of {tasks} releases; a {unit} "
        f"contributes to at most {plan.cap} of them."
    )
    level = "User-level ε" if unit == "client" else "ε of one person"
    table = Table(title=f"{level} at δ = {delta:g}", title_justify="left")
    table.add_column("scope")
    for who in costs:
        table.add_column(who, justify="right")
    # The head learns from the released replay alone, so both scopes cost the same.
    for scope in ("replay", "end to end (head on released replay)"):
        table.add_row(scope, *[_epsilon(cost) for cost in costs.values()])
    console.print(table)
    console.print(
        "With replace-one adjacency instead of zero-out, the same noise gives ε = "
        f"{_epsilon(replaced)} (roster)."
    )
    console.print(
        "Forecast signal-to-noise ratio of a task's modes: "
        f"[bold]{outlook.signal_to_noise:.2g}[/bold]"
    )
    console.print(outlook.advice)


class _ShowsByDefault(TyperGroup):
    """`cslr ledger PATH` is `cslr ledger show PATH`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger_app = typer.Typer(
    cls=_ShowsByDefault,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Show what a ledger has spent (show), verify it (verify), or register its new location "
    "(moved).",
)
_Where = Annotated[
    Path, typer.Argument(help="A ledger file, run directory or federation directory.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@ledger_app.command("show")
def show_command(path: _Where, as_json: _Json = False) -> None:
    """Show what was charged, the ε spent and the budget. Read-only; checks the hash chain.

    Example: `cslr ledger runs/my-run`
    """
    from cslr.cli.show.ledger import ledger_report, print_ledger
    from cslr.runs.directory import ledgers_of

    reports = [ledger_report(file) for file in ledgers_of(path)]
    if as_json:
        typer.echo(json.dumps(reports))
        return
    for report in reports:
        print_ledger(report, Console())


@ledger_app.command("verify")
def verify_command(path: _Where, as_json: _Json = False) -> None:
    """Verify a ledger, and recompute every ε with independent accountants.

    Checks the hash chain, its head file, open charges, left-over noise keys and the budget. Uses
    Opacus and the PRV accountant if they are installed. Exit code 3: a check failed.

    Example: `cslr ledger verify runs/my-run`
    """
    from cslr.cli.show.verification import print_verification
    from cslr.privacy.ledger.verify import verify
    from cslr.runs.directory import ledgers_of

    found = [verify(file) for file in ledgers_of(path)]
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in found]))
    else:
        for each in found:
            print_verification(each, Console())
        wrong = [str(each.path) for each in found if not each.holds]
        if wrong and len(found) > 1:
            Console().print(f"\n[red]Verification failed[/red] for {', '.join(wrong)}.")
    if not all(each.holds for each in found):
        raise typer.Exit(3)


@ledger_app.command("moved")
def moved_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Present directory of the ledger.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="The ledger's file of rows, if it is not beside the ledger.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Register the new location of a ledger that was moved, alone or with its rows.

    A ledger records its own location, and a pointer beside the rows records it too; a run refuses a
    ledger at another location. This command updates both. Use it only if no other copy of the
    ledger is in use: two ledgers for the same rows do not count each other's releases, so the true
    ε would exceed what each of them shows.

    Example: `cslr ledger moved reviews.cslr-federation`
    """
    from cslr.privacy.ledger.pointer import declare_moved
    from cslr.runs.own_data import pointer_beside

    typer.echo(
        f"{directory} will be registered as the only ledger of its rows. If it is a copy, the "
        "original must not be used any more, on this or any other machine: otherwise the two "
        "ledgers do not count each other's releases.",
        err=True,
    )
    if not yes:
        typer.confirm("Was the ledger moved, with no other copy in use?", abort=True, err=True)
    changed = declare_moved(directory, None if data is None else pointer_beside(data))
    for path in changed:
        typer.echo(f"{path} now points to {directory.resolve()}")
    typer.echo(f"{directory} now records its own location")


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"

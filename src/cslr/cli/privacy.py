"""The program's verbs about privacy: what a promise needs, and what was spent."""

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
    clients: Annotated[int, typer.Option(min=1, help="Registered clients N.")] = 20,
    tasks: Annotated[int, typer.Option(help="Releases: one per task.")] = 4,
    cap: Annotated[int | None, typer.Option(help="Most tasks a client contributes to.")] = None,
    participation: Annotated[
        float, typer.Option("--participation", "--q", help="q in (0, 1].")
    ] = 1.0,
    adversary: Annotated[
        str, typer.Option(help="Whom the target holds against: roster or public.")
    ] = "roster",
    dimension: Annotated[
        int, typer.Option(min=1, help="r: released directions.")
    ] = ReplayConfig().directions,
    modes: Annotated[int, typer.Option(min=1, help="Modes released per task.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """From a promise to its noise: σ, what it costs, and whether it is worth starting.

    Nothing is read and nothing is spent.

    Example: `cslr plan --epsilon 4 --clients 100 --tasks 6 --cap 1`
    """
    from cslr.privacy.accounting import ADVERSARIES, replace_one_epsilon
    from cslr.privacy.plan import Budget, calibrate, forecast, weak_delta

    budget = Budget(epsilon, delta, adversary)  # type: ignore[arg-type]
    plan = calibrate(budget, tasks, participation, cap)
    outlook = forecast(plan, clients, dimension * modes)
    costs = {who: plan.epsilon(who) for who in ADVERSARIES}
    replaced = replace_one_epsilon(plan.charges(), delta, cap=plan.cap)
    if warning := weak_delta(delta, clients):
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
                    "unit": "client",
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
        f"\nNoise multiplier [bold]σ = {sigma}[/bold] for each of {tasks} releases, "
        f"of which a client contributes to at most {plan.cap}."
    )
    table = Table(title=f"What that costs a client at δ = {delta:g}", title_justify="left")
    table.add_column("scope")
    for who in costs:
        table.add_column(who, justify="right")
    # The head learns from the released replay alone, so both scopes cost the same.
    for scope in ("replay", "end to end (head on released replay)"):
        table.add_row(scope, *[_epsilon(cost) for cost in costs.values()])
    console.print(table)
    console.print(
        f"Under replace-one adjacency the same noise is ε = {_epsilon(replaced)} (roster)."
    )
    console.print(f"Signal to noise of a task's modes: [bold]{outlook.signal_to_noise:.2g}[/bold]")
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
    help="What was spent, on what, and what is left; whether that is right (verify); or that a "
    "ledger was moved (moved).",
)
_Where = Annotated[Path, typer.Argument(help="A ledger file, a run or a federation directory.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@ledger_app.command("show")
def show_command(path: _Where, as_json: _Json = False) -> None:
    """What was spent, on what, and what is left. Reads only; checks the chain.

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
    """Check everything, and have every ε counted again by other accountants.

    Looks at the chain, its head, open charges, keys that outlived their release and the budget.
    Opacus and the PRV accountant have a say where they are installed. Exit code 3: a check failed.

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
            Console().print(f"\n[red]Something is wrong[/red] with {', '.join(wrong)}.")
    if not all(each.holds for each in found):
        raise typer.Exit(3)


@ledger_app.command("moved")
def moved_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the ledger lies now.")],
    data: Annotated[
        Path | None, typer.Option(help="Its file of rows, if that does not lie beside it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Say that the ledger of your own rows was moved, alone or with them, and not copied.

    A ledger notes where it lies, and a pointer beside the rows names it; a run refuses one that
    lies elsewhere. This command writes the new place into both. Two ledgers of the same rows each
    promise ε by themselves, and together they cost more: use it only if no other copy is in use.

    Example: `cslr ledger moved reviews.cslr-federation`
    """
    from cslr.privacy.ledger.pointer import declare_moved
    from cslr.runs.own_data import pointer_beside

    typer.echo(
        f"{directory} will be the one ledger of its rows. If it is a copy, the original must not "
        f"be used any more, on this machine or another: what runs cost would no longer add up.",
        err=True,
    )
    if not yes:
        typer.confirm("Was it moved, with no other copy in use?", abort=True, err=True)
    changed = declare_moved(directory, None if data is None else pointer_beside(data))
    for path in changed:
        typer.echo(f"{path} names {directory.resolve()}")
    typer.echo(f"{directory} is noted to lie where it is")


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"

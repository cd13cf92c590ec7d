"""``cslr plan`` and ``cslr ledger``: noise for a privacy target, and what was spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from click import Context
from rich.console import Console
from typer.core import TyperGroup

__all__ = ["ledger_app", "plan_command"]

DIRECTIONS: Final = 384
"""``ReplayConfig().directions``, repeated so that ``--help`` need not import the configuration."""
CLIENTS: Final = 20
"""Clients unless ``--clients`` says otherwise; with people as the unit their number is unknown."""
FAMILIES: Final = ("classification", "intents", "tagging")


def plan_command(
    epsilon: Annotated[float, typer.Option(help="Target ε.")] = 4.0,
    delta: Annotated[float, typer.Option(help="Target δ.")] = 1e-5,
    clients: Annotated[
        int | None, typer.Option(min=1, help=r"Number of registered clients N. \[20]")
    ] = None,
    unit: Annotated[str, typer.Option(help="Unit of privacy: client or person.")] = "client",
    people: Annotated[
        int | None, typer.Option(min=1, help="Number of registered people, with --unit person.")
    ] = None,
    tasks: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of tasks. Each is one release, or 15 where gradient rounds are chosen.",
        ),
    ] = 4,
    cap: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=r"Most tasks that a unit contributes to. \[client: all; person: those it has]",
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
    ] = DIRECTIONS,
    modes: Annotated[int, typer.Option(min=1, help="J: modes released per label.")] = 1,
    labels: Annotated[int, typer.Option(min=1, help="Number of labels per task.")] = 1,
    all_labels: Annotated[
        bool, typer.Option("--all-labels", help="Every task has all labels.")
    ] = False,
    family: Annotated[
        str, typer.Option(help="Task family: classification, intents or tagging.")
    ] = "classification",
    rows_per_unit: Annotated[
        int | None,
        typer.Option(min=1, help=r"Expected rows of a unit per task. \[client: 8; person: 1]"),
    ] = None,
    tasks_per_unit: Annotated[
        int | None,
        typer.Option(
            min=1, help=r"Number of tasks that a unit has rows of. \[client: all; person: 1]"
        ),
    ] = None,
    clients_per_person: Annotated[
        int, typer.Option(min=1, help="Maximum number of clients that hold rows of one person.")
    ] = 1,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Also compute σ and ε for LISTS,STATISTICS,ROUNDS a task, e.g. 1,4,50 (Theorem 4)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Compute the noise multiplier σ for a target (ε, δ), its cost and a forecast of utility.

    No data are read and no budget is spent. docs/planning.md compares forecasts with outcomes.

    Example: `cslr plan --epsilon 4 --clients 100 --tasks 6 --cap 1`

    Example: `cslr plan --epsilon 4 --unit person --people 12000 --tasks 4`
    """
    from typing import get_args

    from cslr.cli.show.planned import outlook_values, print_outlook
    from cslr.cli.show.schedule import priced_schedule, schedule_text
    from cslr.errors import ConfigError
    from cslr.methods.outlook import Federated, outlook_of
    from cslr.privacy.plan import Budget, Unit, promise_warnings

    if unit not in get_args(Unit):
        raise ConfigError(f"--unit is client or person, not {unit!r}")
    if family not in FAMILIES:
        raise ConfigError(f"--family is {', '.join(FAMILIES)}, not {family!r}")
    if (unit == "person") != (people is not None):
        raise ConfigError(
            "--unit person requires --people N, the number of registered people, and --people "
            "requires --unit person; give both or neither"
        )
    _check_clients(unit, clients, clients_per_person)
    count = (clients or CLIENTS) if people is None else people
    federation = Federated(
        Budget(epsilon, delta, adversary, unit=unit),  # type: ignore[arg-type]
        count,
        tasks,
        labels_per_task=labels,
        rows_per_unit=rows_per_unit or (1 if unit == "person" else 8),
        tasks_per_unit=tasks_per_unit,
        all_labels=all_labels,
        clients_per_person=clients_per_person,
        q=participation,
        dimension=dimension,
        sub_modes=modes,
        family=family,  # type: ignore[arg-type]
    )
    for warning in promise_warnings(epsilon, delta, count, unit):  # type: ignore[arg-type]
        typer.echo(f"warning: {warning}", err=True)
    outlook = outlook_of(federation, cap)
    priced = None
    if schedule is not None:
        priced = priced_schedule(schedule, federation.budget, tasks, participation)
    if as_json:
        more = {"schedule": priced} if priced else {}
        typer.echo(json.dumps({**outlook_values(outlook), **more}))
        return
    print_outlook(outlook, Console())
    if priced:
        typer.echo(schedule_text(priced))


def _check_clients(unit: str, clients: int | None, per_person: int) -> None:
    """Refuse a number of clients per person that the other options rule out."""
    from cslr.errors import ConfigError

    if unit != "person" and per_person > 1:
        raise ConfigError(
            "--clients-per-person requires --unit person: with clients as the unit it changes "
            "nothing; leave it out"
        )
    if clients is not None and per_person > clients:
        raise ConfigError(
            f"--clients-per-person {per_person} is more than --clients {clients}; lower it, or "
            "correct the number of clients"
        )


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

    reports = [verify(file) for file in ledgers_of(path)]
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in reports]))
    else:
        for each in reports:
            print_verification(each, Console())
        wrong = [str(each.path) for each in reports if not each.holds]
        if wrong and len(reports) > 1:
            Console().print(f"\n[red]Verification failed[/red] for {', '.join(wrong)}.")
    if not all(each.holds for each in reports):
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

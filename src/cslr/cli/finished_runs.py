"""``cslr runs``: list, compare and delete run directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from click import Context
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

__all__ = ["runs_app"]


class _ListsByDefault(TyperGroup):
    """`cslr runs` is `cslr runs list`, and `cslr runs FOLDER` is `cslr runs list FOLDER`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "--help"}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


runs_app = typer.Typer(
    cls=_ListsByDefault,
    rich_markup_mode="markdown",
    help="List runs (list), compare some (compare), or delete them (delete).",
)
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@runs_app.command("list")
def list_command(
    folder: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("runs"),
    as_json: _Json = False,
) -> None:
    """List the runs of a folder, oldest first, each with its verdict.

    Example: `cslr runs`

    Example: `cslr runs list studies --json`
    """
    from cslr.runs.catalogue import find_runs

    runs, wrong = find_runs(folder)
    for problem in wrong:
        typer.echo(f"warning: {problem}", err=True)
    if as_json:
        typer.echo(json.dumps([run.as_json() for run in runs]))
        return
    if not runs:
        typer.echo(f"No runs in {folder}. Start one: cslr run")
        return
    for run in runs:
        facts = run.as_json()
        started = run.written.strftime("%Y-%m-%d %H:%M")
        line = (
            f"{facts['run']}  {started}  {facts['stream']}, {facts['method']}, {facts['privacy']}"
        )
        Console().print(Text.assemble((line, "bold"), f"\n  {run.verdict}"), soft_wrap=True)


@runs_app.command("compare")
def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run directories.")],
    as_json: _Json = False,
) -> None:
    """Show in which settings runs differ, next to their scores and costs.

    Example: `cslr runs compare runs/a runs/b`
    """
    from cslr.errors import ConfigError
    from cslr.runs.catalogue import cell, compared
    from cslr.runs.results import read_run

    if len(runs) < 2:
        raise ConfigError("compare needs at least two run directories; `cslr runs` lists them")
    table = compared([read_run(run) for run in runs])
    if as_json:
        typer.echo(json.dumps({"runs": [str(run) for run in runs], **table}))
        return
    shown = Table()
    shown.add_column("")
    for run in runs:
        shown.add_column(Text(str(run)), overflow="fold")
    for name, values in table.items():
        shown.add_row(name, *[Text(cell(name, value)) for value in values])
    Console().print(shown)


@runs_app.command("delete")
def delete_command(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete run directories with their heads and replays.

    What was spent on your own rows stays in the ledger of the federation: deleting a run returns no
    budget, and its releases cannot be made again without paying again.

    Example: `cslr runs delete runs/a runs/b`
    """
    from cslr.runs.catalogue import delete_run
    from cslr.runs.results import read_run

    for run in runs:
        read_run(run)
    if not yes:
        names = ", ".join(map(str, runs))
        typer.confirm(f"Delete {names}? This cannot be undone.", abort=True, err=True)
    for run in runs:
        delete_run(run)
        typer.echo(f"deleted {run}")

"""``cslr data``: draft and check a declaration, and fetch data sets."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Prepare your own data, or fetch public data sets.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Rows = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Rows: .csv, .tsv, .jsonl, .conll (also .gz) or .parquet."),
]


def _column(role: str) -> Any:
    return typer.Option(metavar="COLUMN", help=f"The column of the {role}, instead of a guess.")


@data_app.command("init")
def init_command(
    file: _Rows,
    declaration: Annotated[
        Path | None, typer.Option(help="Path to write. \\[FILE's name with .cslr.toml]")
    ] = None,
    text: Annotated[str | None, _column("text")] = None,
    label: Annotated[str | None, _column("label")] = None,
    client: Annotated[str | None, _column("client")] = None,
    task: Annotated[str | None, _column("task")] = None,
    person: Annotated[str | None, _column("person")] = None,
    split: Annotated[str | None, _column("split")] = None,
) -> None:
    """Draft the declaration of a file: the public facts about its rows.

    FILE contains rows: .csv, .tsv, .jsonl, .conll (each also with .gz) or .parquet. Columns are
    guessed by their names and cells; a wrong guess is corrected by a flag. Everything in a draft is
    a guess and marked as one; a run refuses the draft until you confirm it. The command can be
    repeated as long as the draft is not confirmed.

    Example: `cslr data init reviews.csv`

    Example: `cslr data init shops.tsv --text body --client shop_id`
    """
    from cslr.cli.data_files import init_file

    named = {
        "text": text,
        "label": label,
        "client": client,
        "task": task,
        "split": split,
        "person": person,
    }
    given = {role: column for role, column in named.items() if column is not None}
    drafted = init_file(file, declaration, given)
    for line in drafted.lines(file):
        typer.echo(line)
    typer.echo(drafted.next_step(file, declaration))


@data_app.command("check")
def check_command(
    file: _Rows,
    declaration: Annotated[
        Path | None, typer.Option(help="Path of the declaration. \\[FILE's name with .cslr.toml]")
    ] = None,
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Do not fail because of bad rows, as with `cslr run --skip-bad-rows`.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Validate a file against its declaration; exit code 2 if it is not ready for a run.

    The report contains exact counts of private rows: do not publish it.

    Example: `cslr data check reviews.csv`
    """
    from cslr.cli.data_files import check_report
    from cslr.config import ReplayConfig
    from cslr.data.own import (
        declaration_path,
        distinct_public,
        few_public,
        load_declaration,
        read_public,
    )

    report = check_report(file, declaration, skip_bad_rows)
    typer.echo(json.dumps(report.as_json()) if as_json else "\n".join(report.as_lines()))
    declared = load_declaration(declaration_path(file, declaration))
    if declared.public is None:
        typer.echo(
            "no public sentences are declared: `cslr run` will need --anchors FILE", err=True
        )
    else:
        count = distinct_public(read_public(declared.public), declared.family)
        few = few_public(declared.public, count, ReplayConfig().directions, declared.family)
        if few:
            typer.echo(few, err=True)
    if not report.ready:
        raise typer.Exit(2)
    if not as_json:
        anchors = "" if declared.public is not None else " --anchors SENTENCES.txt"
        where = f" --declaration {shlex.quote(str(declaration))}" if declaration else ""
        typer.echo(f"next: cslr run --data {shlex.quote(str(file))}{where}{anchors}", err=True)


@data_app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="ag-news, amazon, multiwoz or public.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write to.")],
    source: Annotated[
        str | None,
        typer.Option(
            help="A local directory with a copy, or another hub data set as ID\\[:CONFIG]."
        ),
    ] = None,
) -> None:
    """Download a data set or public sentences from the hub, as files that `cslr run` reads.

    NAME is ag-news, amazon, multiwoz or public (sentences from Wikipedia, for --anchors). Requires
    a connection and `pip install "cslr[hub]"`.

    Example: `cslr data fetch public data`
    """
    from cslr.data.hub import fetch

    for path in fetch(name, directory, source, progress=sys.stderr.isatty()):
        typer.echo(path)

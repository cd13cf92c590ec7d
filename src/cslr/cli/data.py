"""``cslr data``: draft and check a declaration, and fetch data sets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Prepare your own data, or fetch public data sets.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Rows = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Rows: .csv, .jsonl, .conll (each also .gz) or .parquet."),
]


@data_app.command("init")
def init_command(
    file: _Rows,
    declaration: Annotated[
        Path | None, typer.Option(help="Path to write. \\[FILE's name with .cslr.toml]")
    ] = None,
) -> None:
    """Draft the declaration of a file: the public facts about its rows.

    FILE contains rows: .csv, .jsonl, .conll (each also with .gz) or .parquet. Everything in a draft
    is a guess and marked as one; a run refuses the draft until you confirm it.

    Example: `cslr data init reviews.csv`
    """
    from cslr.cli.data_files import init_file

    path = init_file(file, declaration)
    named = f" --declaration {path}" if declaration else ""
    typer.echo(
        f"Wrote the draft {path}. Everything in it becomes public: check and correct the "
        "guesses, describe every label, and set confirmed = true. Then:\n  cslr data check "
        f"{file}{named}\n  cslr run --data {file}{named}"
    )


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
        few_public,
        load_declaration,
        public_vectors,
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
        count = public_vectors(read_public(declared.public), declared.family)
        few = few_public(declared.public, count, ReplayConfig().directions, declared.family)
        if few:
            typer.echo(few, err=True)
    if not report.ready:
        raise typer.Exit(2)


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

"""The program's ``data`` verbs: drafting and checking a declaration, and fetching data sets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Your own rows, and data sets of the hub.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Rows = Annotated[
    Path, typer.Argument(metavar="FILE", help="Rows: .csv, .jsonl, .conll (or with .gz), .parquet.")
]


@data_app.command("init")
def init_command(
    file: _Rows,
    declaration: Annotated[
        Path | None, typer.Option(help="Where to write it. \\[FILE's name with .cslr.toml]")
    ] = None,
) -> None:
    """Draft the declaration of a file: what may be known about its rows.

    FILE holds rows: .csv, .jsonl, .conll (each also with .gz) or .parquet. Everything in a draft
    is a guess and marked as one; nothing is learnt before it is confirmed.

    Example: `cslr data init reviews.csv`
    """
    from cslr.cli.data_files import init_file

    path = init_file(file, declaration)
    named = f" --declaration {path}" if declaration else ""
    typer.echo(
        f"Drafted {path}. All of it will be public: read it, correct what was guessed, describe "
        f"every label, and set confirmed = true. Then:\n"
        f"  cslr data check {file}{named}\n"
        f"  cslr run --data {file}{named}"
    )


@data_app.command("check")
def check_command(
    file: _Rows,
    declaration: Annotated[
        Path | None, typer.Option(help="What is declared. \\[FILE's name with .cslr.toml]")
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="As a run will: bad rows are no obstacle.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Hold the rows of a file against its declaration; exit code 2 if they are not ready.

    The report counts private rows: it is for the holder's eyes.

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
        typer.echo("no public sentences are declared: a run needs --anchors FILE", err=True)
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
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")],
    source: Annotated[
        str | None,
        typer.Option(
            help="A directory with a copy, or another data set of the hub, ID\\[:CONFIG]."
        ),
    ] = None,
) -> None:
    """Get a data set from the hub, or public sentences, as files that `cslr run` reads.

    NAME is ag-news, amazon, multiwoz or public (sentences of Wikipedia, for --anchors). The one
    command that goes online. Needs `pip install "cslr[hub]"`.

    Example: `cslr data fetch public data`
    """
    from cslr.data.hub import fetch

    for path in fetch(name, directory, source, progress=sys.stderr.isatty()):
        typer.echo(path)

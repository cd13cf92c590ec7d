"""``cslr report``: HTML pages of finished runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cslr.errors import ConfigError

__all__ = ["report_command"]


def report_command(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Finished runs, or one folder of runs.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Write one page that compares the runs.")
    ] = False,
    story: Annotated[
        bool, typer.Option("--story", help="Draw one figure (PNG or SVG) of runs on one stream.")
    ] = False,
    planner: Annotated[
        bool, typer.Option("--planner", help="Write the planner page, which needs no run.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help=r"File to write. \[one run: report.html in it; else in this directory]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Write a self-contained HTML report of finished runs, a comparison, an index or a planner.

    The page opens offline in any browser, light or dark. A folder of runs gives an index page with
    a report of each run. Only the run directories are read; data and encoder are not needed.

    Example: `cslr report runs/my-run`

    Example: `cslr report --compare runs/a runs/b`

    Example: `cslr report runs`

    Example: `cslr report --planner`

    Example: `cslr report --story runs/person runs/client --out story.png`
    """
    if story:
        from cslr.report.story import write_story

        written = out or Path("story.png")
        write_story(_several(runs or [], "--story", least=1), written)
    else:
        written = _written(runs or [], compare, planner, out)
    if as_json:
        size = written.stat().st_size
        typer.echo(json.dumps({"file": str(written), "bytes": size}))
    else:
        typer.echo(f"Wrote {written}. Open it in a browser.")


def _written(runs: list[Path], compare: bool, planner: bool, out: Path | None) -> Path:
    from cslr.report.comparison import write_comparison, write_index
    from cslr.report.planner import write_planner
    from cslr.report.run_report import write_report

    if planner:
        if runs:
            raise ConfigError("--planner needs no run; leave the runs out")
        path = out or Path("planner.html")
        write_planner(path)
        return path
    if not runs:
        raise ConfigError("no run to report; give run directories (`cslr runs` lists them)")
    if compare:
        path = out or Path("comparison.html")
        write_comparison(_several(runs, "--compare", least=2), path)
        return path
    if len(runs) == 1 and runs[0].is_dir() and not (runs[0] / "config.json").exists():
        path, wrong = write_index(runs[0])
        for problem in wrong:
            typer.echo(f"warning: {problem}", err=True)
        return path
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    write_report(runs, path)
    return path


def _several(runs: list[Path], flag: str, least: int) -> list[Path]:
    if len(runs) < least:
        expected = "a run" if least == 1 else f"at least {least} runs"
        raise ConfigError(f"{flag} needs {expected}; `cslr runs` lists them")
    return runs

"""The program's verbs for experiments: running their cells, and making tables of the traces."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from cslr.research.experiments.grid import Cell, Experiment
    from cslr.research.experiments.places import Places
    from cslr.research.experiments.pool import Done

__all__ = ["experiments_app"]

experiments_app = typer.Typer(rich_markup_mode="markdown")

_EXPERIMENTS = Path("experiments")
_TRACES = _EXPERIMENTS / "traces"


@experiments_app.command("reproduce")
def reproduce_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Experiment files. \\[experiments/*.toml with reproduce = true]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of the data sets."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes; each uses one core and its own memory.")
    ] = 2,
    seeds: Annotated[str | None, typer.Option(help="Only these, e.g. 13,17.")] = None,
    streams: Annotated[str | None, typer.Option(help="Only these, e.g. ag-news,amazon.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these, e.g. cslr,dp-sgd.")] = None,
    traces: Annotated[Path, typer.Option(help="Where finished traces are kept.")] = _TRACES,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells and how far they are; run none.")
    ] = False,
) -> None:
    """Run the cells of experiments: one method on one stream with one seed each.

    FILES are experiments; without any, all of experiments/*.toml that say reproduce = true. A
    finished cell is a trace in experiments/traces and is never run again, whichever experiment
    asks for it, so the same command goes on after an interruption. A cell that fails stops no
    other: the reason is kept in runs/cells/failed, the exit code is 1, and the next command tries
    it again.

    Example: `cslr reproduce --data DIR --streams ag-news --seeds 13,17`

    What would be done: `cslr reproduce experiments/main.toml --dry-run`
    """
    from cslr.research.experiments.grid import all_cells, chosen
    from cslr.research.experiments.places import Places

    cells = chosen(
        all_cells(_experiments(files)),
        [_whole("--seeds", each) for each in _listed(seeds)],
        _listed(streams),
        _listed(methods),
    )
    places = Places(traces=traces)
    _warn(cells, places)
    if dry_run:
        _list(cells, places)
        return
    waiting = [cell.reading(data) for cell in cells if places.state(cell.name) != "finished"]
    _check_data(waiting, data)
    if not _run(waiting, places, workers, len(cells) - len(waiting)):
        raise typer.Exit(1)


@experiments_app.command("tables")
def tables_command(
    experiments: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Directory of experiment files.")
    ] = _EXPERIMENTS,
    traces: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Where finished traces are kept.")
    ] = _TRACES,
    out: Annotated[Path, typer.Option(help="Where to write the tables.")] = Path("tables"),
) -> None:
    """Make every table again from the traces alone. Nothing is run and no data are needed.

    Each is written as .md, .tex and .csv; REPRODUCTION.md beside the folder holds them against
    the paper, and docs/results.md there gets its own. Tables show the cells that are finished:
    `cslr reproduce` runs the others.

    Example: `cslr tables --traces experiments/traces --out tables`
    """
    for path in _tables_of_the_paper().rebuild(experiments, traces, out):
        typer.echo(path)


def _tables_of_the_paper() -> Any:
    """The package ``paper`` of the checkout this program runs from; a wheel has none."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "paper" / "__init__.py").is_file():
        raise ConfigError(
            "cslr tables compares with one paper and is not part of the installed package: run it "
            "in a checkout of the repository, after `make install` there"
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("paper")


def _experiments(files: Sequence[Path] | None) -> list[Experiment]:
    """Those named, or all that are marked to be reproduced."""
    from cslr.research.experiments.grid import is_marked, load_experiment

    wanted = files or [file for file in sorted(_EXPERIMENTS.glob("*.toml")) if is_marked(file)]
    if not wanted:
        raise ConfigError(
            f"no file of {_EXPERIMENTS}/ says reproduce = true; name FILES, or go to the directory "
            f"that holds {_EXPERIMENTS}/"
        )
    return [load_experiment(file) for file in wanted]


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _whole(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{flag} takes whole numbers with commas, not {text!r}") from None


def _warn(cells: Sequence[Cell], places: Places) -> None:
    """Tell of finished traces that today's program would not make."""
    from cslr.research.experiments.outdated import outdated

    found: dict[str, list[Path]] = {}
    for cell in cells:
        trace = places.trace(cell.name)
        if trace.exists() and (changes := outdated(cell, trace)):
            found.setdefault("; ".join(changes), []).append(trace)
    for what, paths in found.items():
        _say(
            Console(stderr=True),
            f"warning: defaults have changed since {len(paths)} traces were made ({what}); "
            f"remove {', '.join(map(str, paths))} to have them made again",
        )


def _list(cells: Sequence[Cell], places: Places) -> None:
    states = [places.state(cell.name) for cell in cells]
    for cell, state in zip(cells, states, strict=True):
        typer.echo(f"{cell.name}  {state:8}  {cell.title}")
    typer.echo(f"{len(cells)} cells, {states.count('finished')} finished")


def _check_data(cells: Sequence[Cell], data: Path | None) -> None:
    """Say at once that data are missing, and not once for every cell."""
    from cslr.data.streams import load_stream

    if data is None:
        for name in dict.fromkeys(cell.config.stream.name for cell in cells):
            load_stream(name, None)


def _run(cells: Sequence[Cell], places: Places, workers: int, before: int) -> bool:
    """Run cells under a progress bar; whether all succeeded. Failures are told of at the end."""
    from cslr.research.experiments.pool import run_cells

    console = Console(stderr=True)
    finished, failed = 0, []
    try:
        with _bar(console, len(cells)) as bar, closing(run_cells(cells, places, workers)) as ended:
            for done in ended:
                if done.trouble is None:
                    finished += 1
                elif not done.again:
                    failed.append(f"{done.cell.title}: {done.trouble.summary}")
                _show(bar, done, finished, len(failed))
    except KeyboardInterrupt:
        _say(console, "Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from None
    finally:
        for line in failed:
            _say(console, f"failed: {line}")
        if failed:
            _say(console, f"Why is kept in {places.failures}; the same command tries them again.")
        typer.echo(
            f"{len(cells) + before} cells: {before} were finished before, {finished} are now, "
            f"{len(failed)} failed"
        )
    return not failed


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Progress]:
    """Cells done, failures and time left; log files and pipes get a line for each cell instead."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=6 * 3600,  # a cell takes minutes: the usual 30 seconds hold none
    ) as bar:
        bar.add_task("starting", total=total, failed=0)
        yield bar


def _show(bar: Progress, done: Done, finished: int, failed: int) -> None:
    """What just happened. A process that was killed is always told of."""
    task = bar.tasks[0]
    bar.update(task.id, description=done.cell.title, completed=finished + failed, failed=failed)
    what = "finished" if done.trouble is None else done.trouble.summary
    if done.again or not bar.console.is_terminal:
        _say(bar.console, f"{finished + failed}/{task.total:.0f} {done.cell.title}: {what}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

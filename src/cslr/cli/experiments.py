"""``cslr reproduce`` and ``cslr tables``: run experiments, and make tables from their traces."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cslr.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from cslr.config import Config
    from cslr.research.experiments.grid import Cell, Experiment
    from cslr.research.experiments.places import Places
    from cslr.research.experiments.pool import Done

__all__ = ["reproduce_command", "tables_command"]

_EXPERIMENTS = Path("experiments")
_TRACES = _EXPERIMENTS / "traces"


def reproduce_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Experiment files. \\[experiments/*.toml with reproduce = true]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of data sets."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of worker processes; each uses one core.")
    ] = 2,
    seeds: Annotated[str | None, typer.Option(help="Run only these seeds, e.g. 13,17.")] = None,
    streams: Annotated[
        str | None, typer.Option(help="Run only these streams, e.g. ag-news,amazon.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Run only these methods, e.g. cslr,dp-sgd.")
    ] = None,
    traces: Annotated[Path, typer.Option(help="Directory of finished traces.")] = _TRACES,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells and their state; run none.")
    ] = False,
    check: Annotated[
        int | None,
        typer.Option(min=1, help="Run this many finished cells again and compare; change nothing."),
    ] = None,
    check_seed: Annotated[
        int, typer.Option(help="Seed that determines which cells --check draws.")
    ] = 1,
) -> None:
    """Run the cells of experiments: each is one method on one stream with one seed.

    FILES are experiment files; default: all of experiments/*.toml with reproduce = true. A finished
    cell has a trace in experiments/traces and is not run again, so repeating the command resumes
    after an interruption. A failed cell does not stop the others: the reason is written to
    runs/cells/failed, the exit code is 1, and the next call retries it.

    Example: `cslr reproduce --data DIR --streams ag-news --seeds 13,17`

    List what would be run: `cslr reproduce experiments/main.toml --dry-run`

    Check whether this machine reproduces the committed traces: `cslr reproduce --data DIR --check
    20`. Scores may differ by 5 points, their average by 0.5, and one cell in twenty by more. Beyond
    that, or if an ε differs, the exit code is 1.
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
    if check is not None:
        if not _check_again(cells, places, (check, check_seed), data, workers):
            raise typer.Exit(1)
        return
    waiting = [cell.reading(data) for cell in cells if places.state(cell.name) != "finished"]
    _check_data(waiting, data)
    if not _run(waiting, places, workers, len(cells) - len(waiting)):
        raise typer.Exit(1)


def tables_command(
    experiments: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Directory of experiment files.")
    ] = _EXPERIMENTS,
    traces: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Directory of finished traces.")
    ] = _TRACES,
    out: Annotated[Path, typer.Option(help="Directory to write tables to.")] = Path("tables"),
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw the paper's figures there too, as .svg.")
    ] = False,
) -> None:
    """Rebuild all tables from the traces. Nothing is run and no data are needed.

    Each table is written as .md, .tex and .csv; REPRODUCTION.md next to the directory compares them
    with the paper, and the table in docs/results.md is updated. Tables contain finished cells only:
    `cslr reproduce` runs the others.

    Example: `cslr tables --traces experiments/traces --out tables`
    """
    for path in _tables_of_the_paper().rebuild(experiments, traces, out, figures=figures):
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
    """The named experiments, or all with ``reproduce = true``."""
    from cslr.research.experiments.grid import is_marked, load_experiment

    chosen = files or [file for file in sorted(_EXPERIMENTS.glob("*.toml")) if is_marked(file)]
    if not chosen:
        raise ConfigError(
            f"no file in {_EXPERIMENTS}/ has reproduce = true; name FILES, or run from the "
            f"directory that contains {_EXPERIMENTS}/"
        )
    return [load_experiment(file) for file in chosen]


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _whole(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{flag} must be comma-separated whole numbers, not {text!r}") from None


def _warn(cells: Sequence[Cell], places: Places) -> None:
    """Warn about finished traces that were made with other defaults."""
    from cslr.research.experiments.outdated import outdated

    traces: dict[str, list[Path]] = {}
    for cell in cells:
        trace = places.trace(cell.name)
        if trace.exists() and (changes := outdated(cell, trace)):
            traces.setdefault("; ".join(changes), []).append(trace)
    for what, paths in traces.items():
        _say(
            Console(stderr=True),
            f"warning: {len(paths)} traces were made with other defaults ({what}); to run "
            f"them again, remove {', '.join(map(str, paths))}",
        )


def _list(cells: Sequence[Cell], places: Places) -> None:
    """Print every cell with its state."""
    states = [places.state(cell.name) for cell in cells]
    for cell, state in zip(cells, states, strict=True):
        typer.echo(f"{cell.name}  {state:8}  {cell.title}")
    typer.echo(f"{len(cells)} cells, {states.count('finished')} finished")


def _check_again(
    cells: Sequence[Cell], places: Places, draw: tuple[int, int], data: Path | None, workers: int
) -> bool:
    """Run finished cells again in a temporary directory and print the comparison.

    Returns whether they agree with their committed traces, but for the few that may differ.
    """
    from cslr.research.experiments.places import Places
    from cslr.research.experiments.recheck import compared, drawn_cells, may_differ

    drawn = drawn_cells(cells, places, *draw)
    if not drawn:
        raise ConfigError(f"no cell has a trace in {places.traces}; run cslr reproduce first")
    _check_data(drawn, data)
    with tempfile.TemporaryDirectory() as root:
        there = Places(Path(root) / "traces", Path(root) / "cells")
        ran = _run([cell.reading(data) for cell in drawn], there, workers, 0)
        differences = [
            compared(cell, places.trace(cell.name), there.trace(cell.name))
            for cell in drawn
            if there.trace(cell.name).exists()
        ]
    typer.echo(f"{'committed':>9}  {'again':>7}  {'largest':>7}  {'':9}  cell")
    for each in differences:
        verdict = "agrees" if each.agrees else "DIFFERS"
        why = f" (other {' and '.join(each.origin)})" if each.origin else ""
        figures = f"{each.committed:9.2f}  {each.again:7.2f}  {each.largest:7.2f}"
        typer.echo(f"{figures}  {verdict:9}  {each.cell.title}{why}")
    agreeing = sum(each.agrees for each in differences)
    allowed = may_differ(len(drawn))
    but = f"; {allowed} may differ, where rounding changes a decision" if allowed else ""
    typer.echo(f"{agreeing} of {len(drawn)} cells agree with their committed traces{but}")
    return ran and len(drawn) - agreeing <= allowed and all(x.same_epsilon for x in differences)


def _check_data(cells: Sequence[Cell], data: Path | None) -> None:
    """Raise an error for missing data before any cell runs."""
    from cslr.data.streams import load_stream

    if data is None:
        for name in dict.fromkeys(cell.config.stream.name for cell in cells):
            load_stream(name, None)


def _run(cells: Sequence[Cell], places: Places, workers: int, before: int) -> bool:
    """Run cells under a progress bar; whether all succeeded. Failures are listed at the end.

    before: how many cells were finished already.
    """
    from cslr.research.experiments.pool import run_cells

    console = Console(stderr=True)
    finished, failed = 0, []
    try:
        with (
            _bar(console, len(cells)) as bar,
            closing(run_cells(cells, places, workers, _reading(bar))) as ended,
        ):
            for done in ended:
                if done.trouble is None:
                    finished += 1
                elif not done.again:
                    failed.append(f"{done.cell.title}: {done.trouble.summary}")
                _show(bar, done, finished, len(failed))
    except KeyboardInterrupt:
        _say(console, "Interrupted. Repeat the command to resume.")
        raise typer.Exit(130) from None
    finally:
        for line in failed:
            _say(console, f"failed: {line}")
        if failed:
            _say(console, f"Reasons are in {places.failures}; repeat the command to retry.")
        typer.echo(
            f"{len(cells) + before} cells: {before} already finished, {finished} finished "
            f"now, {len(failed)} failed"
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


def _reading(bar: Progress) -> Callable[[Config], None]:
    """Say what a worker does before its first cell of a stream; once for each stream and encoder.

    Texts that are not in the cache are encoded then, which takes minutes for a large stream.
    """
    said: set[str] = set()

    def say(study: Config) -> None:
        encoders = ", ".join(dict.fromkeys([study.encoder, *study.encoders]))
        text = f"reading {study.stream.name} and encoding texts not yet in the cache ({encoders})"
        if text not in said:
            said.add(text)
            bar.update(bar.tasks[0].id, description=text)
            if not bar.console.is_terminal:
                _say(bar.console, text)

    return say


def _show(bar: Progress, done: Done, finished: int, failed: int) -> None:
    """Report a cell that ended. A killed process is always reported."""
    task = bar.tasks[0]
    bar.update(task.id, description=done.cell.title, completed=finished + failed, failed=failed)
    what = "finished" if done.trouble is None else done.trouble.summary
    if done.again or not bar.console.is_terminal:
        _say(bar.console, f"{finished + failed}/{task.total:.0f} {done.cell.title}: {what}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

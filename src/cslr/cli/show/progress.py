"""A progress bar on a terminal; log files and pipes get none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["steps"]


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar that is told of every step: what it is, how many are done, and of how many."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    described, hidden = TextColumn("{task.description}"), not console.is_terminal
    with Progress(*columns, described, console=console, transient=True, disable=hidden) as bar:
        job = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            job, description=what, completed=done, total=total
        )

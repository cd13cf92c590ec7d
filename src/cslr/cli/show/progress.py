"""Progress: a bar on a terminal, a line every so often in log files and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console

__all__ = ["OnStep", "StepLines", "steps"]

OnStep = Callable[[str, int, int], None]
"""Called with every step: what it is, how many are done, and of how many."""

_EVERY: Final = 10.0
"""Seconds between two lines of a log."""


class StepLines:
    """Prints the first step, then at most one line every ``every`` seconds."""

    def __init__(
        self,
        write: Callable[[str], None],
        every: float = _EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._every, self._clock = write, every, clock
        self._begun = clock()
        self._last: float | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report a step; printed if the last line is old enough."""
        now = self._clock()
        if self._last is None or now - self._last >= self._every:
            self._last = now
            self._write(f"[{now - self._begun:5.0f} s] {done}/{total} {what}")


@contextmanager
def steps(console: Console, quiet: bool = False, timed: bool = True) -> Iterator[OnStep]:
    """Show progress as a bar, as lines if there is no terminal, or not at all if quiet.

    timed: whether lines may depend on time. With enforced privacy they may not: how long a step
    takes depends on the rows, and a log is kept. Then every step is a line, without seconds.
    """
    if quiet:
        yield lambda what, done, total: None
        return
    if not console.is_terminal:

        def write(line: str) -> None:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

        yield (
            StepLines(write) if timed else lambda what, done, total: write(f"{done}/{total} {what}")
        )
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    described = TextColumn("{task.description}")
    with Progress(*columns, described, console=console, transient=True) as bar:
        job = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            job, description=what, completed=done, total=total
        )

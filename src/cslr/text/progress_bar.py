"""Progress of long encoding jobs: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["PIECE", "progress_bar"]

PIECE: Final = 256  # texts between two updates; jobs of at most so many show no progress
_EVERY: Final = 10.0  # seconds between two lines in a log


class Bar:
    """A progress bar, or none; ``advance`` works for both."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def advance(self, texts: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, texts)


class LineBar(Bar):
    """A line on stderr at the beginning, and then at most one every ten seconds."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._count, self._done, self._last = total, 0, -math.inf
        self.advance(0)

    def advance(self, texts: int) -> None:
        self._done += texts
        if time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            print(f"encoding texts: {self._done}/{self._count}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress_bar(total: int, wanted: bool) -> Iterator[Bar]:
    """Progress of a long job on stderr: a bar, or lines if stderr is no terminal."""
    if not wanted or total <= PIECE:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineBar(total)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, progress.add_task("encoding texts", total=total))

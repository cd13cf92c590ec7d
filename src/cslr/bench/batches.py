"""A long job cut into pieces, and the bar that shows how far it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, TypeVar

__all__ = ["PIECE", "progress_bar", "slices"]

PIECE: Final = 512  # texts between two movements of the bar; also when a bar is worth showing

_Item = TypeVar("_Item")


def slices(items: list[_Item], size: int) -> Iterator[list[_Item]]:
    """The items in lists of ``size``, the last perhaps shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))


class Bar:
    """A progress bar, or nothing; ``advance`` works for both."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def advance(self, texts: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, texts)


@contextlib.contextmanager
def progress_bar(total: int, wanted: bool) -> Iterator[Bar]:
    """A bar on stderr for jobs long enough to wait for; log files and pipes get none."""
    if not wanted or total <= PIECE:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield Bar(progress, progress.add_task("encoding texts", total=total))

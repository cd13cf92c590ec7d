"""The tasks each client was asked about, which its cap counts.

The cap is a guarantee for every client, and rows may arrive after a contribution, so participation
cannot be decided from the rows alone. In a federation each device remembers its own tasks. Where
all clients are in one process it is a file next to the ledger, as private as the rows, written
before any release. With sampling a task counts whether the client's coin let it take part or not: a
second task after a lost coin would be a second chance, which amplification does not account for.
So the file does not tell who took part, either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from cslr.errors import PrivacyError
from cslr.files import make_directory, write_atomic

__all__ = ["CapMemory"]


class CapMemory:
    """The memory of all clients of a federation, in the file ``path``."""

    def __init__(self, path: Path, tasks: dict[str, list[int]]) -> None:
        self._path = path
        self._tasks = tasks

    @classmethod
    def at(cls, path: Path, begun: bool) -> Self:
        """Read it. begun: whether something was released already, so that it has to be there."""
        try:
            content = json.loads(path.read_bytes())
            tasks = {
                str(client): [int(task) for task in numbers] for client, numbers in content.items()
            }
        except FileNotFoundError:
            if begun:
                raise _lost(path, "is missing") from None
            memory = cls(path, {})
            memory._write()
            return memory
        except (OSError, ValueError, TypeError, AttributeError):
            raise _lost(path, "is unreadable") from None
        return cls(path, tasks)

    def admit(self, clients: Sequence[int], task: int, cap: int) -> list[bool]:
        """Which of ``clients`` may contribute to ``task``; those are on disk before this returns.

        clients: all with rows of the task, before any coin is tossed. One that was admitted to the
        task already may contribute again: a task is charged once.
        """
        admitted = []
        changed = False
        for client in map(str, clients):
            earlier = self._tasks.get(client, [])
            fresh = task not in earlier and len(earlier) < cap
            admitted.append(task in earlier or fresh)
            if fresh:
                self._tasks[client] = sorted([*earlier, task])
                changed = True
        if changed:
            self._write()
        return admitted

    def _write(self) -> None:
        try:
            make_directory(self._path.parent)
            write_atomic(self._path, json.dumps(self._tasks, sort_keys=True).encode())
        except OSError as error:
            raise PrivacyError(
                f"{self._path} could not be written: {error.strerror or error}. It records "
                "which tasks clients contributed to, so nothing was released; free disk "
                "space and repeat the command"
            ) from error


def _lost(path: Path, how: str) -> PrivacyError:
    return PrivacyError(
        f"{path} {how}, so it is unknown which clients have reached their cap. Restore it "
        "from a backup, or account for this federation by hand; nothing was released"
    )

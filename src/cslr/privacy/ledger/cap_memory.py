"""The tasks each client was asked about, which its cap counts.

The cap is a guarantee for every client, and rows may arrive after a contribution, so participation
cannot be decided from the rows alone. In a federation each device remembers its own tasks. Where
all clients are in one process it is a file next to the ledger, as private as the rows, written
before any release. With sampling a task counts whether the client's coin let it take part or not: a
second task after a lost coin would be a second chance, which amplification does not account for.
So the file does not show who took part, either.

The file also lists all tasks that any client was asked about. Each is there before it is charged,
so a file that lacks one of the ledger's tasks is an older copy. It is refused, because it would let
clients contribute beyond their cap.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Self

from cslr.errors import PrivacyError
from cslr.files import write_atomic

__all__ = ["CapMemory"]

_ASKED: Final = "asked"
"""The key of that list; the other keys are clients' numbers."""


class CapMemory:
    """The memory of all clients of a federation, in the file ``path``."""

    def __init__(self, path: Path, tasks: dict[str, list[int]]) -> None:
        """tasks: by client, and under ``asked`` those that were asked about at all."""
        self._path = path
        self._tasks = tasks

    @classmethod
    def at(cls, path: Path, begun: bool, charged: Collection[int | None] = ()) -> Self:
        """Read or create the file. begun: whether something was released, so that it must exist.

        charged: the tasks of all charges, all of which it must list; None is no task.
        """
        needed = {task for task in charged if task is not None}
        try:
            content = json.loads(path.read_bytes())
            tasks = {
                str(client): [int(task) for task in numbers] for client, numbers in content.items()
            }
        except FileNotFoundError:
            if begun:
                raise _lost(path, "is missing") from None
            memory = cls(path, {_ASKED: []})
            memory._write()
            return memory
        except (OSError, ValueError, TypeError, AttributeError):
            raise _lost(path, "is unreadable") from None
        if not needed <= set(tasks.setdefault(_ASKED, sorted(needed))):
            raise _lost(path, "is older than the ledger")
        return cls(path, tasks)

    def admit(self, clients: Sequence[int], task: int, cap: int) -> list[bool]:
        """Which of ``clients`` may contribute to ``task``; those are on disk before this returns.

        clients: all with rows of the task, before any participation coin. One that was
        admitted to the task already may contribute again, since a task counts once.
        """
        admitted = []
        asked = self._tasks.setdefault(_ASKED, [])
        changed = task not in asked
        if changed:
            self._tasks[_ASKED] = sorted([*asked, task])
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

"""Which tasks each client has spoken about: what its cap is counted by.

A cap is a promise to every client, and rows may arrive after it has spoken, so who speaks cannot be
decided by rows alone. In a federation each device remembers for itself. Where all clients are in
one process it is a file beside the ledger, as private as the rows, written before any release.
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
            tasks = {str(client): [int(task) for task in own] for client, own in content.items()}
        except FileNotFoundError:
            if begun:
                raise _lost(path, "is missing") from None
            spoken = cls(path, {})
            spoken._write()
            return spoken
        except (OSError, ValueError, TypeError, AttributeError):
            raise _lost(path, "cannot be read") from None
        return cls(path, tasks)

    def admit(self, clients: Sequence[int], task: int, cap: int) -> list[bool]:
        """Who of ``clients`` may speak about ``task``; on disk, before this returns, who does.

        Whoever spoke about it already may do so again: it is the same task, and charged as one.
        """
        admitted = []
        changed = False
        for client in map(str, clients):
            own = self._tasks.get(client, [])
            fresh = task not in own and len(own) < cap
            admitted.append(task in own or fresh)
            if fresh:
                self._tasks[client] = sorted([*own, task])
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
                f"{self._path} could not be written: {error.strerror or error}. Nothing is "
                "released that clients could not remember; free some space and repeat the command"
            ) from error


def _lost(path: Path, how: str) -> PrivacyError:
    return PrivacyError(
        f"{path} {how}, so nobody can tell which clients have spent their cap. Restore it from a "
        "backup, or account for the federation by hand: nothing is released"
    )

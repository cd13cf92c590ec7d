"""The places where a process can die: within and after every change that it makes to a disk.

``Points.installed`` wraps the calls by which files are changed, below one directory and in this
process alone. A point is the end of such a call, or the middle of a write that appends; before the
next call nothing changes, so that is the same place. At the chosen one the process kills itself,
stops, or is told that the disk failed.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

_OPEN, _WRITE = os.open, os.write
_READS = frozenset({"r", "rb", "rt"})
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}


@dataclass
class Points:
    """Counts points below ``root``; at number ``at`` it strikes.

    how: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``full`` (no space, from then on), ``broken`` (one
    input/output error). The last two can only happen where a disk is asked for something.
    """

    root: Path
    at: int | None = None
    how: str = "kill"
    names: list[str] = field(default_factory=list)
    _full: bool = False

    @property
    def witness(self) -> Path:
        """A file beside the root that outlives every process: what happened, a line each."""
        return self.root.with_name(f"{self.root.name}.witness")

    def note(self, **what: object) -> None:
        """Add a line to the witness; not a point."""
        handle = _OPEN(self.witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _WRITE(handle, json.dumps(what).encode() + b"\n")
        os.close(handle)

    def noted(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind, of all processes, in order."""
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        return [line for line in map(json.loads, lines) if line["kind"] == kind]

    def durable(self, name: str) -> bytes:
        """What of a file some process has brought to the disk."""
        sizes = [line["size"] for line in self.noted("synced") if line["name"] == name]
        return (self.root / name).read_bytes()[: sizes[-1] if sizes else 0]

    def reach(self, name: str) -> None:
        """Something happened: the process may die here."""
        if self.how in _SIGNALS and self._is_here(name):
            os.kill(os.getpid(), _SIGNALS[self.how])

    def ask(self, name: str) -> None:
        """Something is to happen: the disk may refuse it."""
        if self.how in _ERRORS and (self._is_here(name) or self._full):
            self._full = self.how == "full"
            raise OSError(_ERRORS[self.how], os.strerror(_ERRORS[self.how]), name)

    def _is_here(self, name: str) -> bool:
        self.names.append(name)
        return len(self.names) - 1 == self.at

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this lasts, every change below ``root`` is seen."""
        with ExitStack() as stack:
            for module, name, watched in self._wrappers():
                stack.enter_context(patch.object(module, name, watched))
            yield

    # -- wrappers --------------------------------------------------------------------------------

    def _wrappers(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        opened = self._opened(io.open)
        return [
            (io, "open", opened),
            (builtins, "open", opened),
            (os, "open", self._around(os.open, lambda path, flags, *_, **__: flags != os.O_RDONLY)),
            (os, "write", self._written(os.write)),
            (os, "fsync", self._synced(os.fsync)),
            (fcntl, "flock", self._around(fcntl.flock)),
            (os, "unlink", self._around(os.unlink, frees=True)),
            (os, "mkdir", self._around(os.mkdir)),
            (os, "pwrite", self._around(os.pwrite)),
            (os, "ftruncate", self._around(os.ftruncate, frees=True)),
            (os, "truncate", self._around(os.truncate, frees=True)),
            (os, "replace", self._around(os.replace)),
        ]

    def _below(self, where: Any) -> str | None:
        """The name of a path, descriptor or file below the root; None if it is elsewhere."""
        if hasattr(where, "fileno"):
            where = where.fileno()
        path = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fspath(where)
        prefix = f"{self.root}/"
        return path.removeprefix(prefix) if str(path).startswith(prefix) else None

    def _around(
        self,
        call: Callable[..., Any],
        matters: Callable[..., bool] = lambda *_, **__: True,
        frees: bool = False,
    ) -> Callable[..., Any]:
        def watched(where: Any, *more: Any, **named: Any) -> Any:
            name = self._below(where)
            if name is None or not matters(where, *more, **named):
                return call(where, *more, **named)
            if not (frees and self.how == "full"):
                self.ask(f"{call.__name__} {name}")
            result = call(where, *more, **named)
            self.reach(f"{call.__name__} {name}")
            return result

        return watched

    def _synced(self, call: Callable[[int], None]) -> Callable[[Any], None]:
        watched = self._around(call)

        def sync(file: Any) -> None:
            name = self._below(file)
            size = os.fstat(file if isinstance(file, int) else file.fileno()).st_size
            watched(file)
            if name is not None:
                self.note(kind="synced", name=name, size=size)

        return sync

    def _written(self, call: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
        def write(handle: int, data: Any) -> int:
            name = self._below(handle)
            if name is None:
                return call(handle, data)
            half = len(data) // 2
            call(handle, data[:half])
            self.reach(f"half of write {name}")
            self.ask(f"write {name}")
            call(handle, data[half:])
            self.reach(f"write {name}")
            return len(data)

        return write

    def _opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(where: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            name = None if mode in _READS else self._below(where)
            if name is None:
                return call(where, mode, *more, **named)
            self.ask(f"open {name}")
            file = call(where, mode, *more, **named)
            self.reach(f"open {name}")
            return _Watched(file, name, self)

        return watched


class _Watched:
    """A file open for writing, each change of which is a few points."""

    def __init__(self, file: Any, name: str, points: Points) -> None:
        self._file, self._name, self._points = file, name, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        """Half of it reaches the disk, then the rest is buffered."""
        half, points = len(data) // 2, self._points
        self._file.write(data[:half])
        self._file.flush()
        points.reach(f"half of write {self._name}")
        points.ask(f"write {self._name}")
        self._file.write(data[half:])
        points.reach(f"write {self._name}")
        return len(data)

    def flush(self) -> None:
        self._points.ask(f"flush {self._name}")
        self._file.flush()
        self._points.reach(f"flush {self._name}")

    def truncate(self, size: int | None = None) -> int:
        result: int = self._file.truncate(size)
        self._points.reach(f"truncate {self._name}")
        return result

"""A run's directory: configuration, trace, releases, replay, head.

config.json            what was run; another configuration is refused here
trace.jsonl            a line for every finished step, in order; all figures are made from it
result.json            the figures
accuracy.png           scores over tasks, where they are stored
model.json             public facts for using the heads; written when all tasks are trained
seed-13/ledger.jsonl   what was spent (where privacy is enforced: in the federation's directory)
seed-13/task-0.safetensors   the released, noisy vector of a task
seed-13/replay.safetensors   Q_{1:t}
seed-13/head.safetensors     the head
seed-13/evaluation.safetensors   the noisy count of right answers, where one was paid for
seed-13/translations.safetensors   from clients' encoders to common coordinates, if they differ

One process writes here at a time. Each release has the receipt of the ledger that paid for it: with
a ledger that was reset or rolled back, or with another one, a run does not continue.

Nothing private is written here: no row, no client's name, no count of either. Where privacy is
enforced all contents and file sizes follow from public and released values, and no duration is
written. The one exception are exact figures on test rows, if they are to be stored
(``privacy.evaluate``). With enforced privacy only its owner may read the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays

from cslr.arrays import FloatArray
from cslr.config import Config, mistakes
from cslr.errors import ConfigError, RunDirectoryError
from cslr.files import (
    PRIVATE_FOLDER,
    ends_in_damage,
    make_directory,
    open_line,
    open_to_append,
    seal_arrays,
    seal_line,
    sync_directory,
    write_all,
    write_atomic,
)
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import Receipt

__all__ = ["RunDirectory", "SeedDirectory", "ledgers_of", "read_config", "read_trace"]


class RunDirectory:
    """A run directory: checked on construction; locked and writable from ``begin`` on."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        self._lock: _Lock | None = None
        self._check()
        self.trace, _ = read_trace(path / "trace.jsonl")

    @property
    def private(self) -> bool:
        """Whether only its owner may read it."""
        return self.config.privacy.mode == "enforced"

    def begin(self) -> None:
        """Lock the directory and write the configuration, after all checks passed.

        Incomplete files of an interrupted run are removed; under the lock no process writes them.
        """
        with _writing(self.path):
            make_directory(self.path, PRIVATE_FOLDER if self.private else 0o777)
            self._lock = _lock(self.path)
            self._check()
            for part in self.path.rglob(".*.part"):
                part.unlink(missing_ok=True)
            trace = self.path / "trace.jsonl"
            self.trace, whole = read_trace(trace)
            if trace.exists() and whole < trace.stat().st_size:
                os.truncate(trace, whole)
            file = self.path / "config.json"
            if not file.exists():
                plain = _absolute(self.config.model_dump(mode="json"))
                write_atomic(file, json.dumps(plain, indent=2).encode() + b"\n")

    def _check(self) -> None:
        """Refuse a directory of another run, or one that is not a run directory."""
        current = _absolute(self.config.model_dump(mode="json"))
        file = self.path / "config.json"
        if file.exists():
            try:
                stored = _absolute(_today(json.loads(file.read_text(encoding="utf-8"))))
            except (ValueError, TypeError):
                raise RunDirectoryError(f"{file} is damaged; choose another --run-dir") from None
            if stored != current:
                names = ", ".join(_changed(stored, current))
                raise RunDirectoryError(
                    f"{self.path} contains a run with another configuration (different: "
                    f"{names}); choose another --run-dir, or use the settings of that run"
                )
            return
        if self.path.exists() and (not self.path.is_dir() or _holds_files(self.path)):
            raise RunDirectoryError(
                f"{self.path} exists and is not a run directory; choose another --run-dir"
            )

    def find(self, **fields: object) -> dict[str, Any] | None:
        """The trace line with these values, if that step was finished."""
        for line in self.trace:
            if all(line.get(name) == value for name, value in fields.items()):
                return line
        return None

    def note(self, **line: object) -> dict[str, Any]:
        """Append a finished step to the trace; durable when it returns."""
        text = seal_line(line)
        path = self.path / "trace.jsonl"
        new = not path.exists()
        with _writing(path):
            file = open_to_append(path, self.private)
            try:
                write_all(file, text.encode() + b"\n")
                os.fsync(file)
            finally:
                os.close(file)
            if new:
                sync_directory(self.path)
        self.trace.append(open_line(text))
        return self.trace[-1]

    def seed(self, seed: int, ledger: Ledger | None = None) -> SeedDirectory:
        """The directory of one seed, whose releases are charged to ``ledger``."""
        return SeedDirectory(self.path / f"seed-{seed}", ledger, self.private)


@dataclass(frozen=True)
class SeedDirectory:
    """Arrays of one seed, as safetensors; implements the protocol's ``Keep``.

    With a ledger, a release is stored with its receipt and read back only if the receipt is valid.
    """

    path: Path
    ledger: Ledger | None = None
    private: bool = False
    """Whether only its owner may read it."""

    def load(self, label: str) -> FloatArray | None:
        file = self._file(label)
        if not file.exists():
            return None
        try:
            with safe_open(file, framework="np") as content:
                vector: FloatArray = content.get_tensor("released")
                metadata = content.metadata()
                receipt = Receipt.from_text(metadata["receipt"]) if metadata else None
        except (SafetensorError, KeyError, ValueError):
            raise RunDirectoryError(
                f"{file} is damaged; restore it from a backup or start a new run"
            ) from None
        if self.ledger is not None:
            self.ledger.accept(label, receipt)
        return vector

    def save(self, label: str, vector: FloatArray) -> None:
        receipt = None
        if self.ledger is not None:
            receipt = {"receipt": self.ledger.receipt(label).as_text()}
        file = self._file(label)
        with _writing(file):
            self._write(file, save_arrays({"released": np.ascontiguousarray(vector)}, receipt))

    def save_arrays(self, name: str, arrays: Mapping[str, FloatArray]) -> None:
        """Write named arrays atomically."""
        file = self.path / f"{name}.safetensors"
        with _writing(file):
            self._write(file, seal_arrays(arrays))

    def copy(self, file: Path) -> None:
        """Copy a file of another run, unless it exists already."""
        if not (self.path / file.name).exists():
            self._write(self.path / file.name, file.read_bytes())

    def _write(self, file: Path, content: bytes) -> None:
        write_atomic(file, content, PRIVATE_FOLDER if self.private else 0o777)

    def _file(self, label: str) -> Path:
        return self.path / f"{label.replace(' ', '-')}.safetensors"


class _Lock:
    """The lock of a directory, held until its last user in this process releases it."""

    def __init__(self, path: Path) -> None:
        self._handle = -1
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(
                f"{path} is in use by another process; wait for it to end, or choose another "
                "--run-dir"
            ) from None

    def holds(self, path: Path) -> bool:
        """Whether the path is still the locked directory, not one created in its place."""
        return os.path.samestat(os.fstat(self._handle), path.stat())

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)


_HELD: WeakValueDictionary[Path, _Lock] = WeakValueDictionary()


def _lock(path: Path) -> _Lock:
    """Lock against other processes; this process may open the directory again."""
    key = path.resolve()
    lock = _HELD.get(key)
    if lock is None or not lock.holds(path):
        lock = _HELD[key] = _Lock(path)
    return lock


def _holds_files(path: Path) -> bool:
    """Whether it contains more than temporary files of a run that was killed at its start."""
    return any(not file.match(".*.part") for file in path.iterdir())


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Translate disk errors into errors that say what to do."""
    try:
        yield
    except OSError as error:
        why = f"{path} could not be written: {error.strerror or error}."
        if not path.exists():
            raise RunDirectoryError(
                f"{why} Nothing was started; choose another --run-dir, or free disk space"
            ) from error
        raise RunDirectoryError(
            f"{why} Free disk space or repair the disk and repeat the command with the same "
            "--run-dir: the run resumes, and releases are not charged again"
        ) from error


def ledgers_of(path: Path) -> list[Path]:
    """The ledger files of a run (one for each seed, or its federation's) or of a federation.

    path: the directory of either, or a ledger file, which is returned.
    """
    if path.is_file():
        return [path]
    files = sorted([*path.glob("ledger.jsonl"), *path.glob("seed-*/ledger.jsonl")])
    if not files and (path / "config.json").is_file():
        federation = read_config(path).privacy.federation
        if federation is not None:
            files = [*federation.glob("ledger.jsonl")]
        if federation is not None and not files:
            raise RunDirectoryError(
                f"the ledger of {path} is in its federation directory {federation}, which "
                "does not exist; give the present directory of the ledger"
            )
    if not files:
        raise ConfigError(f"{path} contains no ledger; give a run or federation directory")
    return files


def read_config(run: Path) -> Config:
    """The configuration of the run in a directory."""
    file = run / "config.json"
    if not file.is_file():
        raise RunDirectoryError(f"{run} is not a run directory; give one written by `cslr run`")
    try:
        return Config.model_validate_json(file.read_bytes())
    except (ValidationError, OSError) as error:
        why = mistakes(error, Config) if isinstance(error, ValidationError) else error.strerror
        raise RunDirectoryError(
            f"{file} is damaged, or was written by another version of cslr: {why}"
        ) from None


def read_trace(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The finished steps and their length in bytes, without an incomplete last line."""
    if not path.exists():
        return [], 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        if ends_in_damage(content[len(whole) :]):
            raise ValueError("more than one incomplete line")
        return [open_line(line) for line in whole.splitlines()], len(whole)
    except ValueError:
        raise RunDirectoryError(f"{path} is damaged; start a new run") from None


_PATHS = (
    ("stream", "data"),
    ("stream", "declaration"),
    ("stream", "public"),
    ("privacy", "federation"),
)


def _today(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration as this version writes it; unchanged if it is not valid here."""
    try:
        return Config.model_validate(stored).model_dump(mode="json")
    except ValidationError:
        return stored


def _absolute(plain: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose paths do not depend on the working directory."""
    absolute = {**plain}
    for section, name in _PATHS:
        path = absolute.get(section, {}).get(name)
        if isinstance(path, str):
            absolute[section] = {**absolute[section], name: os.path.abspath(path)}
    return absolute


def _changed(before: Any, after: Any, where: str = "") -> list[str]:
    """Dotted names of the settings that differ."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [where]
    return [
        name
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        for name in _changed(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    ]

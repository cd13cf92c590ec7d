"""A run's directory: configuration, trace, releases, replay, head.

config.json            what was run; another configuration is refused here
trace.jsonl            a line for every finished step, in order; every figure is made from it
result.json            the figures
accuracy.png           scores over tasks
model.json             what has to be known to use the heads; there when all tasks are learnt
seed-13/ledger.jsonl   what was spent (where privacy is enforced: in the federation's directory)
seed-13/task-0.safetensors   the released, noisy vector of a task
seed-13/replay.safetensors   Q_{1:t}
seed-13/head.safetensors     the head

Nothing private is written here: no row, no client's name, no count of either. With one's own rows
everything but evaluation figures is made of the declaration and of what was released.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from cslr.config import Config
from cslr.errors import RunDirectoryError
from cslr.files import write_atomic
from cslr.types import FloatArray

__all__ = ["RunDirectory", "SeedDirectory"]


class RunDirectory:
    """A run directory: looked at when it is made, written to from ``begin`` on."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        self._check()
        self.trace = _read_trace(path / "trace.jsonl")

    def begin(self) -> None:
        """Write the configuration down; the run is known to be possible."""
        file = self.path / "config.json"
        if not file.exists():
            plain = self.config.model_dump(mode="json")
            write_atomic(file, json.dumps(plain, indent=2).encode() + b"\n")

    def _check(self) -> None:
        """Refuse a directory that belongs to something else."""
        wanted = self.config.model_dump(mode="json")
        file = self.path / "config.json"
        if file.exists():
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except ValueError:
                raise RunDirectoryError(f"{file} is damaged; choose another --run-dir") from None
            if found != wanted:
                names = ", ".join(_changed(found, wanted))
                raise RunDirectoryError(
                    f"{self.path} holds a run of another configuration (it differs in {names}); "
                    "choose another --run-dir, or repeat the run with its own settings"
                )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunDirectoryError(
                f"{self.path} exists and is not a run directory; choose another --run-dir"
            )

    def find(self, **wanted: object) -> dict[str, Any] | None:
        """The trace line with these values, if that step was finished."""
        for line in self.trace:
            if all(line.get(name) == value for name, value in wanted.items()):
                return line
        return None

    def note(self, **line: object) -> dict[str, Any]:
        """Append a finished step to the trace; durable when it returns."""
        text = json.dumps(line, allow_nan=False)
        with (self.path / "trace.jsonl").open("a", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.trace.append(json.loads(text))
        return self.trace[-1]

    def seed(self, seed: int) -> SeedDirectory:
        """The part of one seed."""
        return SeedDirectory(self.path / f"seed-{seed}")


@dataclass(frozen=True)
class SeedDirectory:
    """Arrays of one seed, as safetensors; implements the protocol's ``Keep``."""

    path: Path

    def load(self, label: str) -> FloatArray | None:
        file = self._file(label)
        if not file.exists():
            return None
        try:
            return load_arrays(file.read_bytes())["released"]
        except (SafetensorError, KeyError, ValueError):
            raise RunDirectoryError(f"{file} is damaged; restore it or begin a new run") from None

    def save(self, label: str, vector: FloatArray) -> None:
        self.save_arrays(self._file(label).stem, {"released": vector})

    def save_arrays(self, name: str, arrays: Mapping[str, FloatArray]) -> None:
        """Write named arrays, whole or not at all."""
        content = save_arrays({key: np.ascontiguousarray(value) for key, value in arrays.items()})
        write_atomic(self.path / f"{name}.safetensors", content)

    def _file(self, label: str) -> Path:
        return self.path / f"{label.replace(' ', '-')}.safetensors"


def _read_trace(path: Path) -> list[dict[str, Any]]:
    """The finished steps; a last line cut off by an interruption is dropped from the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        write_atomic(path, whole)
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError:
        raise RunDirectoryError(f"{path} is damaged; begin a new run") from None


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

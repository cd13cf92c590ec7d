"""Paths of the files of cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Places"]


@dataclass(frozen=True)
class Places:
    """Finished traces in one directory; unfinished work and failures in another."""

    traces: Path = Path("experiments/traces")
    work: Path = Path("runs/cells")

    def trace(self, name: str) -> Path:
        """A cell's trace; it exists if and only if the cell is finished."""
        return self.traces / f"{name}.jsonl"

    def run_directory(self, name: str) -> Path:
        """The run directory of an unfinished cell."""
        return self.work / name

    @property
    def failures(self) -> Path:
        """The directory of the reasons why cells failed."""
        return self.work / "failed"

    def failure(self, name: str) -> Path:
        """Why a cell failed when it was last tried."""
        return self.failures / f"{name}.txt"

    def state(self, name: str) -> str:
        """``finished``, ``failed``, ``begun`` or ``waiting``."""
        if self.trace(name).exists():
            return "finished"
        if self.failure(name).exists():
            return "failed"
        return "begun" if self.run_directory(name).exists() else "waiting"

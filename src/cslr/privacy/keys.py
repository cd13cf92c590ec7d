"""Where the keys of the noise come from and how long they live.

``EphemeralKeys`` protect: 32 bytes of the operating system in a file readable by its owner alone,
unlinked once the release is safe. ``SeededKeys`` make a simulation repeatable and protect nobody.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from cslr.seeding import Seeds

__all__ = ["EphemeralKeys", "NoiseKeys", "SeededKeys"]


class NoiseKeys(Protocol):
    """Keys by release and attempt."""

    def fresh(self, label: str, attempt: int) -> bytes:
        """A key for a new charge, durable if a crash must find it again."""

    def recover(self, label: str, attempt: int) -> bytes | None:
        """The key of an unsettled charge, if it still exists."""

    def discard(self, label: str, attempt: int) -> None:
        """Forget the key for good."""


@dataclass(frozen=True)
class SeededKeys:
    """Keys that follow from a seed: ``privacy: simulated``."""

    seeds: Seeds

    def fresh(self, label: str, attempt: int) -> bytes:
        return self.seeds.digest("noise key", label, attempt)

    def recover(self, label: str, attempt: int) -> bytes | None:
        return self.fresh(label, attempt)

    def discard(self, label: str, attempt: int) -> None:
        """Nothing to forget: the seed is public."""


@dataclass(frozen=True)
class EphemeralKeys:
    """One file per unsettled charge in ``directory``: ``privacy: enforced``."""

    directory: Path

    def fresh(self, label: str, attempt: int) -> bytes:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = os.urandom(32)
        path = self._path(label, attempt)
        # A leftover of a crash before its charge was written belongs to no release.
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, key)
            os.fsync(file)
        finally:
            os.close(file)
        _sync_directory(self.directory)
        return key

    def recover(self, label: str, attempt: int) -> bytes | None:
        with contextlib.suppress(OSError):
            return self._path(label, attempt).read_bytes()
        return None

    def discard(self, label: str, attempt: int) -> None:
        self._path(label, attempt).unlink(missing_ok=True)
        if self.directory.is_dir():
            _sync_directory(self.directory)

    def _path(self, label: str, attempt: int) -> Path:
        return self.directory / f"{attempt:06d}-{sha256(label.encode()).hexdigest()[:16]}.key"


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

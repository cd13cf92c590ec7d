"""Where the keys of the noise come from and how long they live.

``EphemeralKeys`` protect: 32 bytes of the operating system in a file readable by its owner alone,
unlinked once the release is safe. ``SeededKeys`` make a simulation repeatable and protect nobody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from cslr.errors import PrivacyError
from cslr.files import make_directory, sync_directory, write_all
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
        key = os.urandom(32)
        path = self._path(label, attempt)
        with _told(f"no noise key could be written to {self.directory}", "Nothing was charged"):
            make_directory(self.directory, mode=0o700)
            # A leftover of a crash before its charge was written belongs to no release.
            path.unlink(missing_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(file, key)
                os.fsync(file)
            finally:
                os.close(file)
            sync_directory(self.directory)
        return key

    def recover(self, label: str, attempt: int) -> bytes | None:
        with contextlib.suppress(OSError):
            return self._path(label, attempt).read_bytes()
        return None

    def discard(self, label: str, attempt: int) -> None:
        path = self._path(label, attempt)
        with _told(f"the noise key {path} could not be removed", "Its release is safe"):
            path.unlink(missing_ok=True)
            if self.directory.is_dir():
                sync_directory(self.directory)

    def left_over(self, unsettled: Iterable[tuple[str, int]]) -> list[Path]:
        """Key files of no unsettled charge (label, attempt): whoever finds one can undo noise."""
        wanted = {self._path(label, attempt).name for label, attempt in unsettled}
        if not self.directory.is_dir():
            return []
        return sorted(file for file in self.directory.iterdir() if file.name not in wanted)

    def _path(self, label: str, attempt: int) -> Path:
        return self.directory / f"{attempt:06d}-{sha256(label.encode()).hexdigest()[:16]}.key"


@contextlib.contextmanager
def _told(what: str, state: str) -> Iterator[None]:
    """An error of the disk, as its user can act on it."""
    try:
        yield
    except OSError as error:
        raise PrivacyError(
            f"{what}: {error.strerror or error}. {state}. Free some space or mend the disk and "
            "repeat the command"
        ) from error

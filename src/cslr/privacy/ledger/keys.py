"""Noise keys: where they come from and when they are deleted.

``EphemeralKeys`` enforce privacy: 32 bytes of the operating system in a file readable by its owner
alone, unlinked once the release is safe. In the same file lies the sum that is to be released: a
release that was charged and then interrupted is finished from there, so what happens next does not
depend on the rows at that time. ``SeededKeys`` make a simulation reproducible and give no
protection.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.arrays import IntArray
from cslr.errors import PrivacyError
from cslr.files import make_directory, sync_directory, write_all
from cslr.privacy.grid import Grid
from cslr.privacy.noise import key_for_sum
from cslr.seeding import Seeds

__all__ = ["EphemeralKeys", "NoiseKeys", "SeededKeys", "Unfinished"]


class NoiseKeys(Protocol):
    """Keys by release and attempt."""

    seeded: ClassVar[bool]
    """Whether a key follows from the release's name, so that repeating it repeats its noise."""

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        """A key for a new charge; durable, with ``kept``, if a crash must find it again."""

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        """The key of an unsettled charge and what was kept with it, if they still exist."""

    def discard(self, label: str, attempt: int) -> None:
        """Forget the key, and what was kept with it, for good."""

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        """The key of the noise that is added to an integer sum."""


@dataclass(frozen=True)
class SeededKeys:
    """Keys that follow from a seed: ``privacy: simulated``.

    The noise belongs to the seed and the release alone, whatever the sum: two machines whose
    embeddings differ in the last bit draw the same noise, and their figures agree up to rounding.
    """

    seeded: ClassVar[bool] = True
    seeds: Seeds

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        return self.seeds.digest("noise key", label, attempt)

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        return self.fresh(label, attempt, b""), b""

    def discard(self, label: str, attempt: int) -> None:
        """Nothing to forget: the seed is public."""

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        return key


@dataclass(frozen=True)
class EphemeralKeys:
    """One file per unsettled charge in ``directory``: ``privacy: enforced``."""

    seeded: ClassVar[bool] = False
    directory: Path

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        key = os.urandom(32)
        path = self._path(label, attempt)
        with _told(f"no noise key could be written to {self.directory}", "Nothing was charged"):
            make_directory(self.directory, mode=0o700)
            # A leftover of a crash before its charge was written belongs to no release.
            path.unlink(missing_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(file, key + _seal(key, kept) + kept)
                os.fsync(file)
            finally:
                os.close(file)
            sync_directory(self.directory)
        return key

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        with contextlib.suppress(OSError):
            content = self._path(label, attempt).read_bytes()
            key, seal, kept = content[:32], content[32:64], content[64:]
            return key, kept if hmac.compare_digest(seal, _seal(key, kept)) else b""
        return None

    def discard(self, label: str, attempt: int) -> None:
        path = self._path(label, attempt)
        with _told(f"the noise key {path} could not be removed", "The release itself is complete"):
            path.unlink(missing_ok=True)
            if self.directory.is_dir():
                sync_directory(self.directory)

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        return key_for_sum(key, total)

    def left_over(self, unsettled: Iterable[tuple[str, int]]) -> list[Path]:
        """Key files of no unsettled charge (label, attempt): whoever finds one can undo noise."""
        open_names = {self._path(label, attempt).name for label, attempt in unsettled}
        if not self.directory.is_dir():
            return []
        return sorted(file for file in self.directory.iterdir() if file.name not in open_names)

    def _path(self, label: str, attempt: int) -> Path:
        return self.directory / f"{attempt:06d}-{sha256(label.encode()).hexdigest()[:16]}.key"


def _seal(key: bytes, kept: bytes) -> bytes:
    """32 bytes by which damage to what is kept shows."""
    return hmac.digest(key, b"kept\0" + kept, sha256)


@contextlib.contextmanager
def _told(what: str, state: str) -> Iterator[None]:
    """An error of the disk, as its user can act on it."""
    try:
        yield
    except OSError as error:
        raise PrivacyError(
            f"{what}: {error.strerror or error}. {state}. Free disk space or repair the disk "
            "and repeat the command"
        ) from error


@dataclass(frozen=True, eq=False)
class Unfinished:
    """Integers that are about to be noised, or noised by the clients and about to be published.

    PRIVATE: a sum without noise. It is kept between a charge and its result, in the file of the
    noise key, to finish the release after a crash, and deleted with it.
    """

    total: IntArray
    """(D,) a sum, or (b, D) the vectors of b clients."""
    grid: Grid
    senders: IntArray | None = None
    """(b,) whose vectors these are, where they are sent by name."""
    noised: bool = False
    """Whether the clients' noise is in it already, so that none is to be drawn."""

    def as_bytes(self) -> bytes:
        """Everything that is needed to go on."""
        arrays = {
            "total": np.ascontiguousarray(self.total),
            "bound": np.array([self.grid.bound]),
            "steps": np.array([self.grid.steps]),
        }
        if self.senders is not None:
            arrays["senders"] = self.senders
        if self.noised:
            arrays["noised"] = np.ones(1, dtype=np.int64)
        return save(arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self | None:
        """The inverse of ``as_bytes``; None if the bytes are damaged."""
        try:
            arrays = load(content)
            grid = Grid(float(arrays["bound"][0]), int(arrays["steps"][0]))
            return cls(arrays["total"], grid, arrays.get("senders"), "noised" in arrays)
        except (SafetensorError, LookupError, ValueError):
            return None

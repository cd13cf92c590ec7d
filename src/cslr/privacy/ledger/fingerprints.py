"""What a ledger knows of the rows it belongs to: keyed fingerprints in ``rows.json`` beside it.

    declarations   what was declared about the rows, without their budget and number of clients
    file           device and inode of the file of rows
    written        the same with the time of its last change
    place          the directory in which the ledger lies

Each is an HMAC-SHA256 under a random key of 32 bytes, which is in the same file, as is a checksum
over all of it. Only its owner can read the file. It is as private as the rows and never copied into
a run directory. It does not depend on the contents of the rows; ``written`` changes with the time
at which their file was saved.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from cslr.errors import LedgerCorrupted, PrivacyError
from cslr.files import write_atomic
from cslr.privacy.ledger.chain import canonical

__all__ = ["Fingerprints", "OwnRows", "fingerprints_in", "translated_disk_errors"]

_NAME: Final = "rows.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class OwnRows:
    """What a ledger needs to know about a file of rows."""

    path: Path
    """Resolved: a link stands for the file it names."""
    stem: str
    """The file's name without its endings; ledger and pointer are named after it."""
    declared: bytes
    """What was declared, in canonical form, without budget and number of clients."""

    @property
    def beside(self) -> Path:
        """Where the ledger lies unless another directory was named."""
        return self.path.with_name(f"{self.stem}.cslr-federation")

    @property
    def pointer(self) -> Path:
        """The file that names the ledger of these rows."""
        return self.path.with_name(f"{self.stem}.cslr-ledger")

    @property
    def links(self) -> int:
        """How many hard links the file has."""
        return self.path.stat().st_nlink


@dataclass(frozen=True, repr=False)
class Fingerprints:
    """PRIVATE. The contents of ``rows.json``."""

    key: bytes
    declarations: tuple[str, ...]
    file: str
    written: str
    place: str

    @classmethod
    def new(cls, rows: OwnRows, directory: Path) -> Self:
        """Fingerprints of these rows under a fresh key."""
        empty = cls(os.urandom(32), (), "", "", "")
        return empty.renewed(rows).at(directory)

    def renewed(self, rows: OwnRows) -> Self:
        """With the file as it is now, and its declaration added to the earlier ones."""
        declared = self._of("declaration", rows.declared.hex())
        recorded = self.declarations
        return replace(
            self,
            declarations=recorded if declared in recorded else (*recorded, declared),
            file=self._of("file", _identity(rows.path)),
            written=self._of("written", _identity_and_time(rows.path)),
        )

    def at(self, directory: Path) -> Self:
        """With ``directory`` as the place of the ledger."""
        return replace(self, place=self._of("place", str(directory.resolve())))

    def lies_at(self, directory: Path) -> bool:
        """Whether ``directory`` is the recorded place of the ledger."""
        return self.at(directory).place == self.place

    def declares(self, rows: OwnRows) -> bool:
        """Whether the ledger's rows had the same declaration, now or earlier."""
        return self._of("declaration", rows.declared.hex()) in self.declarations

    def is_file(self, rows: OwnRows) -> bool:
        """Whether it is the same file under any name; a deleted file's inode may be used again."""
        return self._of("file", _identity(rows.path)) == self.file

    def is_unchanged_file(self, rows: OwnRows) -> bool:
        """Whether it is the same file, not written to since the last run on it."""
        return self._of("written", _identity_and_time(rows.path)) == self.written

    def write(self, directory: Path) -> None:
        """Durable when it returns, readable by its owner alone."""
        path = directory / _NAME
        with translated_disk_errors(path):
            write_atomic(path, self._content())

    def _content(self) -> bytes:
        body = {
            "version": _VERSION,
            "key": self.key.hex(),
            "declarations": list(self.declarations),
            "file": self.file,
            "written": self.written,
            "place": self.place,
        }
        return canonical({**body, "checksum": self._of("all", body)}).encode() + b"\n"

    def _of(self, what: str, value: object) -> str:
        return hmac.new(self.key, canonical([what, value]).encode(), "sha256").hexdigest()


def fingerprints_in(directory: Path) -> Fingerprints | None:
    """The fingerprints beside the ledger in ``directory``; None: there are none yet."""
    path = directory / _NAME
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LedgerCorrupted(f"cannot read {path}: {error.strerror}. {_RESTORE}") from None
    fingerprints = _parsed(content)
    if fingerprints is None:
        raise LedgerCorrupted(f"{path} is damaged. {_RESTORE}")
    return fingerprints


_RESTORE: Final = (
    "It records which rows the ledger beside it belongs to: restore it from a backup. "
    "Nothing was released"
)


def _parsed(content: bytes) -> Fingerprints | None:
    """The fingerprints, if ``content`` is byte for byte what was written."""
    try:
        body: dict[str, Any] = json.loads(content)
        fingerprints = Fingerprints(
            bytes.fromhex(body["key"]),
            tuple(body["declarations"]),
            body["file"],
            body["written"],
            body["place"],
        )
        intact = fingerprints._content() == content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return fingerprints if intact else None


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_dev, status.st_ino]


def _identity_and_time(path: Path) -> list[int]:
    return [*_identity(path), path.stat().st_mtime_ns]


@contextmanager
def translated_disk_errors(path: Path) -> Iterator[None]:
    """Translate a disk error at ``path``, before anything was charged."""
    try:
        yield
    except OSError as error:
        raise PrivacyError(
            f"{path} could not be written: {error.strerror or error}. It links the rows to "
            "their only ledger, so nothing was charged. Make the directory writable or free "
            "disk space, and repeat the command"
        ) from error

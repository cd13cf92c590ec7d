"""A file of records, each naming the hash of the one before: append-only, durable, locked.

It knows nothing of what the records mean. The chain stops accidents, not someone with write access
to the file; whole records cut from the end leave a shorter chain that is still one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

from cslr.errors import LedgerCorrupted, PrivacyError

__all__ = ["Chain", "canonical", "read_chain"]

_START: Final = "0" * 64


class Chain:
    """The records of one file, or of none: then they are gone with the process."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._file = file

    @classmethod
    def at(cls, path: Path) -> Self:
        """Open the chain at ``path``, creating it if there is none, and lock it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise PrivacyError(f"{path} is in use by another process; wait for it to end") from None
        chain = cls(file)
        try:
            chain.records = _recover(path, file)
        except BaseException:
            file.close()
            raise
        return chain

    def append(self, kind: str, body: Mapping[str, object]) -> None:
        """Add a record; on disk when it returns."""
        previous = self.records[-1]["hash"] if self.records else _START
        record = {"n": len(self.records), "kind": kind, "body": dict(body), "previous": previous}
        record["hash"] = _hash(record)
        line = canonical(record)
        if self._file is not None:
            self._write(self._file, line + "\n")
        self.records.append(json.loads(line))

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the records of one kind, in order."""
        return [record["body"] for record in self.records if record["kind"] == kind]

    def close(self) -> None:
        """Give the lock back. Nothing can be appended from then on."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, file: IO[str], line: str) -> None:
        if file.closed:
            raise PrivacyError("the ledger is closed; open it again")
        try:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # How much reached the disk is unknown: only opening it anew, which reads it, may go on.
            self.close()
            raise


def read_chain(path: Path) -> Chain:
    """The verified records of a file, to look at; nothing is locked or changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LedgerCorrupted(f"{path} cannot be read: {error.strerror}") from None
    chain = Chain()
    chain.records, _ = _verified(path, content)
    return chain


def canonical(value: object) -> str:
    """The one spelling of a plain value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _recover(path: Path, file: IO[str]) -> list[dict[str, Any]]:
    """Read and verify; an incomplete last line (a crash while writing) is cut off."""
    text = path.read_bytes()
    records, good = _verified(path, text)
    if text and not text.endswith(b"\n"):
        file.truncate(good)
        file.write("\n" if good == len(text) else "")
        file.flush()
        os.fsync(file.fileno())
    return records


def _verified(path: Path, text: bytes) -> tuple[list[dict[str, Any]], int]:
    """The records and the number of bytes they take."""
    *lines, last = text.split(b"\n")
    torn = _is_torn(last)
    records: list[dict[str, Any]] = []
    for line in lines if torn else [*lines, last]:
        record = _next_record(line, records)
        if record is None:
            raise LedgerCorrupted(
                f"{path}, line {len(records) + 1}: the record does not fit the chain. The ledger "
                "is not started anew; restore it from a backup or account for the federation by "
                "hand."
            )
        records.append(record)
    return records, len(text) - len(last) if torn else len(text)


def _is_torn(last: bytes) -> bool:
    """Whether what follows the last newline is the beginning of a record, or nothing.

    A whole record there lost its newline to damage, not to a crash while writing.
    """
    try:
        json.JSONDecoder().raw_decode(last.decode(errors="replace"))
    except ValueError:
        return True
    return False


def _next_record(line: bytes, before: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record on a line, if it is byte for byte what was written after ``before``."""
    try:
        record: dict[str, Any] = json.loads(line)
        intact = (
            record["n"] == len(before)
            and record["previous"] == (before[-1]["hash"] if before else _START)
            and record["hash"] == _hash({k: v for k, v in record.items() if k != "hash"})
            and canonical(record).encode() == line
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return record if intact else None


def _hash(record: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(record).encode()).hexdigest()

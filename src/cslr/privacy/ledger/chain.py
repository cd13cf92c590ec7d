"""A file of records, each naming the hash of the one before: append-only, durable, locked.

It knows nothing of what the records mean. Beside ``NAME.jsonl`` lies ``NAME.head``: number and hash
of the newest record. A chain that is shorter than its head, or not the same, was rolled back or
begun anew and is refused.

After a crash nothing is refused that should go on: a record is on disk before the head names it, so
the head never runs ahead, and being one record behind is fine. It is overwritten in place, by less
than a sector, so it is never half written. A first record without a head is a crash before the head
was made; ``headless`` leaves it to the owner what to think of a longer one.

All of this stops accidents, not someone with write access to both files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from cslr.errors import LedgerCorrupted, PrivacyError
from cslr.files import (
    PRIVATE_FOLDER,
    make_directory,
    naming,
    open_to_append,
    sync_directory,
    write_all,
    write_atomic,
)

__all__ = ["Chain", "canonical", "head_of", "read_chain"]

_START: Final = "0" * 64
_NOT_ANEW: Final = (
    "A new ledger is not started; restore this one from a backup or account for this "
    "federation by hand"
)
_encoder: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


class Chain:
    """The records of one file, or in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.headless = True
        """Whether there was no head beside the file."""
        self._path = path
        self._file: int | None = None
        self._head: int | None = None
        self._process = os.getpid()

    @classmethod
    def at(cls, path: Path, private: bool = False) -> Self:
        """Open the chain at ``path``, creating it if there is none, and lock it.

        private: only its owner may read the file, and the directory if it is created for it.
        """
        chain = cls(path)
        try:
            make_directory(path.parent, PRIVATE_FOLDER if private else 0o777)
            chain._file = open_to_append(path, private)
            _lock(path, chain._file)
            chain.records = _recover(path, chain._file)
            head = _checked_head(path, chain.records)
            chain.headless = head is None
            if head is not None:
                chain._head = os.open(head_of(path), os.O_WRONLY | os.O_CLOEXEC)
                newest = _head_line(chain.records[-1])
                if head != newest:  # a crash came between a record and its head
                    chain._point_at(path, newest)
        except OSError as error:
            chain.close()
            raise _unusable(path, "opened", error) from error
        except BaseException:
            chain.close()
            raise
        return chain

    def append(self, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Add a record; on disk when it returns."""
        previous = self.records[-1]["hash"] if self.records else _START
        record = {"n": len(self.records), "kind": kind, "body": dict(body), "previous": previous}
        record["hash"] = _hash(record)
        line = canonical(record)
        if self._path is not None:
            self._write(self._path, line.encode() + b"\n", _head_line(record))
        self.records.append(json.loads(line))
        return self.records[-1]

    def close(self) -> None:
        """Release the lock. Nothing can be appended from then on."""
        for file in (self._head, self._file):
            if file is not None:
                with contextlib.suppress(OSError):
                    os.close(file)
        self._head = self._file = None

    def _write(self, path: Path, line: bytes, head: bytes) -> None:
        if self._file is None:
            raise PrivacyError("the ledger was closed; open it again")
        if self._process != os.getpid():
            raise PrivacyError(f"{path} was opened by the parent process; open it in this process")
        try:
            write_all(self._file, line)
            os.fsync(self._file)
            self._point_at(path, head)
        except OSError as error:
            self.close()
            raise _unusable(path, "written", error) from error
        except BaseException:
            # How much reached the disk is unknown: only opening it anew, which reads it, may go on.
            self.close()
            raise

    def _point_at(self, path: Path, head: bytes) -> None:
        """Let the head name the record just written; one that lags after a power cut is fine."""
        if self._head is None:
            write_atomic(head_of(path), head)
            self._head = os.open(head_of(path), os.O_WRONLY | os.O_CLOEXEC)
        elif os.pwrite(self._head, head, 0) != len(head):
            raise OSError(f"{head_of(path)} is incomplete")


def head_of(path: Path) -> Path:
    """The file that names the newest record of the chain at ``path``."""
    return path.with_suffix(".head")


def read_chain(path: Path) -> Chain:
    """The verified records of a file, to look at; nothing is locked or changed."""
    try:
        head = _read_head(path)  # before the records: whoever appends meanwhile is ahead of it
        content = path.read_bytes()
    except OSError as error:
        raise LedgerCorrupted(f"cannot read {path}: {error.strerror}") from None
    chain = Chain()
    chain.records, _ = _verified(path, content)
    _check_head(path, chain.records, head)
    chain.headless = head is None
    return chain


def canonical(value: object) -> str:
    """The one spelling of a plain value."""
    return _encoder.encode(value)


def _lock(path: Path, file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PrivacyError(f"{path} is in use by another process; wait for it to end") from None


def _unusable(path: Path, what: str, error: OSError) -> PrivacyError:
    return PrivacyError(
        f"{path} could not be {what}: {error.strerror or error}. Nothing is released unless "
        "its charge is on disk. Free disk space or repair the disk and repeat the command; "
        "recorded charges are not charged twice"
    )


def _recover(path: Path, file: int) -> list[dict[str, Any]]:
    """Read and verify; an incomplete last line (a crash while writing) is cut off.

    What a killed process handed over but did not sync is made durable before anyone relies on it.
    """
    text = path.read_bytes()
    records, good = _verified(path, text)
    if text and not text.endswith(b"\n"):
        os.ftruncate(file, good)
        write_all(file, b"\n" if good == len(text) else b"")
    with naming(path):
        os.fsync(file)
    sync_directory(path.parent)
    return records


# -- the head --------------------------------------------------------------------------------------


def _head_line(record: Mapping[str, Any]) -> bytes:
    """Always of one length, so that the next one covers it."""
    return f"{record['n']:012d} {record['hash']}\n".encode()


def _read_head(path: Path) -> bytes | None:
    try:
        return head_of(path).read_bytes()
    except FileNotFoundError:
        return None


def _checked_head(path: Path, records: list[dict[str, Any]]) -> bytes | None:
    head = _read_head(path)
    _check_head(path, records, head)
    return head


def _check_head(path: Path, records: list[dict[str, Any]], head: bytes | None) -> None:
    """Refuse records that do not reach as far as the head, or reach it another way."""
    if head is None:
        return
    number = head[:12].decode(errors="replace")
    if not number.isascii() or not number.isdigit():
        raise LedgerCorrupted(f"{head_of(path)} is damaged. {_NOT_ANEW}")
    if int(number) >= len(records):
        raise LedgerCorrupted(
            f"{path} has {len(records)} records, but there were {int(number) + 1}: it was "
            f"reset, truncated or replaced by an older copy. {_NOT_ANEW}"
        )
    if head != _head_line(records[int(number)]):
        raise LedgerCorrupted(f"{head_of(path)} does not belong to {path}. {_NOT_ANEW}")


# -- the records -----------------------------------------------------------------------------------


def _verified(path: Path, text: bytes) -> tuple[list[dict[str, Any]], int]:
    """The records and the number of bytes they take."""
    *lines, last = text.split(b"\n")
    torn = _is_torn(last)
    records: list[dict[str, Any]] = []
    for line in lines if torn else [*lines, last]:
        record = _next_record(line, records)
        if record is None:
            raise LedgerCorrupted(
                f"{path}, line {len(records) + 1}: the record breaks the hash chain. {_NOT_ANEW}"
            )
        records.append(record)
    return records, len(text) - len(last) if torn else len(text)


def _is_torn(last: bytes) -> bool:
    """Whether what follows the last newline is the beginning of a record, or nothing.

    A whole record there lost its newline to damage, not to a crash while writing.
    """
    try:
        json.JSONDecoder().raw_decode(last.decode(errors="replace"))
    except (ValueError, RecursionError):
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return record if intact else None


def _hash(record: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(record).encode()).hexdigest()

"""A file of records, each naming the hash of the one before: append-only, durable, locked.

It does not depend on what the records mean. Beside ``NAME.jsonl`` is ``NAME.head`` with the number
and hash of the newest record. A chain that is shorter than its head says, or has another record at
that number, was rolled back or started again, and is refused.

A crash does not make a valid chain refused. A record is on disk before the head names it, so the
head is never ahead of the chain, and it may be one record behind. It is overwritten in place, by
less than a sector, so it is never half written. One record without a head is left by a crash before
the head was created. The owner of the chain decides by ``headless`` whether to accept more records
without a head.

This detects accidents, not manipulation by someone with write access to both files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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

__all__ = ["Chain", "canonical", "field_text", "head_of", "read_chain"]

_START: Final = "0" * 64
_NOT_ANEW: Final = (
    "A new ledger is not started; restore this one from a backup or account for this "
    "federation by hand"
)
_encoder: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


@dataclass
class _Tip:
    """The state of a chain after its last record: all that is in memory of a chain in a file."""

    count: int = 0
    hash: str = _START
    opening: dict[str, Any] | None = None
    """The first record."""
    size: int = 0
    """Bytes of all lines, and their digest."""
    digest: Any = field(default_factory=hashlib.sha256)

    def advance(self, record: dict[str, Any], line: bytes) -> None:
        """The next record, on its line."""
        self.count, self.hash = self.count + 1, record["hash"]
        self.opening = self.opening or record
        self.size += len(line)
        self.digest.update(line)


class Chain:
    """The records of one file, or in memory only. Of a file, no record stays in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.headless = True
        """Whether there was no head beside the file."""
        self._path = path
        self._tip = _Tip()
        self._lines = bytearray()
        """The lines of a chain without a file."""
        self._place = 0
        """Offset of the record found last; the next one that is looked up is often after it."""
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
            chain._tip, head = _recover(path, chain._file)
            chain.headless = head is None
            if head is not None:
                chain._head = os.open(head_of(path), os.O_WRONLY | os.O_CLOEXEC)
                newest = _head_line(chain._tip.count - 1, chain._tip.hash)
                if head != newest:  # a crash came between a record and its head
                    chain._point_at(path, newest)
        except OSError as error:
            chain.close()
            raise _unusable(path, "opened", error) from error
        except BaseException:
            chain.close()
            raise
        return chain

    @property
    def count(self) -> int:
        """How many records there are."""
        return self._tip.count

    @property
    def newest(self) -> str:
        """The hash of the last record."""
        return self._tip.hash

    @property
    def opening(self) -> dict[str, Any] | None:
        """The first record, if there is one."""
        return self._tip.opening

    def records(self, fragment: bytes = b"") -> Iterator[dict[str, Any]]:
        """The records in order, or those whose line contains ``fragment``.

        A file is read again; its bytes must be those that were verified or written.
        """
        for line in self._content().splitlines():
            if fragment in line:
                yield json.loads(line)

    def find(self, fragment: bytes) -> Iterator[dict[str, Any]]:
        """The same records without reading the whole file, starting at the record found last."""
        if self._tip.count == 0:
            return
        with self._view() as view:
            start = self._place
            for low, high in ((start, self._tip.size), (0, start)):
                at = view.find(fragment, low, high)
                while at >= 0:
                    self._place = view.rfind(b"\n", 0, at) + 1
                    end = view.find(b"\n", at)
                    yield self._intact(bytes(view[self._place : end]))
                    at = view.find(fragment, end, high)

    def append(self, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Add a record; on disk when it returns."""
        tip = self._tip
        record = {"n": tip.count, "kind": kind, "body": dict(body), "previous": tip.hash}
        record["hash"] = _hash(record)
        line = canonical(record).encode() + b"\n"
        if self._path is not None:
            self._write(self._path, line, _head_line(tip.count, str(record["hash"])))
        else:
            self._lines += line
        written: dict[str, Any] = json.loads(line)
        tip.advance(written, line)
        return written

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
            # How much reached the disk is unknown: the file must be opened and read again.
            self.close()
            raise

    def _content(self) -> bytes:
        if self._path is None:
            return bytes(self._lines)
        try:
            content = self._path.read_bytes()[: self._tip.size]
        except OSError as error:
            raise LedgerCorrupted(f"cannot read {self._path}: {error.strerror}") from None
        if hashlib.sha256(content).digest() != self._tip.digest.digest():
            raise self._changed()
        return content

    @contextlib.contextmanager
    def _view(self) -> Iterator[bytearray | mmap.mmap]:
        if self._path is None:
            yield self._lines
            return
        try:
            with self._path.open("rb") as file:
                view = mmap.mmap(file.fileno(), self._tip.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            raise self._changed() from None
        with view:
            yield view

    def _intact(self, line: bytes | bytearray) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(line)
            if record["hash"] == _hash(record):
                return record
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise self._changed()

    def _changed(self) -> LedgerCorrupted:
        return LedgerCorrupted(f"{self._path} was changed while it was in use. {_NOT_ANEW}")

    def _point_at(self, path: Path, head: bytes) -> None:
        """Let the head name the record just written; after a power cut it may lag behind."""
        if self._head is None:
            write_atomic(head_of(path), head)
            self._head = os.open(head_of(path), os.O_WRONLY | os.O_CLOEXEC)
        elif os.pwrite(self._head, head, 0) != len(head):
            raise OSError(f"{head_of(path)} is incomplete")


def head_of(path: Path) -> Path:
    """The file that names the newest record of the chain at ``path``."""
    return path.with_suffix(".head")


def read_chain(path: Path) -> Chain:
    """The verified records of a file, read-only; nothing is locked or changed."""
    try:
        head = _read_head(path)  # read first: it may be behind the records, but not ahead
        content = path.read_bytes()
    except OSError as error:
        raise LedgerCorrupted(f"cannot read {path}: {error.strerror}") from None
    chain = Chain()
    chain._tip, lines = _verified(path, content)
    _check_head(path, lines, head)
    chain._lines = bytearray(b"".join(line + b"\n" for line in lines))
    chain.headless = head is None
    return chain


def canonical(value: object) -> str:
    """The canonical JSON of a plain value."""
    return _encoder.encode(value)


def field_text(name: str, value: str) -> bytes:
    """The text of a field on the line of any record that has it."""
    return canonical({name: value})[1:-1].encode()


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


def _recover(path: Path, file: int) -> tuple[_Tip, bytes | None]:
    """Read and verify; an incomplete last line (a crash while writing) is cut off.

    What a killed process wrote but did not sync is synced before anything relies on it.
    """
    text = path.read_bytes()
    tip, lines = _verified(path, text)
    if text and not text.endswith(b"\n"):
        whole = sum(map(len, lines)) + len(lines)
        os.ftruncate(file, min(whole, len(text)))
        write_all(file, b"\n" if whole > len(text) else b"")
    with naming(path):
        os.fsync(file)
    sync_directory(path.parent)
    head = _read_head(path)
    _check_head(path, lines, head)
    return tip, head


# -- the head --------------------------------------------------------------------------------------


def _head_line(number: int, digest: str) -> bytes:
    """Always of the same length, so that the next one overwrites all of it."""
    return f"{number:012d} {digest}\n".encode()


def _read_head(path: Path) -> bytes | None:
    try:
        return head_of(path).read_bytes()
    except FileNotFoundError:
        return None


def _check_head(path: Path, lines: list[bytes], head: bytes | None) -> None:
    """Refuse records that end before the head's, or have another one at its number."""
    if head is None:
        return
    text = head[:12].decode(errors="replace")
    if not text.isascii() or not text.isdigit():
        raise LedgerCorrupted(f"{head_of(path)} is damaged. {_NOT_ANEW}")
    number = int(text)
    if number >= len(lines):
        raise LedgerCorrupted(
            f"{path} has {len(lines)} records, but there were {number + 1}: it was "
            f"reset, truncated or replaced by an older copy. {_NOT_ANEW}"
        )
    if head != _head_line(number, json.loads(lines[number])["hash"]):
        raise LedgerCorrupted(f"{head_of(path)} does not belong to {path}. {_NOT_ANEW}")


# -- the records -----------------------------------------------------------------------------------


def _verified(path: Path, text: bytes) -> tuple[_Tip, list[bytes]]:
    """The state after the last record of a file, and the records' lines without newlines."""
    *lines, last = text.split(b"\n")
    if not _is_torn(last):
        lines.append(last)
    tip = _Tip()
    for line in lines:
        record = _next_record(line, tip)
        if record is None:
            raise LedgerCorrupted(
                f"{path}, line {tip.count + 1}: the record breaks the hash chain. {_NOT_ANEW}"
            )
        tip.advance(record, line + b"\n")
    return tip, lines


def _is_torn(last: bytes) -> bool:
    """Whether what follows the last newline is an incomplete record, or nothing.

    An incomplete one is cut off; a complete one must fit the chain like any other.
    """
    try:
        json.JSONDecoder().raw_decode(last.decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return False


def _next_record(line: bytes, before: _Tip) -> dict[str, Any] | None:
    """The record on a line, if it is byte for byte what was written after ``before``."""
    try:
        record: dict[str, Any] = json.loads(line)
        intact = (
            record["n"] == before.count
            and record["previous"] == before.hash
            and record["hash"] == _hash(record)
            and canonical(record).encode() == line
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return record if intact else None


def _hash(record: Mapping[str, object]) -> str:
    """The hash of everything in a record but its own hash."""
    content = {name: value for name, value in record.items() if name != "hash"}
    return hashlib.sha256(canonical(content).encode()).hexdigest()

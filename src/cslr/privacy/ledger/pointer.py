"""One ledger for each file of rows: all costs add up in it, and any other ledger is refused.

The first ledger of a file leaves a pointer beside the rows, ``STEM.cslr-ledger``, which names the
ledger's directory and id. From then on that ledger is used and no other. A copy or another name of
the rows is recognised by the fingerprints of the ledgers in the same directory (``fingerprints``):
the same declaration, or the same file. A ledger that is not at its recorded place was moved or
copied, and is refused until its holder states that it was moved (``cslr ledger moved``).

Order on disk: ledger, fingerprints, pointer, first charge. What a crash leaves incomplete, the next
run completes; nothing is charged before all three are there.

This prevents accidents. It cannot recognise rows that were copied to another directory or machine
without their ledger, copies with a changed declaration, or files that somebody removed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cslr.errors import LedgerCorrupted, LedgerMoved, PrivacyError, SecondLedger
from cslr.files import write_atomic
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.chain import canonical
from cslr.privacy.ledger.fingerprints import (
    Fingerprints,
    OwnRows,
    fingerprints_in,
    translated_disk_errors,
)
from cslr.privacy.ledger.records import EphemeralKeys

__all__ = ["OwnRows", "declare_moved", "ledger_directory", "open_ledger"]

_VERSION: Final = 1
_LEDGER: Final = "ledger.jsonl"


@dataclass(frozen=True)
class Pointer:
    """The contents of ``STEM.cslr-ledger``."""

    rows: str
    """The name of the file of rows."""
    ledger: Path
    """The ledger's directory, absolute."""
    id: str

    def as_bytes(self) -> bytes:
        """The canonical bytes; a file with other bytes is damaged."""
        plain = {"version": _VERSION, "rows": self.rows, "ledger": str(self.ledger), "id": self.id}
        return canonical(plain).encode() + b"\n"


def ledger_directory(rows: OwnRows, given: Path | None = None) -> Path:
    """The directory of the one ledger of ``rows``; reads only.

    given: the directory that the user names. Any other than the rows' own is refused.
    """
    if rows.links > 1:
        raise SecondLedger(
            f"{rows.path} has {rows.links} hard links, and another of these names may already "
            "have a ledger. Remove the other links, or replace this file by a copy"
        )
    pointer = _read_pointer(rows.pointer)
    directory = _chosen(rows, given, pointer)
    _check_place(rows, directory, pointer)
    _refuse_siblings(rows, directory)
    return directory


def open_ledger(rows: OwnRows, directory: Path, federation: Federation) -> Ledger:
    """The ledger of ``rows``, open and locked; linked to them before it can be charged."""
    with _locked(rows.path):
        ledger_directory(rows, directory)
        keys = EphemeralKeys(directory / "keys")
        ledger = Ledger.at(directory / _LEDGER, federation, keys)
        try:
            _tie(rows, directory.resolve(), ledger.id)
        except BaseException:
            ledger.close()
            raise
    return ledger


def declare_moved(directory: Path, pointer: Path | None = None) -> list[Path]:
    """Record that a ledger was moved to ``directory``: in its fingerprints and in its pointers.

    pointer: that of its rows; None: those beside the ledger. Returns the pointers that were
    changed. A copy is refused while a pointer names the original and the original exists.
    """
    here = directory.resolve()
    ledger_id = Ledger.read(directory / _LEDGER).id
    recorded = fingerprints_in(directory)
    if recorded is None:
        raise LedgerMoved(
            f"{directory} is not linked to any rows yet, so there is no location to update: "
            f"run with --federation {directory}"
        )
    pointers = _pointers_of(ledger_id, pointer or here.parent)
    if pointer is None and not pointers:
        raise LedgerMoved(
            f"no rows beside {directory} point to this ledger; name its rows with --data FILE"
        )
    for path, stored in pointers.items():
        if stored.ledger != here and _id_of(stored.ledger) == ledger_id:
            raise SecondLedger(
                f"{path} points to {stored.ledger}, where the ledger still exists: {directory} "
                "is a copy. Remove the copy; only one ledger may be used"
            )
    recorded.at(here).write(here)
    for path, stored in pointers.items():
        _write_pointer(path, Pointer(stored.rows, here, ledger_id))
    return list(pointers)


# -- which ledger ----------------------------------------------------------------------------------


def _chosen(rows: OwnRows, given: Path | None, pointer: Pointer | None) -> Path:
    if pointer is None:
        beside = rows.beside
        if given is None or given.resolve() == beside.resolve():
            return given or beside
        if (beside / _LEDGER).exists():
            raise SecondLedger(_other(given, rows, beside))
        return given
    if not (pointer.ledger / _LEDGER).exists():
        raise LedgerMoved(_missing(rows, given, pointer))
    if given is not None and given.resolve() != pointer.ledger:
        raise SecondLedger(_other(given, rows, pointer.ledger))
    return given or pointer.ledger


def _other(given: Path, rows: OwnRows, ledger: Path) -> str:
    return (
        f"--federation {given}: the ledger of {rows.path} is at {ledger}, and all runs on "
        "these rows must be charged there. Remove --federation"
    )


def _missing(rows: OwnRows, given: Path | None, pointer: Pointer) -> str:
    message = f"{rows.pointer} points to the ledger of these rows at {pointer.ledger}, "
    for candidate in (given, rows.beside):
        if candidate is not None and (candidate / _LEDGER).exists():
            return (
                f"{message}which does not exist. If it was moved to {candidate}, run `cslr "
                f"ledger moved {candidate} --data {rows.path}`"
            )
    return (
        f"{message}which does not exist. Restore it from a backup; a new ledger at ε = 0 is not "
        "started"
    )


def _check_place(rows: OwnRows, directory: Path, pointer: Pointer | None) -> None:
    """Refuse a ledger that was moved or copied, or that belongs to other rows."""
    recorded = fingerprints_in(directory)
    if recorded is None:
        if pointer is not None:
            raise LedgerCorrupted(
                f"rows.json is missing in {directory}. Restore it from a backup; or, if nothing "
                f"was copied, remove {rows.pointer} and run once with --federation {directory}"
            )
        return  # a new ledger, or one made before there were fingerprints
    if not (directory / _LEDGER).exists():
        raise LedgerMoved(
            f"the ledger that was in {directory} is missing. Restore it from a backup; a new "
            "ledger at ε = 0 is not started"
        )
    if not recorded.lies_at(directory):
        raise LedgerMoved(
            f"the ledger in {directory} was moved or copied there. If it was moved, run `cslr "
            f"ledger moved {directory} --data {rows.path}`; a copy must not be used in "
            "addition to the original"
        )
    if pointer is None and not recorded.declares(rows):
        raise SecondLedger(
            f"the ledger in {directory} belongs to other rows, with another declaration. Give "
            f"the ledger of {rows.path}, or remove --federation"
        )


def _refuse_siblings(rows: OwnRows, directory: Path) -> None:
    """Refuse rows that have another ledger in, or pointed at from, their directory."""
    this_ledger = directory.resolve()
    for ledger, of in sorted(_siblings(rows).items()):
        recorded = fingerprints_in(ledger) if ledger != this_ledger else None
        if recorded is None:
            continue
        if recorded.declares(rows):
            why = "its rows have the same declaration, so this file is a copy or was renamed"
            fix = "if these rows belong to other clients, change the name in their declaration"
        elif recorded.is_unchanged_file(rows) or (recorded.is_file(rows) and of is None):
            why = "it is the ledger of this file under another name"
            fix = "if these are other rows, save them to a new file"
        else:
            continue
        raise SecondLedger(
            f"{rows.path} has a ledger at {ledger}: {why}. Use that ledger, with --federation "
            f"{ledger} or under the old file name; {fix}; keep copies of a ledger in another "
            "directory"
        )


def _siblings(rows: OwnRows) -> dict[Path, Path | None]:
    """Ledgers in or pointed at from the rows' directory, with their own rows if those are there."""
    folder = rows.path.parent
    siblings: dict[Path, Path | None] = {
        path.resolve(): None for path in folder.glob("*.cslr-federation") if path.is_dir()
    }
    for path in folder.glob(f"*/{_LEDGER}"):  # in a directory that --federation named
        if fingerprints_in(path.parent) is not None and Ledger.read(path).charges:
            siblings.setdefault(path.parent.resolve(), None)
    for path in sorted(folder.glob("*.cslr-ledger")):
        pointer = _read_pointer(path) if path != rows.pointer else None
        if pointer is not None:
            others = folder / pointer.rows
            there = others.exists() and not others.samefile(rows.path)
            siblings[pointer.ledger] = others if there else siblings.get(pointer.ledger)
    return siblings


# -- what is written -------------------------------------------------------------------------------


def _tie(rows: OwnRows, directory: Path, ledger_id: str) -> None:
    """Write fingerprints and pointer where they are missing or not up to date."""
    pointer = _read_pointer(rows.pointer)
    if pointer is not None and pointer.id != ledger_id:
        raise SecondLedger(
            f"{rows.pointer} points to ledger {pointer.id[:8]}…, but {directory} contains "
            f"ledger {ledger_id[:8]}…: it was replaced or started again. Restore the ledger of "
            "these rows"
        )
    before = fingerprints_in(directory)
    now = Fingerprints.new(rows, directory) if before is None else before.renewed(rows)
    if now != before:
        now.write(directory)
    current = Pointer(rows.path.name, directory, ledger_id)
    if pointer != current:
        _write_pointer(rows.pointer, current)


def _write_pointer(path: Path, pointer: Pointer) -> None:
    with translated_disk_errors(path):
        write_atomic(path, pointer.as_bytes())


def _read_pointer(path: Path) -> Pointer | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerCorrupted(f"cannot read {path}: {error.strerror}") from None
    try:
        stored: dict[str, Any] = json.loads(content)
        pointer = Pointer(str(stored["rows"]), Path(stored["ledger"]), str(stored["id"]))
        whole = pointer.as_bytes() == content
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise LedgerCorrupted(
            f"{path} is damaged. It points to the ledger of the rows beside it: restore it "
            "from a backup, or remove it and run once with --federation DIR, the directory "
            "of that ledger"
        )
    return pointer


def _pointers_of(ledger_id: str, where: Path) -> dict[Path, Pointer]:
    """The pointers to the ledger with this id; ``where``: a pointer or a directory of them."""
    paths = sorted(where.glob("*.cslr-ledger")) if where.is_dir() else [where]
    read = {path: _read_pointer(path) for path in paths}
    return {
        path: pointer
        for path, pointer in read.items()
        if pointer is not None and pointer.id == ledger_id
    }


def _id_of(directory: Path) -> str | None:
    path = directory / _LEDGER
    return Ledger.read(path).id if path.exists() else None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time may decide which ledger belongs to the rows."""
    with translated_disk_errors(path):
        file = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrivacyError(f"{path} is in use by another process; wait for it to end") from None
        except OSError as error:
            raise PrivacyError(
                f"{path} could not be locked: {error.strerror or error}. Nothing was charged; "
                "keep the rows on a file system that supports locks, and repeat the command"
            ) from error
        yield
    finally:
        os.close(file)

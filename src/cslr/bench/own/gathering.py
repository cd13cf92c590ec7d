"""All rows of a file that are as declared, and what is wrong with the others.

Two things are seen only across rows: a person whom two clients hold, which would be protected by
neither's clipping alone, and a person in both train and test, whom a test would know already.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cslr.bench.own.answers import Known
from cslr.bench.own.declaration import Declaration
from cslr.bench.own.formats import counted
from cslr.bench.own.problems import Kind, Problem, quoted
from cslr.bench.own.reading import raw_rows
from cslr.bench.own.understanding import OwnRow, understand

__all__ = ["MOST", "Gathered", "gather"]

MOST: Final = 20
"""Problems that are told one by one."""
_PREFIX: Final = b"cslr/own/test/1"


@dataclass(frozen=True)
class Gathered:
    """What was read; private, whatever is counted of it."""

    rows: tuple[OwnRow, ...]
    problems: tuple[Problem, ...]
    """The first of them."""
    totals: Mapping[Kind, int]
    """How often each kind occurred. Every bad row has one kind."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Who has rows, sorted by name."""
        return tuple(sorted({row.client for row in self.rows} - {""}))

    @property
    def shared(self) -> int:
        """Rows about a person whom two clients hold. They can be mended, never just left out: which
        of the two keeps the person would depend on the other."""
        return self.totals.get("person in two clients", 0)


def gather(data: Path, declaration: Declaration, stop_early: bool) -> Gathered:
    """Read ``data`` once. ``stop_early``: no further than the problems that are told."""
    known = Known.of(declaration)
    rows: list[OwnRow] = []
    problems: list[Problem] = []
    totals: Counter[Kind] = Counter()
    for found in _checked(data, known):
        if isinstance(found, OwnRow):
            rows.append(found)
            continue
        totals[found.kind] += 1
        if len(problems) < MOST:
            problems.append(found)
        if stop_early and len(problems) == MOST:
            break
    if declaration.test_share is not None:
        rows = _with_test(rows, declaration.test_share)
    return Gathered(tuple(rows), tuple(problems), dict(totals))


def _checked(data: Path, known: Known) -> Iterator[OwnRow | Problem]:
    """Row by row, each also against the people seen before it."""
    seen: dict[str, OwnRow] = {}
    columns = known.declaration.columns.roles()
    for raw in raw_rows(data, columns, known.declaration.delimiter):
        row = raw if isinstance(raw, Problem) else understand(raw, known)
        if isinstance(row, OwnRow) and row.person:
            yield _conflict(row, seen, counted(data)) or row
        else:
            yield row


def _conflict(row: OwnRow, seen: dict[str, OwnRow], unit: str) -> Problem | None:
    """Whether a person was met elsewhere; where people clash the first row of theirs is right."""
    first = seen.setdefault(row.person, row)
    if row.client and not first.client:
        first = seen[row.person] = replace(first, client=row.client)
    if row.client and row.client != first.client:
        return Problem(
            row.line,
            "person in two clients",
            f"person {quoted(row.person)} is with client {quoted(row.client)} here and with "
            f"{quoted(first.client)} in {unit} {first.line}; a person belongs to one client",
        )
    if row.test != first.test:
        names = {True: "test", False: "train"}
        return Problem(
            row.line,
            "person in train and test",
            f"person {quoted(row.person)} is in {names[row.test]} here and in "
            f"{names[first.test]} in {unit} {first.line}; keep a person on one side",
        )
    return None


def _with_test(rows: Sequence[OwnRow], share: float) -> list[OwnRow]:
    """Of each client's people, or texts, the first by SHA-256 are test: share, rounded down.

    A client can do it alone, and neither seeds nor other clients' rows move a row.
    """
    units: dict[str, set[str]] = {}
    for row in rows:
        units.setdefault(row.client, set()).add(row.person or row.text)
    chosen = {
        client: set(sorted(own, key=_hash)[: math.floor(share * len(own))])
        for client, own in units.items()
    }
    return [replace(row, test=(row.person or row.text) in chosen[row.client]) for row in rows]


def _hash(unit: str) -> bytes:
    return hashlib.sha256(_PREFIX + b"\0" + unit.encode()).digest()

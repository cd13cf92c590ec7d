"""A stream of one's own rows: who holds which row is given, nothing is shared out.

``gather`` reads all rows that are as declared, and what is wrong with the others. Two things are
seen only across rows: a person whom two clients hold, which would be protected by neither's
clipping alone, and a person in both train and test, whom a test would know already.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cslr.data.own.declaration import Declaration
from cslr.data.own.parse.labels import Known
from cslr.data.own.parse.problems import Kind, Problem, quoted, told
from cslr.data.own.parse.row import OwnRow, parse_row
from cslr.data.own.reader.file_format import counted
from cslr.data.own.reader.read_file import raw_rows
from cslr.data.stream import Rows, Stream
from cslr.errors import DataError
from cslr.text.spacing import spaced

__all__ = ["MOST", "Gathered", "OwnData", "client_address", "gather", "load_own"]

_CLIENT_PREFIX: Final = b"cslr/own/client/1"

MOST: Final = 20
"""Maximum number of problems listed one by one."""
_TEST_PREFIX: Final = b"cslr/own/test/1"


@dataclass(frozen=True, eq=False)
class OwnData:
    """A data set as it is learnt from."""

    stream: Stream
    client_names: tuple[str, ...]
    """Of the clients with rows, by their numbers; private, and never written to a run."""
    skipped: Mapping[str, int]
    """Rows left out by kind of problem; private too."""


def load_own(
    data: Path, declaration: Declaration, public: tuple[str, ...], skip_bad_rows: bool = False
) -> OwnData:
    """The rows of ``data`` under a confirmed declaration, with ``public`` as the public corpus.

    Bad rows are an error that names the first of them, or left out and counted. Labels, tasks and
    the number of clients are the declared ones, whatever the rows are like.
    """
    declaration.require_confirmed()
    gathered = gather(data, declaration, stop_early=not skip_bad_rows)
    if gathered.problems and not skip_bad_rows:
        raise DataError(_refusal(data, gathered))
    if gathered.shared:
        raise DataError(_shared(data, gathered))
    names = gathered.clients
    if len(names) > declaration.clients:
        raise DataError(
            f"{data} has rows of {len(names)} clients, but clients = {declaration.clients} is "
            "declared; set clients to the number of registered clients and run again; "
            "nothing was spent"
        )
    train = [row for row in gathered.rows if not row.test]
    if not train:
        raise DataError(f"{data} contains no valid train row; run `cslr data check`")
    known = Known.of(declaration)
    stream = Stream(
        name=declaration.name,
        labels=known.labels,
        tasks=known.tasks,
        train=_rows(train, gathered),
        test=_rows([row for row in gathered.rows if row.test], gathered),
        public=tuple(map(spaced, public)) if declaration.family == "tagging" else public,
        scenarios=(declaration.scenario,),
        clients=declaration.clients,
        family=declaration.family,
        partition="given",
        client_ids=np.array([client_address(name) for name in names], dtype=np.int64),
    )
    return OwnData(stream, names, dict(sorted(gathered.totals.items())))


def _rows(rows: list[OwnRow], gathered: Gathered) -> Rows:
    """As a stream has them, in the order of the file; −1 is the client of a row of nobody's."""
    people = sorted({row.person for row in gathered.rows})
    return Rows(
        tuple(row.text for row in rows),
        tuple(row.answer for row in rows),
        np.array([row.task for row in rows], dtype=np.int64),
        _numbers([row.person for row in rows], people) if any(people) else None,
        _numbers([row.client for row in rows], gathered.clients),
    )


def client_address(name: str) -> int:
    """A client's address, from its name alone."""
    return int.from_bytes(
        hashlib.sha256(_CLIENT_PREFIX + b"\0" + name.encode()).digest()[:6], "big"
    )


def _numbers(names: list[str], known: list[str] | tuple[str, ...]) -> np.ndarray:
    """(n,) the place of each name among the known ones; −1 without a name."""
    places = {"": -1, **{name: place for place, name in enumerate(known)}}
    return np.array([places[name] for name in names], dtype=np.int64)


def _shared(data: Path, gathered: Gathered) -> str:
    listed = [each for each in gathered.problems if each.kind == "person in two clients"]
    return "\n".join(
        [
            f"{data}: {gathered.shared} rows are about a person that also occurs in another "
            "client. They cannot be skipped, because then one client's rows would decide "
            "about another client's. Correct them",
            *(f"  {told(data, problem)}" for problem in listed),
        ]
    )


def _refusal(data: Path, gathered: Gathered) -> str:
    count = len(gathered.problems)
    rows = f"{count} rows or more" if count == MOST else f"{count} row{'s'[: count - 1]}"
    listed = "\n".join(f"  {told(data, problem)}" for problem in gathered.problems)
    return (
        f"{data}: {rows} not as declared; correct the file, or leave such rows out with "
        f"--skip-bad-rows\n{listed}"
    )


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
    """Read ``data`` once. ``stop_early``: stop after the problems that are listed."""
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
        row = raw if isinstance(raw, Problem) else parse_row(raw, known)
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
            f"person {quoted(row.person)} is in client {quoted(row.client)} here and in "
            f"{quoted(first.client)} in {unit} {first.line}; a person must belong to one "
            "client",
        )
    if row.test != first.test:
        names = {True: "test", False: "train"}
        return Problem(
            row.line,
            "person in train and test",
            f"person {quoted(row.person)} is in {names[row.test]} here and in "
            f"{names[first.test]} in {unit} {first.line}; a person must be in train or in "
            "test only",
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
    return hashlib.sha256(_TEST_PREFIX + b"\0" + unit.encode()).digest()

"""A stream made of the user's own rows; the rows themselves name their clients.

``gather`` reads the valid rows and collects the problems of the others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cslr.data.own.declaration import Declaration
from cslr.data.own.parse.labels import Known
from cslr.data.own.parse.problems import Kind, Problem, described
from cslr.data.own.parse.row import OwnRow, parse_row
from cslr.data.own.people import TOO_MANY, Met, person_address, with_test
from cslr.data.own.reader.file_format import counted
from cslr.data.own.reader.read_file import raw_rows
from cslr.data.stream import Rows, Stream
from cslr.errors import DataError
from cslr.text.spacing import spaced

__all__ = ["MOST", "OR_SKIP", "Gathered", "OwnData", "client_address", "gather", "load_own"]

_CLIENT_PREFIX: Final = b"cslr/own/client/1"

_TORN: Final[Kind] = "person in train and test"
_UNCLEAR: Final[Kind] = "unclear rows"
OR_SKIP: Final = ", or leave such rows out with --skip-bad-rows"
"""What a refusal of rows offers besides correcting them."""
MOST: Final = 20
"""Maximum number of problems listed one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class OwnData:
    """PRIVATE. A data set ready for training."""

    stream: Stream
    client_names: tuple[str, ...]
    """Names of the clients with rows, by number; private, and never written to a run."""
    skipped: Mapping[str, int]
    """How many rows were left out, by kind of problem; private too."""


def load_own(
    data: Path, declaration: Declaration, public: tuple[str, ...], skip_bad_rows: bool = False
) -> OwnData:
    """The rows of ``data`` under a confirmed declaration, with ``public`` as the public corpus.

    Bad rows raise an error that lists the first ones, or are skipped and counted. Labels, tasks and
    the number of clients are the declared ones, whatever the rows are like.
    """
    declaration.require_confirmed()
    gathered = gather(data, declaration, stop_early=not skip_bad_rows)
    if gathered.problems and not skip_bad_rows:
        raise DataError(_refusal(data, gathered))
    _check_cannot_skip(data, declaration, gathered)
    _check_registered(data, declaration, gathered)
    train = [row for row in gathered.rows if not row.test]
    if not train:
        raise DataError(f"{data} contains no valid train row; run `cslr data check`")
    declared, names = Known.of(declaration), gathered.clients
    by_person = declaration.privacy.unit == "person"
    stream = Stream(
        name=declaration.name,
        labels=declared.labels,
        tasks=declared.tasks,
        train=_rows(train, gathered, by_person),
        test=_rows([row for row in gathered.rows if row.test], gathered, by_person),
        public=tuple(map(spaced, public)) if declaration.family == "tagging" else public,
        scenarios=(declaration.scenario,),
        clients=declaration.clients,
        family=declaration.family,
        partition="given",
        client_ids=np.array([client_address(name) for name in names], dtype=np.int64),
        people=declaration.people,
        rows_per_person=declaration.rows_per_person,
        clients_per_person=declaration.clients_per_person,
        tasks_per_person=declaration.tasks_per_person,
        person_ids=_person_ids(gathered) if by_person else None,
    )
    return OwnData(stream, names, dict(sorted(gathered.totals.items())))


def _check_registered(data: Path, declaration: Declaration, gathered: Gathered) -> None:
    """Raise an error for more clients (or people, if they are the unit) than are declared."""
    counts = {"clients": (len(gathered.clients), declaration.clients)}
    if declaration.people is not None:
        counts["people"] = (len(gathered.people), declaration.people)
    for what, (there, declared) in counts.items():
        if there > declared:
            raise DataError(
                f"{data} has rows of {there} {what}, but {what} = {declared} is declared; set "
                f"{what} to the number of registered {what} and run again; nothing was spent"
            )


def _rows(rows: list[OwnRow], gathered: Gathered, by_person: bool) -> Rows:
    """The rows in file order; the client is −1 for a row without one.

    by_person: number people per client, as units of privacy are, and not by their name alone.
    """
    if by_person:
        places = {held: index for index, held in enumerate(gathered.held)}
        people = np.array([places.get((row.client, row.person), -1) for row in rows], np.int64)
    else:
        people = _numbers([row.person for row in rows], gathered.people)
    return Rows(
        tuple(row.text for row in rows),
        tuple(row.answer for row in rows),
        np.array([row.task for row in rows], dtype=np.int64),
        people if gathered.people else None,
        _numbers([row.client for row in rows], gathered.clients),
    )


def _person_ids(gathered: Gathered) -> np.ndarray:
    """(u,) the addresses of the people inside clients, by their numbers."""
    return np.array([person_address(*held) for held in gathered.held], dtype=np.int64)


def client_address(name: str) -> int:
    """A client's address, from its name alone."""
    return int.from_bytes(
        hashlib.sha256(_CLIENT_PREFIX + b"\0" + name.encode()).digest()[:6], "big"
    )


def _numbers(names: list[str], known: tuple[str, ...]) -> np.ndarray:
    """(n,) the index of each name among the known ones; −1 for an empty name."""
    places = {"": -1, **{name: index for index, name in enumerate(known)}}
    return np.array([places[name] for name in names], dtype=np.int64)


def _check_cannot_skip(data: Path, declaration: Declaration, gathered: Gathered) -> None:
    """Raise an error for bad rows that must be corrected even where bad rows are skipped."""
    kinds: tuple[Kind, ...]
    if gathered.shared:
        kinds, message = (
            TOO_MANY,
            f"{gathered.shared} rows are about a person that also occurs in another client. They "
            "cannot be skipped, because then one client's rows would decide about another "
            "client's. Correct them, or declare unit = 'person' and clients_per_person",
        )
    elif gathered.unclear:
        kinds, message = (
            (_UNCLEAR,),
            f"in {gathered.unclear} places it is unclear where rows end or whose they are. These "
            "cannot be skipped, because one row would decide about others. Correct them",
        )
    elif gathered.torn and declaration.test_rows == "public":
        kinds, message = (
            (_TORN,),
            f"{gathered.torn} rows are about a person in both train and test. With test_rows = "
            "'public' they cannot be skipped, because then a private row would decide which test "
            "rows count in scores that are stored. Correct them",
        )
    else:
        return
    listed = [f"  {described(data, each)}" for each in gathered.problems if each.kind in kinds]
    raise DataError("\n".join([f"{data}: {message}", *listed]))


def _refusal(data: Path, gathered: Gathered) -> str:
    count = len(gathered.problems)
    rows = f"{count} rows or more" if count == MOST else f"{count} row{'s'[: count - 1]}"
    listed = "\n".join(f"  {described(data, problem)}" for problem in gathered.problems)
    return f"{data}: {rows} not as declared; correct the file{OR_SKIP}\n{listed}"


@dataclass(frozen=True, repr=False)
class Gathered:
    """PRIVATE. The valid rows of a file, and the problems of the others."""

    rows: tuple[OwnRow, ...]
    problems: tuple[Problem, ...]
    """The first problems, at most ``MOST``."""
    totals: Mapping[Kind, int]
    """How often each kind occurred. Every bad row has one kind."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients with rows, sorted."""
        return tuple(sorted({row.client for row in self.rows} - {""}))

    @property
    def people(self) -> tuple[str, ...]:
        """Names of the people with rows, sorted."""
        return tuple(sorted({row.person for row in self.rows} - {""}))

    @property
    def held(self) -> tuple[tuple[str, str], ...]:
        """(client, person) for each person inside a client, sorted."""
        return tuple(sorted({(row.client, row.person) for row in self.rows if row.client}))

    @property
    def shared(self) -> int:
        """Rows about a person in more clients than declared. They must be corrected and cannot be
        skipped: which client keeps the person would depend on the other clients."""
        return sum(self.totals.get(kind, 0) for kind in TOO_MANY)

    @property
    def unclear(self) -> int:
        """Places where a bad row may have merged with other rows, or changed whose they are."""
        return self.totals.get(_UNCLEAR, 0)

    @property
    def torn(self) -> int:
        """Rows that put a person into both train and test; the person's earlier rows are kept."""
        return self.totals.get(_TORN, 0)


def gather(data: Path, declaration: Declaration, stop_early: bool) -> Gathered:
    """Read ``data`` once. ``stop_early``: stop after the problems that are listed."""
    declared = Known.of(declaration)
    rows: list[OwnRow] = []
    problems: list[Problem] = []
    totals: Counter[Kind] = Counter()
    for parsed in _checked(data, declared):
        if isinstance(parsed, OwnRow):
            rows.append(parsed)
            continue
        totals[parsed.kind] += 1
        if len(problems) < MOST:
            problems.append(parsed)
        if stop_early and len(problems) == MOST:
            break
    if declaration.test_share is not None:
        rows = with_test(rows, declaration.test_share, declaration.privacy.unit)
    return Gathered(tuple(rows), tuple(problems), dict(totals))


def _checked(data: Path, declared: Known) -> Iterator[OwnRow | Problem]:
    """Row by row, each also checked against the people seen before."""
    met = Met(declared.declaration.clients_per_person, counted(data))
    columns = declared.declaration.columns.roles()
    for raw in raw_rows(data, columns, declared.declaration.delimiter):
        row = raw if isinstance(raw, Problem) else parse_row(raw, declared)
        if isinstance(row, OwnRow) and row.person:
            yield met.conflict(row) or row
        else:
            yield row

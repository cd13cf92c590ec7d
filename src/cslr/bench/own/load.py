"""A stream of one's own rows: who holds which row is given, nothing is shared out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cslr.bench.own.answers import Known
from cslr.bench.own.declaration import Declaration
from cslr.bench.own.gathering import MOST, Gathered, gather
from cslr.bench.own.problems import told
from cslr.bench.own.understanding import OwnRow
from cslr.bench.streams.stream import Rows, Stream
from cslr.bench.streams.words import spaced
from cslr.errors import DataError

__all__ = ["OwnData", "load_own"]

_PREFIX: Final = b"cslr/own/client/1"


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
            f"declared; correct clients, the number of all that are registered, and begin anew: "
            f"nothing was spent"
        )
    train = [row for row in gathered.rows if not row.test]
    if not train:
        raise DataError(f"{data} holds no train row that is as declared; see `cslr data check`")
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
        client_ids=np.array([_id(name) for name in names], dtype=np.int64),
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


def _id(name: str) -> int:
    """A client's address, from its name alone."""
    return int.from_bytes(hashlib.sha256(_PREFIX + b"\0" + name.encode()).digest()[:6], "big")


def _numbers(names: list[str], known: list[str] | tuple[str, ...]) -> np.ndarray:
    """(n,) the place of each name among the known ones; −1 without a name."""
    places = {"": -1, **{name: place for place, name in enumerate(known)}}
    return np.array([places[name] for name in names], dtype=np.int64)


def _shared(data: Path, gathered: Gathered) -> str:
    listed = [each for each in gathered.problems if each.kind == "person in two clients"]
    return "\n".join(
        [
            f"{data}: {gathered.shared} rows are about a person whom another client holds, too. "
            f"They cannot be left out: one client's rows would decide about another's. Mend them",
            *(f"  {told(data, problem)}" for problem in listed),
        ]
    )


def _refusal(data: Path, gathered: Gathered) -> str:
    count = len(gathered.problems)
    rows = f"{count} rows or more" if count == MOST else f"{count} row{'s'[: count - 1]}"
    listed = "\n".join(f"  {told(data, problem)}" for problem in gathered.problems)
    return (
        f"{data}: {rows} not as declared; mend the file, or leave such rows out with "
        f"--skip-bad-rows\n"
        f"{listed}"
    )

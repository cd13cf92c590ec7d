"""The people in a data file: their clients, the train/test split, and their addresses.

Two errors show only across rows: a person in more clients than declared, whom clipping per client
would not protect, and a person in both train and test, which would leak into the test.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any, Final

from cslr.data.own.parse.problems import Kind, Problem, quoted
from cslr.data.own.parse.row import OwnRow
from cslr.privacy.plan import Unit

__all__ = ["TOO_MANY", "Met", "person_address", "typical", "with_test"]

TOO_MANY: Final[tuple[Kind, ...]] = ("person in two clients", "person in too many clients")
"""Problems of rows that cannot be left out."""

_PERSON_PREFIX: Final = b"cslr/own/person/1"
_TEST_PREFIX: Final = b"cslr/own/test/1"


def typical(rows: Mapping[tuple[str, Any], int]) -> tuple[int, int]:
    """PRIVATE. Medians: rows of a person in a task that it has rows of, and tasks of a person.

    rows: the number of rows of each person in each task.
    """
    if not rows:
        return 1, 1
    tasks = Counter(person for person, _ in rows)
    return int(median_low(rows.values())), int(median_low(tasks.values()))


@dataclass(repr=False)
class Met:
    """PRIVATE. The people seen in earlier rows. If rows conflict, the earlier ones are kept."""

    most: int
    """How many clients may hold rows of one person."""
    unit: str
    """The unit of positions in the file: line or row."""
    first: dict[str, OwnRow] = field(default_factory=dict)
    """The first row of each person."""
    clients: dict[str, dict[str, int]] = field(default_factory=dict)
    """The clients of each person, and the line in which each was first seen."""

    def conflict(self, row: OwnRow) -> Problem | None:
        """How a row contradicts earlier rows of the same person; None if it does not."""
        first = self.first.setdefault(row.person, row)
        clients = self.clients.setdefault(row.person, {})
        if row.client and row.client not in clients:
            if len(clients) >= self.most:
                return self._too_many(row, clients)
            clients[row.client] = row.line
        if row.test != first.test:
            names = {True: "test", False: "train"}
            return Problem(
                row.line,
                "person in train and test",
                f"person {quoted(row.person)} is in {names[row.test]} here and in "
                f"{names[first.test]} in {self.unit} {first.line}; a person must be in train or in "
                "test only",
            )
        return None

    def _too_many(self, row: OwnRow, clients: dict[str, int]) -> Problem:
        others = ", ".join(
            f"{quoted(name)} in {self.unit} {line}" for name, line in clients.items()
        )
        here = f"person {quoted(row.person)} is in client {quoted(row.client)} here and in "
        if self.most == 1:
            return Problem(
                row.line,
                "person in two clients",
                f"{here}{others}; a person must belong to one client",
            )
        message = f"{here}{others}; clients_per_person = {self.most} is declared"
        return Problem(row.line, "person in too many clients", message)


def person_address(client: str, person: str) -> int:
    """The address of a person inside a client, from the two names alone."""
    names = b"".join(hashlib.sha256(name.encode()).digest() for name in (client, person))
    return int.from_bytes(hashlib.sha256(_PERSON_PREFIX + b"\0" + names).digest()[:7], "big")


def with_test(rows: Sequence[OwnRow], share: float, unit: Unit) -> list[OwnRow]:
    """The rows, with a share of them marked as test, chosen by SHA-256.

    Neither a seed nor other units' rows change whether a row is test. If a client is the unit, the
    first of its people (or texts) by hash are test, their number rounded down. If a person is the
    unit, its own hash decides: counting a client's people would let one person change another's.
    """
    if unit == "person":
        return [replace(row, test=_fraction(row.person) < share) for row in rows]
    keys_of: dict[str, set[str]] = {}
    for row in rows:
        keys_of.setdefault(row.client, set()).add(row.person or row.text)
    chosen = {
        client: set(sorted(keys, key=_hash)[: math.floor(share * len(keys))])
        for client, keys in keys_of.items()
    }
    return [replace(row, test=(row.person or row.text) in chosen[row.client]) for row in rows]


def _fraction(key: str) -> float:
    """The hash of a key as a number in [0, 1)."""
    return int.from_bytes(_hash(key)[:6], "big") / 2**48


def _hash(key: str) -> bytes:
    return hashlib.sha256(_TEST_PREFIX + b"\0" + key.encode()).digest()

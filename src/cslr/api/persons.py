"""The people of ``learn``: their names, how many are registered, how many clients hold one.

If a person is the unit of privacy, the number of people and the most clients that hold one are
declared and never counted from rows. A person's address follows from the names of client and person
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cslr.api.array_likes import unit_names_of
from cslr.arrays import IntArray
from cslr.data.own.people import person_address
from cslr.errors import ConfigError, DataError
from cslr.privacy.plan import Unit

__all__ = ["DeclaredPeople", "PeopleOfRows", "people_of_rows"]


@dataclass(frozen=True)
class DeclaredPeople:
    """PUBLIC. What is declared to ``learn`` about the unit of privacy."""

    unit: Unit = "client"
    registered: int | None = None
    """All people that may contribute, with rows or without."""
    clients_per_person: int = 1
    """The most clients that hold rows of one person."""
    rows_per_person: int = 1
    """Rows that a person is expected to have of one task."""
    tasks_per_person: int = 1
    """The most tasks that a person contributes to."""

    def check(self, people: Any) -> None:
        """Refuse people without ``unit="person"``, and ``unit="person"`` without people."""
        if self.unit not in ("client", "person"):
            raise ConfigError(f"unit must be 'client' or 'person', not {self.unit!r}")
        if min(self.clients_per_person, self.rows_per_person, self.tasks_per_person) < 1:
            raise ConfigError(
                "clients_per_person, rows_per_person and tasks_per_person must be at least 1"
            )
        if self.unit == "person" and people is None:
            raise DataError(
                "people is missing: unit='person' hides one person inside a client, so each row "
                "needs the person it is about. Give people=[...], or unit='client'"
            )
        if self.unit == "client" and (people is not None or self != DeclaredPeople()):
            raise ConfigError(
                "people, registered_people, clients_per_person, rows_per_person and "
                "tasks_per_person are for unit='person'; set it, or leave them out"
            )


@dataclass(frozen=True, eq=False, repr=False)
class PeopleOfRows:
    """PRIVATE, except for the registered number."""

    units: IntArray  # (n,) index of each row's unit: a person in one client
    ids: IntArray  # (u,) addresses of the units
    registered: int


def people_of_rows(
    people: Any, clients: Sequence[str], declared: DeclaredPeople, simulate: bool
) -> PeopleOfRows:
    """The people inside clients, as units of privacy.

    Guarantee: with ``clients_per_person`` = k no person occurs in more than k clients, so its rows
    move a sum of contributions clipped to S / k each by at most S.
    """
    names = unit_names_of(people, "people", len(clients))
    held = sorted(set(zip(clients, names, strict=True)))
    places = {each: index for index, each in enumerate(held)}
    _check_clients(held, declared.clients_per_person)
    units = [places[each] for each in zip(clients, names, strict=True)]
    return PeopleOfRows(
        np.array(units, dtype=np.int64),
        np.array([person_address(*each) for each in held], dtype=np.int64),
        _registered(declared, len(set(names)), simulate),
    )


def _check_clients(held: Sequence[tuple[str, str]], most: int) -> None:
    """Refuse a person with rows in more clients than declared: the clip would not protect it."""
    clients_of: dict[str, list[str]] = {}
    for client, person in held:
        clients_of.setdefault(person, []).append(client)
    for person, clients in clients_of.items():
        if len(clients) > most:
            raise DataError(
                f"people: {person!r} has rows in {len(clients)} clients "
                f"({', '.join(map(repr, clients[:3]))}), but clients_per_person={most}; correct "
                "the rows, or declare the most clients that a person can be with"
            )


def _registered(declared: DeclaredPeople, seen: int, simulate: bool) -> int:
    if declared.registered is None:
        if simulate:
            return seen
        raise DataError(
            "registered_people is missing: where privacy is enforced the number of people is "
            "declared and not counted from rows. Give registered_people=N, all that may contribute"
        )
    if declared.registered < seen:
        raise DataError(
            f"people: {seen} of them have rows, but registered_people={declared.registered}; "
            "give the number of all people that may contribute"
        )
    return int(declared.registered)

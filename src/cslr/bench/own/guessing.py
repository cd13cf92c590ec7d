"""What a file seems to hold, for a draft: columns by their names, the rest by their cells.

A guess is never used. It is written down for the data holder to confirm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from cslr.bench.own.cells import name_in, names_in
from cslr.bench.own.csv_rows import csv_delimiter
from cslr.bench.own.formats import format_of
from cslr.bench.own.problems import Unfit
from cslr.bench.own.raw import Raw
from cslr.bench.own.reading import raw_rows
from cslr.errors import DataError
from cslr.protocol.targets import FamilyName

__all__ = ["MOST_NAMES", "SEPARATOR", "Seen", "look"]

SEPARATOR: Final = "|"
MOST_NAMES: Final = 200
"""Labels or tasks that are listed; with so many the column is hardly the right one."""
_FIRST: Final = 1_000
"""Rows whose columns and labels are looked at for guessing."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "text": (
        *("text", "sentence", "review", "message", "utterance", "body", "content", "comment"),
        *("note", "document", "tokens", "words"),
    ),
    "label": (
        *("label", "labels", "intent", "intents", "class", "sentiment", "target", "category"),
        *("tags", "tag", "answer"),
    ),
    "client": (
        *("client", "hospital", "clinic", "site", "bank", "shop", "branch", "owner", "device"),
        *("user", "institution"),
    ),
    "task": ("task", "domain", "period", "topic", "service"),
    "split": ("split", "fold", "set", "part", "partition"),
    "person": ("person", "patient", "customer", "author", "speaker", "dialogue", "user"),
}
_TAG: Final = re.compile(r"O|[BI]-\S+")


@dataclass
class Seen:
    """Everything a draft is made of; filled while the file is read."""

    columns: tuple[str, ...]
    roles: Mapping[str, str]
    """The column guessed for each role."""
    family: FamilyName
    delimiter: str
    labels: dict[str, None] = field(default_factory=dict)
    tasks: dict[str, dict[str, None]] = field(default_factory=dict)
    """The labels seen in each task, both in the order they came."""
    clients: set[str] = field(default_factory=set)
    splits: set[str] = field(default_factory=set)


def look(path: Path) -> Seen:
    """Read the file twice: its first rows for what they are like, all of them for their names."""
    kind = format_of(path)
    delimiter = csv_delimiter(path) if kind == "csv" else ","
    first = list(islice(_good(path, delimiter), _FIRST))
    if not first:
        raise DataError(f"{path} holds no row that can be read; there is nothing to draft from")
    columns = tuple(dict.fromkeys(name for row in first for name in row.cells))
    roles = {"text": "text", "label": "label"} if kind == "conll" else {}
    roles |= _roles([name for name in columns if name not in roles], set(_NAMES) - set(roles))
    family = "tagging" if kind == "conll" else _family(first, roles)
    seen = Seen(columns, roles, family, delimiter)
    for row in _good(path, delimiter):
        _note(row, seen)
    return seen


def _good(path: Path, delimiter: str) -> Iterator[Raw]:
    return (row for row in raw_rows(path, {}, delimiter) if isinstance(row, Raw))


def _roles(columns: Sequence[str], wanted: Iterable[str]) -> dict[str, str]:
    """A column for each role: one of exactly such a name, else one with it among its words."""
    found: dict[str, str] = {}
    for exact in (True, False):
        for role in (role for role in _NAMES if role in wanted and role not in found):
            free = [name for name in columns if name not in found.values()]
            words = {name: [name.lower()] if exact else _words(name) for name in free}
            matches = (name for known in _NAMES[role] for name in free if known in words[name])
            if match := next(matches, None):
                found[role] = match
    return {role: found[role] for role in _NAMES if role in found}


def _words(name: str) -> list[str]:
    """userId, user_id and USER-ID are user and id."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.split(r"[\W_]+", parted.lower())


def _family(rows: Sequence[Raw], roles: Mapping[str, str]) -> FamilyName:
    """Tagging if labels are one tag a word, intents if some row has several, else one label."""
    if "label" not in roles:
        return "classification"
    labels = [_several(row, roles["label"]) for row in rows]
    if any(len(each) > 1 for each in labels):
        tags = (name for each in labels for name in each)
        return "tagging" if all(_TAG.fullmatch(name) for name in tags) else "intents"
    lists = (isinstance(row.cells.get(roles["label"]), list) for row in rows)
    return "intents" if any(lists) else "classification"


def _several(row: Raw, column: str) -> tuple[str, ...]:
    try:
        return names_in(row, column, SEPARATOR)
    except Unfit:
        return ()


def _single(row: Raw, seen: Seen, role: str) -> str:
    """The name in the column of a role; empty where there is none."""
    try:
        return name_in(row, seen.roles[role]) if role in seen.roles else ""
    except Unfit:
        return ""


def _note(row: Raw, seen: Seen) -> None:
    """Add the names of one row."""
    client, split = _single(row, seen, "client"), _single(row, seen, "split")
    seen.clients |= {client} - {""}
    if len(seen.splits) < MOST_NAMES:
        seen.splits |= {split.lower()} - {""}
    task, labels = _single(row, seen, "task"), _labels(row, seen)
    for name in labels:
        if len(seen.labels) < MOST_NAMES:
            seen.labels[name] = None
    if task and len(seen.tasks) < MOST_NAMES:
        seen.tasks.setdefault(task, {})
    if task in seen.tasks:
        seen.tasks[task] |= dict.fromkeys(name for name in labels if name in seen.labels)


def _labels(row: Raw, seen: Seen) -> list[str]:
    """The labels of a row as the family has them; of tags the types of entity."""
    if "label" not in seen.roles:
        return []
    if seen.family == "classification":
        name = _single(row, seen, "label")
        return [name] if name else []
    names = _several(row, seen.roles["label"])
    if seen.family == "intents":
        return list(names)
    return list(dict.fromkeys(name.partition("-")[2] for name in names if "-" in name))

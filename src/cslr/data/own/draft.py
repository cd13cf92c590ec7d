"""A draft declaration for ``cslr data init``: all of it is guessed and must be confirmed.

The labels in a draft come from private rows and are published with the declaration, so the holder
must review and confirm them before training. Columns are guessed as in ``guess``, everything else
from the cells. Until it is confirmed, no other command accepts a draft.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from cslr.data.own.formats.csv import csv_delimiter
from cslr.data.own.guess import Guess, guess_columns
from cslr.data.own.parse.cells import name_in, names_in
from cslr.data.own.parse.problems import Problem, Unfit
from cslr.data.own.people import typical
from cslr.data.own.reader.file_format import format_of, stem_of
from cslr.data.own.reader.raw import Raw
from cslr.data.own.reader.read_file import raw_rows
from cslr.errors import DataError
from cslr.protocol.head import FamilyName

__all__ = ["MOST_NAMES", "SEPARATOR", "Seen", "draft", "draft_text", "look"]

_COLUMNS = {
    "text": "the text to classify or tag",
    "label": "the label, labels or tags of the text",
    "client": "the client that holds the row",
    "task": "the task the row belongs to",
    "split": "train or test",
    "person": "the person the row is about, if a client holds rows of several people",
}
_NEEDED = ("text", "label", "client")

SEPARATOR: Final = "|"
MOST_NAMES: Final = 200
"""Labels or tasks that are listed at most; a column with more is probably the wrong one."""
_FIRST: Final = 1_000
"""Rows at the beginning from which columns and family are guessed."""

MOST_PROBLEMS: Final = 5
"""Bad rows that are shown at most."""
_TAG: Final = re.compile(r"O|[BI]-\S+")


def draft(path: Path, given: Mapping[str, str] | None = None) -> str:
    """The text of a TOML file for the rows in ``path``; ``given``: columns the user named."""
    return draft_text(path, look(path, given))


def draft_text(path: Path, seen: Seen) -> str:
    """The same for a file that ``look`` has read."""
    parts = [
        [*_top(path, seen), ""],
        [*_columns(seen), ""],
        [*_privacy(seen), ""],
        [*_label_tables(seen)],
        [*_tasks(seen)],
    ]
    return "\n".join(line for part in parts for line in part)


def _top(path: Path, seen: Seen) -> Iterator[str]:
    yield f"# Draft for {_string(path.name)}. Everything in it is a guess, and all of it becomes"
    yield "# public when it is used: the label and task names below come from private rows."
    yield "# Check every line, describe every label, then set confirmed = true."
    yield "confirmed = false"
    yield ""
    yield f"name = {_string(_slug(stem_of(path)))}"
    yield f"family = {_string(seen.family)}  # confirm: classification, intents or tagging"
    yield f'scenario = "{_scenario(seen)}"  # confirm: class, domain or task'
    yield "# N is public: the number of registered clients, with or without rows."
    if seen.clients:
        yield f"clients = {len(seen.clients)}  # confirm: how many are registered"
    else:
        yield "clients = 1  # fill in: no column of clients was found, so none could be counted"
    yield from _people(seen)
    if seen.delimiter != ",":
        yield f"delimiter = {_string(seen.delimiter)}  # confirm: delimiter of cells"
    if seen.family != "classification":
        yield f"separator = {_string(SEPARATOR)}  # confirm: separates several labels in a cell"
    if not _has_split(seen):
        yield (
            "# test_share = 0.2  # without a split column: share of each client's rows used as "
            "test rows"
        )
    yield '# public = "sentences.txt"  # your own public sentences, one per line'


def _people(seen: Seen) -> Iterator[str]:
    if not seen.people:
        return
    yield "# The number of people registered with all clients together is public, too."
    yield f"people = {len(seen.people)}  # confirm: how many are registered"
    most = max(map(len, seen.people.values()))
    if most > 1:
        yield f"clients_per_person = {most}  # confirm: clients with rows of one person"
    rows, tasks = typical(seen.rows_of_people)
    yield "# The next two are published: confirm them as what is expected of people like these."
    yield f"rows_per_person = {rows}  # confirm: rows expected of a person in one task"
    yield f"tasks_per_person = {tasks}  # confirm: tasks that a person is expected in"


def _privacy(seen: Seen) -> Iterator[str]:
    unit = "person" if seen.people else "client"
    yield f"# Privacy budget of one {unit} for all releases on these rows, over all runs."
    yield "[privacy]"
    if seen.people:
        yield f"# Column {_string(seen.roles['person'])} names the person of a row, so one person"
        yield "# is proposed as the unit of privacy: people are many, so hiding one of them costs"
        yield "# little accuracy. A whole client is then not hidden. If it must be, or if a person"
        yield '# may occur under several names, set "client" and remove people above.'
    yield f'unit = "{unit}"  # confirm: client or person'
    yield "epsilon = 8.0  # confirm"
    yield "delta = 1e-5  # confirm"


def _columns(seen: Seen) -> Iterator[str]:
    there = ", ".join(_string(name) for name in seen.columns[:50])
    yield f"# Columns in the file: {there or 'none'}"
    yield "[columns]"
    for role, meaning in _COLUMNS.items():
        column = _string(seen.roles.get(role, ""))
        if role == "split" and role in seen.roles and not _has_split(seen):
            yield f"# split = {column}  # has values other than train and test"
        elif role in seen.roles:
            yield f"{role} = {column}  # confirm: {meaning} (guessed {_why(seen, role)})"
        elif role in _NEEDED:
            yield f"{role} = {column}  # not found: name the column of {meaning}"
        else:
            yield f"# {role} = {column}  # not found: {meaning}"


def _why(seen: Seen, role: str) -> str:
    why = seen.guesses[role].why
    return why if why.startswith("by") else f"because: {why}"


def _label_tables(seen: Seen) -> Iterator[str]:
    if MOST_NAMES in (len(seen.labels), len(seen.tasks)):
        yield (
            f"# Only the first {MOST_NAMES} names are listed; check that the right columns are "
            "used."
        )
    yield "# Found in the rows. Remove what is not a label, and add labels that may occur later."
    if not seen.labels:
        yield "# No label was found: declare each as [[labels]] with a name and a description."
    for name in sorted(seen.labels):
        yield "[[labels]]"
        yield f"name = {_string(name)}  # confirm"
        yield 'description = ""  # fill in: one sentence that describes the label'
        if seen.family == "tagging":
            yield '# Invent sentences like "Yesterday [words here|TYPE] waited .", all marked.'
            yield "examples = []  # fill in"
        yield ""


def _tasks(seen: Seen) -> Iterator[str]:
    yield "# In the order of arrival: confirm it. A task without labels has all labels."
    for name, labels in (seen.tasks or {"all": {}}).items():
        yield "[[tasks]]"
        yield f"name = {_string(name)}  # confirm"
        if labels and len(labels) < len(seen.labels):
            yield f"labels = [{', '.join(_string(label) for label in sorted(labels))}]  # confirm"
        yield ""


def _has_split(seen: Seen) -> bool:
    return "split" in seen.roles and seen.splits <= {"train", "test"}


def _scenario(seen: Seen) -> str:
    """domain if every task was seen with every label, else class."""
    whole = all(len(labels) == len(seen.labels) for labels in seen.tasks.values())
    return "domain" if seen.labels and seen.tasks and whole else "class"


def _slug(stem: str) -> str:
    """A file name's stem as a name that is safe in a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "own"


def _string(text: str) -> str:
    """A TOML string: escaped as in JSON, and DEL too. A lone surrogate becomes a question mark."""
    whole = text.encode("utf-8", errors="replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(repr=False)
class Seen:
    """PRIVATE. What was seen in the file; filled while it is read."""

    columns: tuple[str, ...]
    roles: Mapping[str, str]
    """The column guessed for each role."""
    family: FamilyName
    delimiter: str
    labels: dict[str, None] = field(default_factory=dict)
    tasks: dict[str, dict[str, None]] = field(default_factory=dict)
    """The labels seen in each task; tasks and labels in the order they occur."""
    clients: set[str] = field(default_factory=set)
    splits: set[str] = field(default_factory=set)
    people: dict[str, set[str]] = field(default_factory=dict)
    """The clients each person was seen with."""
    rows_of_people: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows of each person in each task, both by name."""
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """The first rows that cannot be read."""
    bad: int = 0
    """How many rows cannot be read."""


def look(path: Path, given: Mapping[str, str] | None = None) -> Seen:
    """Read the file twice: first rows to guess columns and family, all rows to collect names."""
    kind = format_of(path)
    delimiter = csv_delimiter(path) if kind == "csv" else ","
    first = list(islice(_good(path, delimiter), _FIRST))
    if not first:
        raise DataError(
            f"{path} contains no readable row, so no declaration can be drafted; check its format"
        )
    columns = tuple(dict.fromkeys(name for row in first for name in row.cells))
    given = dict(given or {})
    for role, column in given.items():
        if column not in columns:
            there = ", ".join(map(repr, columns[:30]))
            raise DataError(f"--{role} {column}: no such column in {path}; columns: {there}")
    fixed = {"text": "text", "label": "label"} if kind == "conll" else {}
    open_ = [name for name in columns if name not in fixed.values()]
    guessed = guess_columns(first, open_, given, set(_COLUMNS) - set(fixed))
    guesses = {role: Guess(name, "of every CoNLL file") for role, name in fixed.items()} | guessed
    roles = {role: guess.column for role, guess in guesses.items()}
    family = "tagging" if kind == "conll" else _family(first, roles)
    seen = Seen(columns, roles, family, delimiter, guesses=guesses)
    for row in raw_rows(path, {}, delimiter):
        if isinstance(row, Raw):
            _note(row, seen)
        else:
            seen.bad += 1
            seen.problems += [row] if len(seen.problems) < MOST_PROBLEMS else []
    return seen


def _good(path: Path, delimiter: str) -> Iterator[Raw]:
    return (row for row in raw_rows(path, {}, delimiter) if isinstance(row, Raw))


def _family(rows: Sequence[Raw], roles: Mapping[str, str]) -> FamilyName:
    """Tagging if some row has several labels and all are tags; else intents if several or lists."""
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
    """Add the names in one row to what was seen."""
    client, split = _single(row, seen, "client"), _single(row, seen, "split")
    seen.clients |= {client} - {""}
    if person := _single(row, seen, "person"):
        seen.people.setdefault(person, set()).update({client} - {""})
        seen.rows_of_people[person, _single(row, seen, "task")] += 1
    if len(seen.splits) < MOST_NAMES:
        seen.splits |= {split.lower()} - {""}
    task, labels = _single(row, seen, "task"), _labels_in(row, seen)
    for name in labels:
        if len(seen.labels) < MOST_NAMES:
            seen.labels[name] = None
    if task and len(seen.tasks) < MOST_NAMES:
        seen.tasks.setdefault(task, {})
    if task in seen.tasks:
        seen.tasks[task] |= dict.fromkeys(name for name in labels if name in seen.labels)


def _labels_in(row: Raw, seen: Seen) -> list[str]:
    """The labels of a row; for tagging the types of entity."""
    if "label" not in seen.roles:
        return []
    if seen.family == "classification":
        name = _single(row, seen, "label")
        return [name] if name else []
    names = _several(row, seen.roles["label"])
    if seen.family == "intents":
        return list(names)
    return list(dict.fromkeys(name.partition("-")[2] for name in names if "-" in name))

"""A first draft of a declaration, for ``cslr data init``: everything guessed, nothing confirmed.

What a draft lists was seen in private rows. A label's name is published when the declaration is,
so the holder must read the list and stand by it before anything is learnt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from cslr.bench.own.formats import stem_of
from cslr.bench.own.guessing import MOST_NAMES, SEPARATOR, Seen, look

__all__ = ["draft"]

_COLUMNS = {
    "text": "what is to be understood",
    "label": "what is to be said about it",
    "client": "who holds the row; a client is what privacy protects",
    "task": "which task the row belongs to",
    "split": "train or test",
    "person": "whose row it is, if a client holds rows of several people",
}
_NEEDED = ("text", "label", "client")


def draft(path: Path) -> str:
    """The text of a TOML file for the rows in ``path``; it is refused until it is filled in."""
    seen = look(path)
    parts = [
        [*_top(path, seen), ""],
        [*_columns(seen), ""],
        [
            "# What all releases on these rows may cost a client together, over all runs.",
            "[privacy]",
            "epsilon = 8.0  # confirm",
            "delta = 1e-5  # confirm",
            "",
        ],
        [*_labels(seen)],
        [*_tasks(seen)],
    ]
    return "\n".join(line for part in parts for line in part)


def _top(path: Path, seen: Seen) -> Iterator[str]:
    yield f"# A draft for {_string(path.name)}. Everything in it is a guess, and all of it becomes"
    yield "# public when it is used: names of labels and tasks below were seen in private rows."
    yield "# Read every line, describe every label, then set confirmed = true."
    yield "confirmed = false"
    yield ""
    yield f"name = {_string(_slug(stem_of(path)))}"
    yield f"family = {_string(seen.family)}  # confirm: classification, intents or tagging"
    yield f'scenario = "{_scenario(seen)}"  # confirm: class, domain or task'
    yield "# N is public: put the number of clients that are registered, with rows or without."
    yield f"clients = {max(len(seen.clients), 1)}  # confirm: this is how many have rows"
    if seen.delimiter != ",":
        yield f"delimiter = {_string(seen.delimiter)}  # confirm: what parts the cells"
    if seen.family != "classification":
        yield f"separator = {_string(SEPARATOR)}  # confirm: between several labels in a cell"
    if not _has_split(seen):
        yield "# test_share = 0.2  # without a split column: this share of each client is test"
    yield '# public = "sentences.txt"  # your own public sentences, one a line'


def _columns(seen: Seen) -> Iterator[str]:
    there = ", ".join(_string(name) for name in seen.columns[:50])
    yield f"# Columns in the file: {there or 'none'}"
    yield "[columns]"
    for role, meaning in _COLUMNS.items():
        column = _string(seen.roles.get(role, ""))
        if role == "split" and role in seen.roles and not _has_split(seen):
            yield f"# split = {column}  # holds other names than train and test"
        elif role in seen.roles:
            yield f"{role} = {column}  # confirm: {meaning}"
        elif role in _NEEDED:
            yield f"{role} = {column}  # not found: name the column that says {meaning}"
        else:
            yield f"# {role} = {column}  # not found: {meaning}"


def _labels(seen: Seen) -> Iterator[str]:
    if MOST_NAMES in (len(seen.labels), len(seen.tasks)):
        yield f"# {MOST_NAMES} names are listed and no more: are these the right columns?"
    yield "# Seen in the rows. Remove what should not be a label, and add what may come later."
    if not seen.labels:
        yield "# No label was found: declare each as [[labels]] with name and description."
    for name in sorted(seen.labels):
        yield "[[labels]]"
        yield f"name = {_string(name)}  # confirm"
        yield 'description = ""  # fill in: a sentence that says what is meant'
        if seen.family == "tagging":
            yield '# Invent sentences like "Yesterday [words here|TYPE] waited .", all marked.'
            yield "examples = []  # fill in"
        yield ""


def _tasks(seen: Seen) -> Iterator[str]:
    yield "# In the order in which they arrive: confirm it. Without labels a task is about all."
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
    """A name that can be part of a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "own"


def _string(text: str) -> str:
    """As TOML has it: escaped as in JSON, and DEL too. Half a character becomes a question mark."""
    whole = text.encode("utf-8", errors="replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")

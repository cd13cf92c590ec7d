"""Problems of rows: kind, line and message.

A message quotes names (a label, a client), which must be corrected, but never a row's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cslr.data.own.reader.file_format import position

__all__ = ["Kind", "Problem", "Unfit", "described", "quoted"]

Kind = Literal[
    "cut short",
    "damaged file",
    "not UTF-8",
    "NUL byte",
    "line too long",
    "not a row",
    "unclear rows",
    "missing column",
    "wrong type",
    "empty text",
    "empty client",
    "empty person",
    "unknown split",
    "undeclared task",
    "no label",
    "several labels",
    "undeclared label",
    "label not of the task",
    "not BIO",
    "words and tags",
    "person in two clients",
    "person in too many clients",
    "person in train and test",
]

_SHOWN = 60


@dataclass(frozen=True)
class Problem:
    """A row that violates the declaration, or a damaged part of the file."""

    line: int
    kind: Kind
    what: str


class Unfit(Exception):
    """Raised while one row is parsed; ``parse_row`` turns it into a ``Problem``."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.kind: Kind = kind
        self.what = what


def described(path: Path, problem: Problem) -> str:
    """In one line, with the file and the line."""
    return f"{position(path, problem.line)}: {problem.what}"


def quoted(value: object) -> str:
    """A name from a file as it may be printed: escaped, and not longer than a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

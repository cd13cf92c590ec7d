"""A row of a file: line number, and cells by column name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cslr.data.own.parse.problems import quoted
from cslr.data.own.reader.file_format import position
from cslr.errors import DataError

__all__ = ["Raw", "check_columns"]


class Raw(NamedTuple):
    """Not validated: a cell may be anything that the format allows."""

    line: int
    cells: Mapping[str, object]

    def __repr__(self) -> str:
        return f"Raw(line={self.line})"  # cells are private, and a traceback may show values


def check_columns(path: Path, names: Sequence[str], roles: Mapping[str, str]) -> None:
    """Raise an error if the header lacks a required column, even if bad rows are skipped."""
    where = position(path, 1)
    if roles and not names:
        raise DataError(f"{where}: the file is empty; it needs a header with column names")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: column {quoted(twice[0])} is duplicated; give every column its own name"
        )
    for role, name in roles.items():
        if name not in names:
            there = ", ".join(map(quoted, names[:30]))
            raise DataError(
                f"{where}: no column {quoted(name)}, which is declared as {role}; columns in "
                f"the file: {there}. Correct [columns] or delimiter in the declaration"
            )

"""Rows of a JSON Lines file: one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from cslr.data.own.parse.problems import Problem, quoted
from cslr.data.own.reader.lines import Line, lines_of
from cslr.data.own.reader.raw import Raw

__all__ = ["jsonl_rows"]


def jsonl_rows(path: Path) -> Iterator[Raw | Problem]:
    """The object of each line; empty lines are skipped."""
    for line in lines_of(path):
        if line.problem:
            yield line.problem
        elif line.text.strip():
            yield _row(line)


def _row(line: Line) -> Raw | Problem:
    try:
        value = json.loads(line.text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if not line.ended:
            what = "the file ends within this line; use the complete file, or remove the line"
            return Problem(line.number, "cut short", what)
        return Problem(line.number, "not a row", f"not valid JSON ({error})")
    if not isinstance(value, dict):
        return Problem(line.number, "not a row", "not a JSON object")
    return Raw(line.number, value)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object; an error for duplicate keys, because which value is meant is ambiguous."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quoted(twice)} is duplicated")
    return cells

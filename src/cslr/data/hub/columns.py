"""Shared by all conversions: required columns, text cleaning, writing files of lines."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cslr.errors import DataError
from cslr.files import write_atomic

__all__ = ["Lines", "Row", "clean", "column", "json_lines", "write_lines"]

Row = Mapping[str, Any]
Lines = list[str]

_BREAK = re.compile(r"</?(?:br|p|div|li|tr)\b[^<>]*>", re.IGNORECASE)
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>")


def column(row: Row, source: str, *names: str) -> str:
    """Which of these columns the row has."""
    for name in names:
        if name in row:
            return name
    raise DataError(
        f"{source}: no column {' or '.join(names)}, only {', '.join(row)}; give a data set "
        "that has it with --source"
    )


def clean(text: str) -> str:
    """Remove HTML and lone surrogates; collapse each run of white space to one space."""
    text = text.encode(errors="ignore").decode()
    return " ".join(_MARKUP.sub("", _BREAK.sub(" ", html.unescape(text))).split())


def json_lines(rows: Iterable[Row]) -> Lines:
    """One JSON object a line."""
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def write_lines(path: Path, lines: Lines) -> Path:
    """The lines, gzipped without a date, so that the same lines are the same bytes."""
    content = "".join(line + "\n" for line in lines)
    write_atomic(path, gzip.compress(content.encode(), mtime=0))
    return path

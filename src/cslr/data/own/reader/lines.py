"""The lines of a text file, plain or gzipped; a damaged line is reported, not raised.

Bytes are read up to a bound, so that a line of any length costs no more memory than a usual one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from cslr.data.own.parse.problems import Problem
from cslr.data.own.reader.file_format import is_gzip
from cslr.errors import DataError

__all__ = ["LONGEST", "Line", "lines_of"]

LONGEST: Final = 1_000_000
"""Bytes a line (or a Parquet cell) may have."""
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, repr=False)
class Line:
    """PRIVATE. One line without its end.

    For a line that is too long ``text`` is a quote if it leaves a CSV cell open, else empty.
    """

    number: int
    text: str
    problem: Problem | None = None
    ended: bool = True
    """False for the last line of a file that does not end in a newline."""
    comment: bool = False
    """Whether a line that is too long begins with #."""


def lines_of(path: Path) -> Iterator[Line]:
    """Every line, numbered from 1. If the file cannot be read further, the last line says why."""
    with _opened(path) as raw, gzip.open(raw) if is_gzip(path) else raw as file:
        number = 0
        while True:
            number += 1
            try:
                line = _line(file, number)
            except (OSError, EOFError, zlib.error) as error:
                yield Line(number, "", _broken(number, error), ended=False)
                return
            if line is None:
                return
            yield line


def _opened(path: Path) -> BufferedIOBase:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}") from None


def _line(file: BufferedIOBase, number: int) -> Line | None:
    """The next line; None at the end."""
    raw = file.readline(LONGEST + 1)
    if not raw:
        return None
    if len(raw) > LONGEST and not raw.endswith(b"\n"):
        return _too_long(file, number, raw)
    ended = raw.endswith(b"\n")
    if number == 1:
        raw = raw.removeprefix(_BOM)
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    problem = None
    if b"\0" in raw:
        problem = Problem(
            number,
            "NUL byte",
            "the line contains a NUL byte; the file is damaged or not UTF-8 text",
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = raw.decode("utf-8", errors="replace")
        problem = problem or Problem(
            number,
            "not UTF-8",
            f"byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8",
        )
    return Line(number, text, problem, ended)


def _too_long(file: BufferedIOBase, number: int, raw: bytes) -> Line:
    """Skip the rest of a line piece by piece: get its length, and whether a CSV cell is open."""
    length, quotes = len(raw), raw.count(b'"')
    comment = raw.lstrip().startswith(b"#")
    while not raw.endswith(b"\n"):
        raw = file.readline(LONGEST)
        if not raw:
            break
        length, quotes = length + len(raw), quotes + raw.count(b'"')
    ended = raw.endswith(b"\n")
    what = f"the line has {length - ended:,} bytes, more than {LONGEST:,}; shorten it or remove it"
    problem = Problem(number, "line too long", what)
    return Line(number, '"' * (quotes % 2), problem, ended, comment)


def _broken(number: int, error: Exception) -> Problem:
    if isinstance(error, EOFError):
        return Problem(number, "cut short", "the gzip data end early; use the complete file")
    return Problem(
        number, "damaged file", f"cannot be read from here on ({error}); write or download it again"
    )

"""Rows of a CSV file; the first line is the header.

A quoted cell may span several lines. If a line is rejected, the reader still gets its open quotes,
so that one bad line does not shift the rows after it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from cslr.data.own.parse.problems import Problem, described, quoted
from cslr.data.own.reader.lines import LONGEST, Line, lines_of
from cslr.data.own.reader.raw import Raw, check_columns
from cslr.errors import DataError

__all__ = ["csv_delimiter", "csv_rows"]

_DELIMITERS = (",", ";", "\t")


def csv_rows(path: Path, roles: Mapping[str, str], delimiter: str) -> Iterator[Raw | Problem]:
    """Each record by column name; ``roles`` are the required columns."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    refused: list[Problem] = []
    last = [Line(0, "")]
    reader = csv.reader(_fed(path, refused, last), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error:
        no_header = Problem(1, "not a row", "no header; the file is damaged or not CSV")
        raise DataError(described(path, refused[0] if refused else no_header)) from None
    if refused:
        raise DataError(described(path, refused[0]))
    check_columns(path, header, roles)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row: Raw | Problem = _malformed(error, start, last[0])
        else:
            if not cells and not refused:
                continue  # an empty line
            row = _row(cells, header, start, last[0])
        if isinstance(row, Problem) and last[0].number > start:
            yield _unclear(start, last[0], row)
        else:
            yield refused[0] if refused else row
        refused.clear()


def csv_delimiter(path: Path) -> str:
    """The delimiter: whichever of comma, semicolon and tab occurs most often in the header."""
    header = next(lines_of(path), Line(1, "")).text
    counts = Counter(header)
    return max(_DELIMITERS, key=lambda delimiter: counts[delimiter])


def _fed(path: Path, refused: list[Problem], last: list[Line]) -> Iterator[str]:
    """Lines for the csv module; ``refused`` gets their problems, ``last[0]`` is the latest line."""
    for line in lines_of(path):
        last[0] = line
        if line.problem:
            refused.append(line.problem)
        yield line.text + "\n"


def _unclear(start: int, last: Line, problem: Problem) -> Problem:
    """A bad row of several lines: a missing quote may have merged it with other people's rows."""
    what = f"{problem.what}; where rows end is unclear up to line {last.number}"
    return Problem(start, "unclear rows", what)


def _malformed(error: csv.Error, start: int, last: Line) -> Problem:
    if "unexpected end" in str(error):
        return Problem(start, "cut short", "the file ends within a quoted cell that begins here")
    if "field larger" in str(error):
        return Problem(
            start,
            "line too long",
            f"a cell that begins here has more than {LONGEST:,} characters, up to line "
            f"{last.number}; is a quote missing?",
        )
    if "new-line character" in str(error):
        return Problem(start, "not a row", "a carriage return within a line; end lines with LF")
    return Problem(start, "not a row", f"not valid CSV up to line {last.number} ({error})")


def _row(cells: list[str], header: list[str], start: int, last: Line) -> Raw | Problem:
    if len(cells) == len(header):
        return Raw(start, dict(zip(header, cells, strict=True)))
    what = f"{len(cells)} cells where the header {quoted(header)} has {len(header)}"
    if len(cells) < len(header) and not last.ended:
        return Problem(start, "cut short", f"the file ends within this row: {what}")
    return Problem(start, "not a row", what)

"""Parse a row of a file into a row of the declared data set, or report what is wrong with it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from cslr.data.own.parse.cells import name_in
from cslr.data.own.parse.labels import Known, parse_answer
from cslr.data.own.parse.problems import Problem, Unfit, quoted
from cslr.data.own.reader.raw import Raw

__all__ = ["OwnRow", "parse_row"]


@dataclass(frozen=True, slots=True, repr=False)
class OwnRow:
    """One text of one client. Private unless it is test."""

    line: int
    text: str
    answer: tuple[int, ...]
    task: int
    client: str
    """Empty only in a test row that belongs to no client."""
    person: str
    """Empty where no column names people."""
    test: bool


def parse_row(row: Raw, declared: Known) -> OwnRow | Problem:
    """The row, or the first problem with it."""
    try:
        return _row(row, declared)
    except Unfit as unfit:
        return Problem(row.line, unfit.kind, unfit.what)


def _row(row: Raw, declared: Known) -> OwnRow:
    test = _is_test(row, declared)
    task = _task(row, declared)
    text, answer = parse_answer(row, declared, declared.tasks[task])
    client, person = _client(row, declared, test), _person(row, declared)
    return OwnRow(row.line, text, answer, task, client, person, test)


def _is_test(row: Raw, declared: Known) -> bool:
    column = declared.declaration.columns.split
    if column is None:
        return False
    name = name_in(row, column).lower()
    if name not in ("train", "test"):
        raise Unfit("unknown split", f"split {quoted(name)} must be train or test")
    return name == "test"


def _task(row: Raw, declared: Known) -> int:
    column = declared.declaration.columns.task
    if column is None:
        return 0
    name = name_in(row, column)
    number = declared.task_numbers.get(name)
    if number is None:
        raise Unfit("undeclared task", f"task {quoted(name)} is not declared")
    return number


def _client(row: Raw, declared: Known, test: bool) -> str:
    """The client that holds the row. Test rows may have none: they are for evaluation only."""
    column = declared.declaration.columns.client
    if test and column not in row.cells:  # JSON and CoNLL rows may lack a column
        return ""
    name = unicodedata.normalize("NFC", name_in(row, column))
    if not name and not test:
        raise Unfit(
            "empty client", f"column {quoted(column)} is empty; give the client that holds the row"
        )
    return name


def _person(row: Raw, declared: Known) -> str:
    column = declared.declaration.columns.person
    if column is None:
        return ""
    name = unicodedata.normalize("NFC", name_in(row, column))
    if not name:
        raise Unfit(
            "empty person", f"column {quoted(column)} is empty; give the person the row is about"
        )
    return name

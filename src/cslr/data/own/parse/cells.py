"""Parse a cell of any file format as a text, a name, or a list of names."""

from __future__ import annotations

import json

from cslr.data.own.parse.problems import Unfit, quoted
from cslr.data.own.reader.raw import Raw

__all__ = ["name_in", "names_in", "text_in", "words_in"]


def text_in(row: Raw, column: str) -> str:
    """The text, unchanged."""
    value = _cell(row, column)
    if not isinstance(value, str | None):
        raise Unfit("wrong type", f"column {quoted(column)} contains {_type(value)}, not a string")
    text = _clean(value or "", column)
    if not text.strip():
        raise Unfit("empty text", f"column {quoted(column)} is empty; fill it in or remove the row")
    return text


def words_in(row: Raw, column: str) -> tuple[str, ...]:
    """The words of a sentence: a list of them, or a text with white space between them."""
    value = _cell(row, column)
    if not isinstance(value, list):
        return tuple(text_in(row, column).split())
    words = tuple(_clean(word, column) if isinstance(word, str) else "" for word in value)
    if not words:
        raise Unfit("empty text", f"column {quoted(column)} is empty; fill it in or remove the row")
    for number, word in enumerate(words, start=1):
        if word.split() != [word]:
            raise Unfit(
                "words and tags", f"word {number} is empty, contains a space or is not a string"
            )
    return words


def name_in(row: Raw, column: str) -> str:
    """One name without white space around it; empty if the cell is empty."""
    return _name(_cell(row, column), column)


def names_in(row: Raw, column: str, separator: str) -> tuple[str, ...]:
    """The names of a list, a JSON list in a string, or a string with separators."""
    value = _cell(row, column)
    if isinstance(value, str):
        listed = _json_list(value)
        value = value.split(separator) if listed is None else listed
    values = value if isinstance(value, list) else [value]
    names = [_name(each, column) for each in values]
    return tuple(name for name in names if name)


def _cell(row: Raw, column: str) -> object:
    if column not in row.cells:
        raise Unfit("missing column", f"the row has no column {quoted(column)}")
    return row.cells[column]


def _name(value: object, column: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _clean(value, column).strip()
    if type(value) is int:
        return str(value)
    raise Unfit(
        "wrong type",
        f"column {quoted(column)} contains {_type(value)}, not a name or a whole number",
    )


def _json_list(text: str) -> list[object] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _clean(text: str, column: str) -> str:
    """Raise an error for characters that JSON and Parquet allow but texts must not contain."""
    if "\0" in text:
        raise Unfit(
            "NUL byte", f"column {quoted(column)} contains a NUL character; the file is damaged"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        what = (
            f"column {quoted(column)} contains an unpaired surrogate; write the file again as UTF-8"
        )
        raise Unfit("not UTF-8", what) from None
    return text


def _type(value: object) -> str:
    return f"a {type(value).__name__}"

"""The unvalidated rows of a file of any supported format, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cslr.data.own.formats.conll import conll_rows
from cslr.data.own.formats.csv import csv_rows
from cslr.data.own.formats.jsonl import jsonl_rows
from cslr.data.own.formats.parquet import parquet_rows
from cslr.data.own.parse.problems import Problem
from cslr.data.own.reader.file_format import format_of
from cslr.data.own.reader.raw import Raw

__all__ = ["raw_rows"]


def raw_rows(path: Path, roles: Mapping[str, str], delimiter: str = ",") -> Iterator[Raw | Problem]:
    """(line number, cells by column) of each row, or what is wrong with the row.

    roles: the required columns, by role; a file whose header lacks one raises an error at once.
    At most one row, or one batch of Parquet rows, is in memory.
    """
    match format_of(path):
        case "csv":
            return csv_rows(path, roles, delimiter)
        case "jsonl":
            return jsonl_rows(path)
        case "parquet":
            return parquet_rows(path, roles)
        case "conll":
            return conll_rows(path)

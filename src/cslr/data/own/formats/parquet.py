"""Rows of a Parquet file, a batch at a time. Needs pyarrow, which is an extra."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cslr.data.own.parse.problems import Problem
from cslr.data.own.reader.lines import LONGEST
from cslr.data.own.reader.raw import Raw, check_columns
from cslr.errors import ConfigError, DataError

__all__ = ["parquet_rows"]

_BATCH: Final = 1_000


def parquet_rows(path: Path, roles: Mapping[str, str]) -> Iterator[Raw | Problem]:
    """Each row under the schema's names, numbered from 1; only the columns of ``roles`` if any."""
    arrow, parquet = _pyarrow()
    failures = (arrow.ArrowException, OSError, ValueError, OverflowError, MemoryError)
    done = 0
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            names = [str(name) for name in file.schema_arrow.names]
            check_columns(path, names, roles)
            columns = sorted(set(roles.values())) or None
            for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
                yield from _rows(batch, done + 1, failures)
                done += len(batch)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} cannot be opened: file not found") from None
    except failures as error:
        if done == 0:
            what = str(error).split("\n")[0]
            raise DataError(
                f"{path} cannot be read as Parquet ({what}); write or download it again"
            ) from None
        yield Problem(done + 1, "damaged file", "the file cannot be read from here on")


def _rows(batch: Any, first: int, failures: tuple[Any, ...]) -> Iterator[Raw | Problem]:
    """The rows of a batch; converted one by one if the batch has an unreadable cell."""
    try:
        rows: list[dict[str, object]] = batch.to_pylist()
    except failures:
        for index in range(len(batch)):
            yield _single(batch.slice(index, 1), first + index, failures)
        return
    for number, cells in enumerate(rows, start=first):
        yield _bounded(Raw(number, cells))


def _single(batch: Any, number: int, failures: tuple[Any, ...]) -> Raw | Problem:
    try:
        return _bounded(Raw(number, batch.to_pylist()[0]))
    except UnicodeDecodeError:
        return Problem(
            number, "not UTF-8", "a cell is not valid UTF-8; write the file again as UTF-8"
        )
    except failures as error:
        return Problem(number, "not a row", f"a cell cannot be read ({error})")


def _bounded(row: Raw) -> Raw | Problem:
    """The row, unless it is longer than a line may be."""
    length = sum(len(cell) for cell in row.cells.values() if isinstance(cell, str | bytes))
    if length <= LONGEST:
        return row
    what = f"the row has {length:,} characters, more than {LONGEST:,}; shorten it or remove it"
    return Problem(row.line, "line too long", what)


def _pyarrow() -> tuple[Any, Any]:
    """Imported only when a Parquet file is read."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            'reading Parquet requires pyarrow: pip install "cslr[parquet]", or save the rows '
            "as CSV or JSONL"
        ) from None

"""Shared by all streams that are read from a data directory.

Which rows a run uses is decided by a hash of the stream's prefix and the text (or dialogue,
document), so it depends on neither seeds nor results. ``subset`` is what scores are reported on;
``held-out`` consists of train rows outside it, for choosing settings, and never opens the test
file; ``all`` is everything.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from cslr.data.stream import Row
from cslr.errors import ConfigError, DataError

__all__ = [
    "Sizes",
    "data_directory",
    "gzip_lines",
    "hash_of",
    "in_hash_order",
    "leaving_some",
    "parts",
    "public_sentences",
    "text_lines",
    "unknown_rows",
]

_PUBLIC = "anchors/wikipedia_sentences.txt.gz"


@dataclass(frozen=True)
class Sizes:
    """How many rows (or dialogues) of each kind are used, and how many public sentences."""

    train: int
    test: int
    held_out_train: int
    held_out_test: int
    public: int = 10_000


Read = Callable[[Path], list[Row]]
Choose = Callable[[list[Row], int, int, Path], list[Row]]
"""For each kind of row those from start to stop in hash order."""


def parts(
    folder: Path, rows: str, sizes: Sizes, read: Read, choose: Choose
) -> tuple[list[Row], list[Row]]:
    """The train and the test rows that ``rows`` stands for."""
    train, test = folder / "train.jsonl.gz", folder / "test.jsonl.gz"
    if rows == "all":
        return read(train), read(test)
    if rows == "subset":
        return (
            choose(read(train), 0, sizes.train, train),
            choose(read(test), 0, sizes.test, test),
        )
    if rows == "held-out":
        unused, middle = read(train), sizes.train + sizes.held_out_train
        return (
            choose(unused, sizes.train, middle, train),
            choose(unused, middle, middle + sizes.held_out_test, train),
        )
    raise unknown_rows(rows)


def unknown_rows(rows: str) -> ConfigError:
    """The error for an unknown choice of rows."""
    return ConfigError(f"unknown --rows {rows!r}; use subset, held-out or all")


def hash_of(prefix: bytes, text: str) -> bytes:
    """SHA-256(prefix NUL text), by which rows, dialogues and documents are ordered."""
    return hashlib.sha256(prefix + b"\0" + text.encode()).digest()


def in_hash_order(rows: list[Row], prefix: bytes) -> list[Row]:
    """The rows ordered by SHA-256(prefix NUL text)."""
    return sorted(rows, key=lambda row: hash_of(prefix, row.text))


def leaving_some(count: int, available: int) -> int:
    """``count``, but at most three fifths of what is available, so that some is left to hold out.

    At least 1.
    """
    return min(count, max(1, 3 * available // 5))


def data_directory(
    data: Path | None,
    stream: str,
    folder: str,
    names: tuple[str, ...] = ("train.jsonl.gz", "test.jsonl.gz"),
) -> Path:
    """``data`` if it is a directory; otherwise an error that names the files ``stream`` needs."""
    wanted = ", ".join([*(str(Path(folder, name)) for name in names), _PUBLIC])
    if data is None:
        raise DataError(f"stream {stream!r} is not embedded; give --data DIR with {wanted}")
    if not data.is_dir():
        raise DataError(f"data directory {data} does not exist; give --data DIR with {wanted}")
    return data


def public_sentences(directory: Path, count: int) -> tuple[str, ...]:
    """The first ``count`` sentences; the file is in hash order, so they are a random sample."""
    path = directory / _PUBLIC
    sentences = tuple(line.strip() for line in islice(gzip_lines(path), count))
    if not sentences:
        raise DataError(f"{path} contains no sentence; the public corpus must not be empty")
    return sentences


def gzip_lines(path: Path) -> Iterator[str]:
    """The lines of a gzipped text file; an error names the line at which it occurred."""
    return _lines(path, lambda: gzip.open(path, "rt", encoding="utf-8", newline="\n"))


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped if its name ends in .gz; a byte order mark is dropped."""
    if path.suffix == ".gz":
        return gzip_lines(path)
    return _lines(path, lambda: path.open(encoding="utf-8-sig", newline="\n"))


def _lines(path: Path, opened: Callable[[], TextIO]) -> Iterator[str]:
    read = 0
    try:
        with opened() as file:
            for line in file:
                read += 1
                yield line
    except FileNotFoundError as error:
        raise DataError(f"file {path} does not exist; give --data DIR that contains it") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}, after line {read}: cannot be read ({error}); download the file again"
        ) from error

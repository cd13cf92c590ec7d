"""Reading a data directory: what streams that are not embedded have in common."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cslr.errors import DataError

__all__ = ["data_directory", "gzip_lines", "public_sentences"]

_PUBLIC = "anchors/wikipedia_sentences.txt.gz"


def data_directory(data: Path | None, stream: str, folder: str) -> Path:
    """``data`` if it is a directory; else told what ``stream`` looks for in one."""
    wanted = f"{folder}/train.jsonl.gz, {folder}/test.jsonl.gz, {_PUBLIC}"
    if data is None:
        raise DataError(f"stream {stream!r} is not embedded; give --data DIR that holds {wanted}")
    if not data.is_dir():
        raise DataError(f"no data directory {data}; give --data DIR that holds {wanted}")
    return data


def public_sentences(directory: Path, count: int) -> tuple[str, ...]:
    """The first ``count`` sentences; the file is in hash order, so they are a random sample."""
    path = directory / _PUBLIC
    sentences = tuple(line.strip() for line in islice(gzip_lines(path), count))
    if not sentences:
        raise DataError(f"{path} holds no sentence; the public corpus may not be empty")
    return sentences


def gzip_lines(path: Path) -> Iterator[str]:
    """The lines of a gzipped text file; damage is told with the line it was met at."""
    read = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            for line in file:
                read += 1
                yield line
    except FileNotFoundError as error:
        raise DataError(f"no file {path}; give --data DIR that holds it") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}, after line {read}: cannot be read ({error}); get the file again"
        ) from error

"""The format of a data file, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

from cslr.errors import DataError

__all__ = ["Format", "counted", "format_of", "is_gzip", "position", "stem_of"]

Format = Literal["csv", "jsonl", "parquet", "conll"]

_GZIP: Final = ".gz"


def format_of(path: Path) -> Format:
    """The format by the last suffix other than ``.gz``. Parquet compresses itself: no ``.gz``."""
    ending = _plain(path).suffix.removeprefix(".").lower()
    ending = "csv" if ending == "tsv" else ending  # the delimiter is declared, not in the name
    for name in get_args(Format):
        if ending == name and not (name == "parquet" and is_gzip(path)):
            return name  # type: ignore[no-any-return]
    raise DataError(
        f"{path}: unsupported file name extension; use .csv, .tsv, .jsonl, .conll (each also "
        "with .gz) or .parquet"
    )


def is_gzip(path: Path) -> bool:
    """Whether the file name ends in .gz."""
    return path.suffix.lower() == _GZIP


def stem_of(path: Path) -> str:
    """The name without its ending: reviews.csv.gz -> reviews."""
    return _plain(path).stem


def position(path: Path, number: int) -> str:
    """The position of a row, for messages."""
    return f"{path}, {counted(path)} {number}"


def counted(path: Path) -> str:
    """The unit of positions: lines, or rows for Parquet."""
    return "row" if path.suffix.lower() == ".parquet" else "line"


def _plain(path: Path) -> Path:
    return path.with_suffix("") if is_gzip(path) else path

"""Read rows of a hub data set or of a directory with the library ``datasets``.

Checked with datasets 5.2. Since version 4 it runs no loading scripts, so only data sets that are
plain files (Parquet, JSON) can be loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cslr.data.hub.columns import Row
from cslr.errors import ConfigError, DataError

__all__ = ["quiet", "split_of", "splits"]


def splits(source: str, builder: str | None = None, **arguments: Any) -> dict[str, Iterator[Row]]:
    """Every split of ``source`` by name, read row by row.

    ``builder`` is a file format of ``datasets`` for sources that are named by ``data_files``.
    """
    datasets = _library()
    path, config = _parse(source)
    try:
        loaded = datasets.load_dataset(builder or path, name=config, **arguments)
    except Exception as error:  # the library raises a dozen unrelated kinds
        raise _unavailable(source, error) from error
    return {str(name): _read(rows, source) for name, rows in loaded.items()}


def split_of(available: dict[str, Iterator[Row]], source: str, *names: str) -> Iterator[Row]:
    """The split that has one of these names."""
    for name in names:
        if name in available:
            return available[name]
    raise DataError(
        f"{source}: no split {' or '.join(names)}, only {', '.join(available)}; give a complete "
        "copy with --source"
    )


@contextmanager
def quiet(progress: bool) -> Iterator[None]:
    """Turn off bars and warnings of the hub's libraries, unless ``progress``; restored after."""
    try:
        modules = [_library(), importlib.import_module("huggingface_hub.utils")]
    except ConfigError:
        modules = []  # a source that needs no library may still be read
    with ExitStack() as undo:
        for module in () if progress else modules:
            if not module.are_progress_bars_disabled():
                module.disable_progress_bars()
                undo.callback(module.enable_progress_bars)
            logging = importlib.import_module(f"{module.__name__.partition('.')[0]}.utils.logging")
            undo.callback(logging.set_verbosity, logging.get_verbosity())
            logging.set_verbosity_error()
        yield


def _library() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            f'fetching data sets requires the package datasets ({error}): pip install "cslr[hub]"'
        ) from error


def _parse(source: str) -> tuple[str, str | None]:
    """Path or id, and configuration; the colon may also be part of a directory's name."""
    path, colon, config = source.partition(":")
    return (path, config) if colon and not Path(source).exists() else (source, None)


def _read(rows: Any, source: str) -> Iterator[Row]:
    """The rows; any error while reading (a connection, a damaged file) becomes a ``DataError``."""
    try:
        yield from rows
    except Exception as error:
        raise _unavailable(source, error) from error


def _unavailable(source: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    if Path(source).is_dir():
        return DataError(f"{source}: cannot be read as a data set ({reason}); repair it")
    return DataError(
        f"data set {source!r} cannot be downloaded ({reason}); check the connection and the "
        "name (ID or ID:CONFIG), or download the files yourself and give their directory "
        "with --source DIR"
    )

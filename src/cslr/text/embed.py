"""Embed texts through the cache: cached vectors are looked up, the others encoded and stored.

A text becomes one row or several, one below the other; ``starts`` (n + 1,) says where the rows of
each text begin. Sentences have one row each, tagged sentences one a word. A long job is cut into
batches of similar length, and a bar shows how far it is.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import EncoderError
from cslr.text.cache import EmbeddingCache

__all__ = [
    "PIECE",
    "Recipe",
    "are_independent",
    "embed_rows",
    "progress_bar",
    "slices",
    "starts_of",
    "unit_rows",
]

_CHUNK = 4096  # texts between two writes to the cache

PIECE: Final = 256  # texts between two movements of the bar; also when a bar is worth showing

_EVERY: Final = 10.0  # seconds between two lines in a log

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Recipe:
    """How texts become rows, and the cache keys of each text's rows."""

    encoder: str
    """The encoder's id."""
    encode: Callable[[list[str]], FloatArray]
    """The rows of all texts given, one below the other, float32."""
    keys: Callable[[str], list[str]]
    """One key a row of a text; never empty."""
    together: bool = False
    """Whether a row depends on its text alone however many are given; if not, one text is."""
    row: str = "text"
    """What a row stands for."""
    dtype: type[np.float32] | type[np.float16] = np.float32
    """What is kept of a vector. Fresh ones are rounded too, so they equal those read back."""


def embed_rows(
    texts: Sequence[str], recipe: Recipe, cache: EmbeddingCache | None, progress: bool
) -> tuple[FloatArray, IntArray]:
    """All rows (total, d) float32 in the order of at least one text, and their starts (n + 1,).

    Equal texts are encoded once. Long jobs are stored as they go, so that an interruption loses
    at most 4,096 texts' work.
    """
    place_of = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    distinct = list(place_of)
    places = np.array([place_of[text] for text in texts])
    _, first = np.unique(places, return_index=True)  # where each distinct text stands
    keys = [recipe.keys(text) for text in distinct]
    starts = starts_of(keys)
    whole, cached = _look_up(keys, starts, recipe, cache)
    table = cached
    if not whole.all():
        missing = np.flatnonzero(~whole)
        fresh = _encode_missing(
            [distinct[index] for index in missing],
            [keys[index] for index in missing],
            first[missing],
            recipe,
            cache,
            progress,
        )
        table = _merge(np.repeat(whole, np.diff(starts)), cached, fresh, recipe, cache)
    if len(distinct) == len(texts):
        return table, starts
    rows = _rows_of(starts, places)
    return np.take(table, rows, axis=0), starts_of([keys[index] for index in places])


def are_independent(encoder: object) -> bool:
    """Whether an encoder promises that a row depends on its text alone, whatever is beside it."""
    return getattr(encoder, "rows_independent", False) is True


def starts_of(parts: Sequence[Sized]) -> IntArray:
    """(n + 1,) the offset of each part in the concatenation of all, and the total length."""
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)


def unit_rows(vectors: FloatArray, starts: IntArray, encoder_id: str) -> FloatArray:
    """(rows, d) float32 of unit norm; raises ``EncoderError`` for zero or non-finite vectors."""
    # A sum along the last axis of a plain array: a buffered einsum would split rows by their place.
    norms = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(bad):
        text = int(_texts_of(starts, bad)[0])
        raise EncoderError(_gave_unusable(encoder_id, text)) from _UnusableVectorError(text)
    unit: FloatArray = np.empty(vectors.shape, dtype=np.float32)
    np.divide(vectors, norms[:, None], out=unit, casting="same_kind")
    return unit


class _UnusableVectorError(Exception):
    """The index, in the argument of ``encode``, of a text with an unusable vector."""

    def __init__(self, text: int) -> None:
        super().__init__(text)
        self.text = text


def _look_up(
    keys: list[list[str]], starts: IntArray, recipe: Recipe, cache: EmbeddingCache | None
) -> tuple[BoolArray, FloatArray]:
    """Which texts (n,) have all their rows cached, and those rows (hits, d)."""
    if cache is None:
        return np.zeros(len(keys), dtype=np.bool_), np.empty((0, 0), dtype=np.float32)
    cached, vectors = cache.lookup(recipe.encoder, [key for part in keys for key in part])
    whole = np.logical_and.reduceat(cached, starts[:-1])
    wanted = np.repeat(whole, np.diff(starts))
    return whole, vectors if np.array_equal(cached, wanted) else vectors[wanted[cached]]


def _encode_missing(
    texts: list[str],
    keys: list[list[str]],
    places: IntArray,
    recipe: Recipe,
    cache: EmbeddingCache | None,
    progress: bool,
) -> FloatArray:
    """Encode and store texts, which have the indices ``places`` (n,) in the caller's list."""
    starts = starts_of(keys)
    vectors: FloatArray = np.empty((starts[-1], 0), dtype=recipe.dtype)
    with progress_bar(len(texts), progress) as bar:
        for chunk in slices(list(range(len(texts))), _CHUNK):
            # Texts of similar length together: encoders make batches of equally many tokens.
            for piece in slices(sorted(chunk, key=lambda index: len(texts[index])), PIECE):
                for part in [piece] if recipe.together else slices(piece, 1):
                    rows = _rows_of(starts, np.array(part))
                    fresh = _encode([texts[index] for index in part], rows, places[part], recipe)
                    if not vectors.shape[1]:
                        vectors = np.empty((starts[-1], fresh.shape[1]), dtype=recipe.dtype)
                    vectors[rows] = fresh
                bar.advance(len(piece))
            if cache is not None:
                done = vectors[_rows_of(starts, np.array(chunk))]
                cache.store(recipe.encoder, [key for index in chunk for key in keys[index]], done)
    return vectors


def _encode(texts: list[str], rows: IntArray, places: IntArray, recipe: Recipe) -> FloatArray:
    """(rows, d) of some texts, checked; places (n,): their indices in the caller's list."""
    try:
        vectors = recipe.encode(texts)
    except EncoderError as error:
        if isinstance(error.__cause__, _UnusableVectorError):
            text = int(places[error.__cause__.text])
            raise EncoderError(_gave_unusable(recipe.encoder, text)) from error
        raise
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise EncoderError(
            f"encoder {recipe.encoder} returned an array of shape {vectors.shape} for {len(rows)} "
            f"{recipe.row}s; its encode must return one row per {recipe.row}"
        )
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        counts = [len(recipe.keys(text)) for text in texts]
        text = int(places[np.repeat(np.arange(len(texts)), counts)[bad[0]]])
        raise EncoderError(_gave_unusable(recipe.encoder, text))
    return vectors


def _gave_unusable(encoder_id: str, text: int) -> str:
    return (
        f"encoder {encoder_id} returned a vector that is not finite or all zero for text "
        f"{text} (counted from 0); check that text, or choose another encoder with --encoder"
    )


def _merge(
    is_cached: BoolArray,
    cached: FloatArray,
    fresh: FloatArray,
    recipe: Recipe,
    cache: EmbeddingCache | None,
) -> FloatArray:
    """Cached and fresh rows in one table (rows, d), in the order of ``is_cached`` (rows,)."""
    if cache is not None and is_cached.any() and cached.shape[1] != fresh.shape[1]:
        raise EncoderError(
            f"encoder {recipe.encoder} returns {fresh.shape[1]} dimensions, but its cached "
            f"vectors have {cached.shape[1]}; delete {cache.folder(recipe.encoder)} and run "
            "again"
        )
    table = np.empty((len(is_cached), fresh.shape[1]), dtype=np.float32)
    table[~is_cached] = fresh
    if is_cached.any():
        table[is_cached] = cached
    return table


def _rows_of(starts: IntArray, places: IntArray) -> IntArray:
    """The rows of the texts at ``places``, one text's after the other's."""
    counts = np.diff(starts)[places]
    ends = np.cumsum(counts)
    rows: IntArray = np.arange(ends[-1]) + np.repeat(starts[places] - (ends - counts), counts)
    return rows


def _texts_of(starts: IntArray, rows: IntArray) -> IntArray:
    """Which text each of the rows belongs to."""
    return np.searchsorted(starts, rows, side="right").astype(np.int64) - 1


def slices(items: list[_Item], size: int) -> Iterator[list[_Item]]:
    """The items in lists of ``size``, the last perhaps shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))


class Bar:
    """A progress bar, or nothing; ``advance`` works for both."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def advance(self, texts: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, texts)


class LineBar(Bar):
    """A line on stderr at the beginning, and one every ten seconds."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._count, self._done, self._last = total, 0, -math.inf
        self.advance(0)

    def advance(self, texts: int) -> None:
        self._done += texts
        if time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            print(f"encoding texts: {self._done}/{self._count}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress_bar(total: int, wanted: bool) -> Iterator[Bar]:
    """A bar on stderr for jobs long enough to wait for; a line now and then in logs and pipes."""
    if not wanted or total <= PIECE:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineBar(total)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, progress.add_task("encoding texts", total=total))

"""A disk cache of embeddings, keyed by encoder and text, so that no text is encoded twice.

A cache has one folder per encoder, a folder contains segments, and a segment is a safetensors file

    keys     (n, 16) uint8      sha256(encoder id, NUL, text)[:16], sorted
    vectors  (n, d)  float32    the embedding of the text behind each key (or float16)

whose file name is the SHA-256 of its own bytes. A segment is therefore never changed, only added
or removed, and every read from disk verifies it.

Writers need no lock. A segment appears whole (temporary file, fsync, ``os.replace``) or not at
all, and compaction writes the union before it removes the parts, so a reader that loses a race
lists the folder again. At worst a vector is lost and encoded once more.

Private: an embedding reveals much about its text, and a file's size the number of texts. Only the
owner can read files and list folders; protect a cache as you protect the texts.

``embed_rows`` embeds texts through the cache: cached vectors are looked up, the others are encoded
and stored. A text has one row or several; the rows of all texts are concatenated, and ``starts``
(n + 1,) says where those of each text begin. Sentences have one row each, sentences for tagging one
per word. A long job is cut into batches of texts of similar length and shows its progress.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_dir
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import CacheCorrupted, ConfigError, EncoderError
from cslr.files import PRIVATE_FOLDER, write_atomic
from cslr.text.progress_bar import PIECE, progress_bar

__all__ = [
    "EmbeddingCache",
    "Recipe",
    "are_independent",
    "cache_root",
    "default_directory",
    "embed_rows",
    "slices",
    "starts_of",
    "unit_rows",
]

_ARITHMETIC = "batches of eight"
"""How vectors are computed, part of each folder's name: another way would round differently."""
_KEY_BYTES = 16
_MOST_SEGMENTS = 32
_MOST_RACES = 100
_DTYPES = (np.float32, np.float16)
_SEGMENT_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")


def cache_root() -> Path:
    """``$CSLR_CACHE_DIR`` if that is set, else the user's cache directory."""
    return Path(os.environ.get("CSLR_CACHE_DIR") or user_cache_dir("cslr"))


def default_directory(part: Literal["public", "private"] = "private") -> Path:
    """The default cache directory; public texts have their own, separate from clients' texts."""
    return cache_root() / "embeddings" / part


@dataclass(frozen=True, eq=False)
class _Segment:
    """Sorted keys (n,) of 16 raw bytes each, and their vectors (n, d)."""

    keys: NDArray[np.void]
    vectors: FloatArray


class EmbeddingCache:
    """Vectors by (encoder, text) in ``directory``; default: ``default_directory()``.

    Segments that were read and verified are kept in memory: they cannot change under their name.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = default_directory() if directory is None else Path(directory)
        self._verified: dict[Path, _Segment] = {}

    def folder(self, encoder_id: str) -> Path:
        """The folder of one encoder's segments; the name is readable and unique."""
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", encoder_id)[:48].strip(".-")
        digest = hashlib.sha256(f"{_ARITHMETIC}\0{encoder_id}".encode()).hexdigest()
        return self.directory / f"{readable}-{digest[:8]}"

    def lookup(self, encoder_id: str, texts: Sequence[str]) -> tuple[BoolArray, FloatArray]:
        """Which texts (n,) are cached, and their vectors (hits, d), in the order given."""
        keys = _keys(encoder_id, texts)
        cached = np.zeros(len(keys), dtype=np.bool_)
        segments = self._segments(self.folder(encoder_id))
        dimension = segments[0].vectors.shape[1] if segments else 0
        vectors = np.empty((len(keys), dimension), dtype=np.float32)
        for segment in segments:
            index = np.searchsorted(segment.keys, keys)
            index[index == len(segment.keys)] = 0
            here = ~cached & (segment.keys[index] == keys)
            vectors[here] = segment.vectors[index[here]]
            cached |= here
        return cached, vectors[cached]

    def store(self, encoder_id: str, texts: Sequence[str], vectors: FloatArray) -> None:
        """Add the vectors (n, d) of n texts as one segment, and compact when there are many.

        float16 is kept as it is, which halves the file; anything else becomes float32. What is
        looked up is always float32.
        """
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(
                f"vectors must have shape ({len(texts)}, d), one row per text, not {vectors.shape}"
            )
        if not len(texts):
            return
        folder = self.folder(encoder_id)
        _write(folder, _segment(_keys(encoder_id, texts), vectors))
        if len(_names(folder)) > _MOST_SEGMENTS:
            self._compact(folder)

    def _segments(self, folder: Path) -> list[_Segment]:
        """All segments of a folder, by name; listed again if a compaction removed one meanwhile."""
        for _ in range(_MOST_RACES):
            names = _names(folder)
            with suppress(FileNotFoundError):
                self._verify(folder, names)
                segments = [self._verified[path] for path in names]
                if len({segment.vectors.shape[1] for segment in segments}) > 1:
                    raise CacheCorrupted(
                        f"{folder} contains vectors of different dimensions, probably because "
                        "the model changed under the same name; delete that folder and run "
                        "again"
                    )
                return segments
        raise CacheCorrupted(f"{folder} lists files that do not exist; delete it and run again")

    def _verify(self, folder: Path, names: list[Path]) -> None:
        """Read and verify new segments of a folder, and forget those that were removed."""
        for path in names:
            if path not in self._verified:
                self._verified[path] = _read(path)
        for gone in {path for path in self._verified if path.parent == folder} - set(names):
            del self._verified[gone]

    def _compact(self, folder: Path) -> None:
        """Replace the segments by their union; the union is on disk before a part is removed."""
        parts = _names(folder)
        segments = self._segments(folder)
        union = _write(
            folder,
            _segment(
                np.concatenate([segment.keys for segment in segments]),
                np.concatenate([segment.vectors for segment in segments]),
            ),
        )
        for part in parts:
            if part != union:
                part.unlink(missing_ok=True)


def _keys(encoder_id: str, texts: Iterable[str]) -> NDArray[np.void]:
    """(n,) keys of 16 raw bytes; they compare as byte strings do."""
    prefix = hashlib.sha256(encoder_id.encode() + b"\0")
    digests = []
    for text in texts:
        digest = prefix.copy()
        digest.update(text.encode("utf-8", "surrogatepass"))
        digests.append(digest.digest()[:_KEY_BYTES])
    return np.frombuffer(b"".join(digests), dtype=f"V{_KEY_BYTES}")


def _segment(keys: NDArray[np.void], vectors: FloatArray) -> _Segment:
    """Rows sorted by key; of equal keys the first is kept."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    dtype = np.float16 if vectors.dtype == np.float16 else np.float32
    return _Segment(keys[first], np.ascontiguousarray(vectors[order][first], dtype=dtype))


def _names(folder: Path) -> list[Path]:
    """The segments of a folder; leftovers of crashed writers have other names."""
    try:
        return sorted(path for path in folder.iterdir() if _SEGMENT_NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []


def _read(path: Path) -> _Segment:
    """A verified segment; raises ``CacheCorrupted`` if the content does not match the file name."""
    damaged = CacheCorrupted(
        f"cached embeddings {path} do not match the checksum in their name (truncated or "
        "altered); delete that file and run again to encode its texts again"
    )
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(path.parent, error) from error
    if hashlib.sha256(content).hexdigest() != path.stem:
        raise damaged
    try:
        tensors = load_tensors(content)
        keys, vectors = tensors["keys"], tensors["vectors"]
    except (SafetensorError, KeyError) as error:
        raise damaged from error
    if keys.dtype != np.uint8 or keys.shape[1:] != (_KEY_BYTES,) or vectors.dtype not in _DTYPES:
        raise damaged
    if vectors.ndim != 2 or len(vectors) != len(keys) or not len(keys):
        raise damaged
    return _Segment(np.ascontiguousarray(keys).view(f"V{_KEY_BYTES}").ravel(), vectors)


def _write(folder: Path, segment: _Segment) -> Path:
    """Write a segment atomically: a reader sees all of it or nothing."""
    keys = np.ascontiguousarray(segment.keys).view(np.uint8).reshape(-1, _KEY_BYTES)
    content = save_tensors({"keys": keys, "vectors": segment.vectors})
    path = folder / f"{hashlib.sha256(content).hexdigest()}.safetensors"
    try:
        write_atomic(path, content, PRIVATE_FOLDER)
        _close_to_others(folder)
    except OSError as error:
        raise _unusable(folder, error) from error
    return path


def _close_to_others(folder: Path) -> None:
    """Restrict a folder that an earlier version created: file sizes reveal the number of texts."""
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        folder.chmod(PRIVATE_FOLDER)


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the embedding cache {folder} cannot be used ({error.strerror or error}); set "
        "CSLR_CACHE_DIR to a writable directory"
    )


# -- embedding through the cache -------------------------------------------------------------------

_CHUNK = 4096  # texts between two writes to the cache

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Recipe:
    """How texts become rows, and the cache keys of each text's rows."""

    encoder: str
    """The encoder's id."""
    encode: Callable[[list[str]], FloatArray]
    """The rows of all given texts, concatenated, float32."""
    keys: Callable[[str], list[str]]
    """The cache keys of a text, one per row; never empty."""
    together: bool = False
    """Whether texts may be encoded in batches, because no text affects another's rows."""
    row: str = "text"
    """What a row stands for, in messages."""
    dtype: type[np.float32] | type[np.float16] = np.float32
    """The precision of the cache. Fresh vectors are rounded too, so they equal cached ones."""


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
    _, first = np.unique(places, return_index=True)  # the first index of each distinct text
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
    """Whether an encoder promises that a row depends on its text alone, not on the batch."""
    return getattr(encoder, "rows_independent", False) is True


def starts_of(parts: Sequence[Sized]) -> IntArray:
    """(n + 1,) the offset of each part in the concatenation of all, and the total length."""
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)


def unit_rows(vectors: FloatArray, starts: IntArray, encoder_id: str) -> FloatArray:
    """(rows, d) float32 of unit norm; raises ``EncoderError`` for zero or non-finite vectors."""
    # A sum along the last axis: einsum's buffers would make rounding depend on a row's position.
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
            # Texts of similar length together: encoders batch texts with equally many tokens.
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
    """The indices of the rows of the texts at ``places``, text by text."""
    counts = np.diff(starts)[places]
    ends = np.cumsum(counts)
    rows: IntArray = np.arange(ends[-1]) + np.repeat(starts[places] - (ends - counts), counts)
    return rows


def _texts_of(starts: IntArray, rows: IntArray) -> IntArray:
    """The index of the text that each of the rows belongs to."""
    return np.searchsorted(starts, rows, side="right").astype(np.int64) - 1


def slices(items: list[_Item], size: int) -> Iterator[list[_Item]]:
    """The items in lists of ``size``, the last perhaps shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))

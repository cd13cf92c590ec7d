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
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_dir
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from cslr.arrays import BoolArray, FloatArray
from cslr.errors import CacheCorrupted, ConfigError
from cslr.files import PRIVATE_FOLDER, write_atomic

__all__ = ["EmbeddingCache", "cache_root", "default_directory"]

_ARITHMETIC = "batches of eight"
"""How vectors are computed. Another way rounds differently, so it gets folders of its own."""
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
        vectors = np.empty((len(keys), _dimension(segments)), dtype=np.float32)
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
        """All segments of a folder, by name; listed anew if a compaction removed one meanwhile."""
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
        """Read what is new in a folder and forget what is gone from it."""
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


def _dimension(segments: Sequence[_Segment]) -> int:
    return segments[0].vectors.shape[1] if segments else 0


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

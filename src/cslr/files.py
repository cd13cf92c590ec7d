"""Atomic and durable writes: a file is on disk as a whole, or not there.

Files of a run have checksums inside, so that one changed bit is detected. A digest detects
accidents, not deliberate changes. NumPy is imported only where arrays are handled, because a worker
process must set its number of threads before that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cslr.arrays import FloatArray

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "ends_in_damage",
    "make_directory",
    "naming",
    "open_arrays",
    "open_line",
    "open_to_append",
    "seal_arrays",
    "seal_line",
    "sync_directory",
    "write_all",
    "write_atomic",
]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def write_atomic(path: Path, content: bytes, folder_mode: int = 0o777) -> None:
    """Replace ``path`` by ``content``: temporary file in the same folder, fsync, rename, fsync.

    Only its owner may read the file. folder_mode: permissions of the folder, if it is created. An
    ``OSError`` names ``path`` and leaves the earlier content in place.
    """
    make_directory(path.parent, folder_mode)
    with naming(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            try:
                write_all(handle, content)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        sync_directory(path.parent)


def open_to_append(path: Path, private: bool) -> int:
    """Open a file for reading and appending; it is created if there is none.

    private: only its owner may read it; wider permissions of an existing file are removed.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    file = os.open(path, flags, PRIVATE_FILE if private else 0o666)
    try:
        status = os.fstat(file)
        if private and status.st_mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(file, PRIVATE_FILE)
    except BaseException:
        os.close(file)
        raise
    return file


def write_all(file: int, content: bytes) -> None:
    """Write all of ``content``: one call of the operating system may write less."""
    left = memoryview(content)
    while left:
        taken = os.write(file, left)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[taken:]


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make the directory and its parents; each entry is on disk when this returns."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names that were added, replaced or removed in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an ``OSError`` raised inside the block name this path."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


# -- checksums inside files ------------------------------------------------------------------------

_DIGEST: Final = "digest"


def seal_line(values: Mapping[str, object], indent: int | None = None) -> str:
    """Plain values as JSON, on one line unless indented, with a digest of all of it."""
    text = json.dumps(dict(values), allow_nan=False)
    sealed = {**values, _DIGEST: _short(text.encode())}
    return json.dumps(sealed, allow_nan=False, indent=indent)


def open_line(line: str | bytes) -> dict[str, Any]:
    """The values of a sealed line; ``ValueError`` if its checksum does not match."""
    values = json.loads(line)
    if not isinstance(values, dict) or _DIGEST not in values:
        raise ValueError("the line has no checksum")
    stored = values.pop(_DIGEST)
    text = json.dumps(values, allow_nan=False)
    if stored != _short(text.encode()):
        raise ValueError("the checksum of the line does not match")
    return values


def ends_in_damage(rest: bytes) -> bool:
    """Whether the bytes after the last newline are damaged, not just an incomplete line.

    A crash while writing leaves the beginning of one line. A complete JSON value with more text
    behind it was a whole line that lost its newline to damage.
    """
    text = rest.decode(errors="replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return end < len(text)


def seal_arrays(arrays: Mapping[str, FloatArray]) -> bytes:
    """Named arrays as a safetensors file, with a digest of names, shapes and numbers."""
    import numpy as np
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    return save(whole, metadata={_DIGEST: _of_arrays(whole)})


def open_arrays(content: bytes) -> dict[str, FloatArray]:
    """The arrays of a file; ``ValueError`` if their checksum does not match."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: dict[str, FloatArray] = load(content)
        stored = _metadata(content).get(_DIGEST)
    except (SafetensorError, UnicodeDecodeError, KeyError, AttributeError) as error:
        raise ValueError("not a safetensors file") from error
    if stored != _of_arrays(arrays):
        raise ValueError("the checksum of the arrays does not match")
    return arrays


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(content[8 : 8 + length])
    return header.get("__metadata__", {})


def _of_arrays(arrays: Mapping[str, FloatArray]) -> str:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        value = arrays[name]
        sha.update(f"{name}\0{value.dtype.str}\0{value.shape}\0".encode())
        sha.update(value.ravel().data)
    return sha.hexdigest()


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

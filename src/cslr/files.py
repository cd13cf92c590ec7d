"""Files that are either whole or not there, on the disk and not only on their way to it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "make_directory",
    "naming",
    "open_to_append",
    "sync_directory",
    "write_all",
    "write_atomic",
]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def write_atomic(path: Path, content: bytes, folder_mode: int = 0o777) -> None:
    """Replace ``path`` by ``content``: temporary file in the same folder, fsync, rename, fsync.

    The file is its owner's alone; folder_mode is for a folder that is not there yet. An ``OSError``
    on the way names ``path`` and leaves what was there before.
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
    """Open or make a file to be read and appended to.

    private: only its owner may read it, also if it exists already with wider permissions.
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
    """Write every byte: the system may take fewer than it is given."""
    left = memoryview(content)
    while left:
        taken = os.write(file, left)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[taken:]


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make the directory and those above it, each durable in the one that holds it."""
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
    """An ``OSError`` that comes without a file's name gets this one."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error

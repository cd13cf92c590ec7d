"""What nodes get back: releases, replay, head and facts for using them, as named files.

All of it is made of released values. A node writes only files with the names expected here, so a
server cannot write a file anywhere else.
"""

from __future__ import annotations

import re
from typing import Final

from cslr.errors import BadField, TrailingBytes, TruncatedMessage

__all__ = ["pack_result", "unpack_result"]

_NAME: Final = re.compile(
    r"config\.json|model\.json|seed-\d{1,9}/"
    r"(task-\d{1,4}|task-\d{1,4}-update-\d{1,4}|replay|head|picture)\.safetensors"
)
_MOST_FILES: Final = 1000


def pack_result(files: dict[str, bytes]) -> bytes:
    """Names and contents, one after the other."""
    parts = []
    for name, content in sorted(files.items()):
        sizes = len(name.encode()).to_bytes(2, "little") + len(content).to_bytes(8, "little")
        parts += [sizes, name.encode(), content]
    return len(files).to_bytes(4, "little") + b"".join(parts)


def unpack_result(body: bytes) -> dict[str, bytes]:
    """The inverse of ``pack_result``; a name that is not expected is refused."""
    count, offset = int.from_bytes(body[:4], "little"), 4
    if count > _MOST_FILES:
        raise BadField(f"a result has at most {_MOST_FILES} files, not {count}")
    files: dict[str, bytes] = {}
    for _ in range(count):
        name_size = int.from_bytes(body[offset : offset + 2], "little")
        size = int.from_bytes(body[offset + 2 : offset + 10], "little")
        begin = offset + 10 + name_size
        if len(body) < begin + size:
            raise TruncatedMessage("a result ends within a file")
        name = body[offset + 10 : begin].decode("ascii", "replace")
        if not _NAME.fullmatch(name) or name in files:
            raise BadField("a result names a file that is not expected, or one twice")
        files[name] = body[begin : begin + size]
        offset = begin + size
    if offset != len(body):
        raise TrailingBytes(f"{len(body) - offset} bytes after the last file")
    return files

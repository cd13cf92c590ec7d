"""Checksums inside the files of a run: one changed bit is detected.

A digest detects accidents, not deliberate changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.arrays import FloatArray

__all__ = ["ends_in_damage", "open_arrays", "open_line", "seal_arrays", "seal_line"]

_DIGEST: Final = "digest"


def seal_line(values: Mapping[str, object], indent: int | None = None) -> str:
    """Plain values as JSON, on one line unless indented, with a digest of all of it."""
    text = json.dumps(dict(values), allow_nan=False)
    sealed = {**values, _DIGEST: _short(text.encode())}
    return json.dumps(sealed, allow_nan=False, indent=indent)


def open_line(line: str | bytes) -> dict[str, Any]:
    """The values that were sealed; ``ValueError`` unless it is what was written."""
    values = json.loads(line)
    if not isinstance(values, dict) or _DIGEST not in values:
        raise ValueError("the line has no checksum")
    stored = values.pop(_DIGEST)
    text = json.dumps(values, allow_nan=False)
    if stored != _short(text.encode()):
        raise ValueError("the checksum of the line does not match")
    return values


def ends_in_damage(rest: bytes) -> bool:
    """Whether what follows the last whole line is more than the beginning of one.

    A crash leaves a part of a line; a line with something else after it lost its end to damage.
    """
    try:
        _, end = json.JSONDecoder().raw_decode(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return end < len(rest.decode(errors="replace"))


def seal_arrays(arrays: Mapping[str, FloatArray]) -> bytes:
    """Named arrays as a safetensors file, with a digest of names, shapes and numbers."""
    whole = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    return save(whole, metadata={_DIGEST: _of_arrays(whole)})


def open_arrays(content: bytes) -> dict[str, FloatArray]:
    """The arrays of a file; ``ValueError`` unless they are what was written."""
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
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

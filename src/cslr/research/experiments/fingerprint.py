"""Short fingerprints of the code and of the embeddings that a trace was made with.

Two traces of one cell may differ because the code does, because the embeddings do, or because
something is not reproducible. The heading of a trace tells these apart: ``code`` has the version
and a hash of the syntax of all modules that compute (comments and docstrings do not count),
``vectors`` a few numbers of the first public sentences. These are compared within a tolerance and
not hashed: machines differ in the last bits, and rounding would not always hide that.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import cslr
from cslr.arrays import FloatArray

__all__ = ["code_fingerprint", "other_origin", "vector_fingerprint"]

_COMPUTES: Final = (
    "data",
    "federation",
    "methods",
    "numerics",
    "privacy",
    "protocol",
    "runs",
    "text",
)
_MODULES: Final = ("config.py", "paper_constants.py", "seeding.py")
_SENTENCES: Final = 4
_NUMBERS: Final = 8
VECTORS_WITHIN: Final = 1e-4
"""Tolerance per coordinate of a unit vector; machines differ by about 1e-7, encoders by 1e-2."""


@lru_cache(maxsize=1)
def code_fingerprint() -> dict[str, str]:
    """The package's version and a hash of its numeric source."""
    root = Path(cslr.__file__).parent
    files = [root / name for name in _MODULES]
    files += [path for room in _COMPUTES for path in (root / room).rglob("*.py")]
    sha = hashlib.sha256()
    for path in sorted(files):
        sha.update(path.relative_to(root).as_posix().encode() + b"\0")
        sha.update(_syntax(path.read_text(encoding="utf-8")).encode() + b"\0")
    return {"version": cslr.__version__, "source": sha.hexdigest()[:16]}


def _syntax(source: str) -> str:
    """The syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return (
        isinstance(node, ast.Expr)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )


def vector_fingerprint(public: FloatArray) -> list[float]:
    """A few coordinates of the mean of the first public sentences (n, d), to six digits."""
    mean = np.asarray(public[:_SENTENCES], dtype=np.float64).mean(axis=0)
    return [round(float(value), 6) for value in mean[:_NUMBERS]]


def other_origin(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which fingerprints differ between the headings of two traces of one cell: code, vectors.

    A fingerprint that a heading of an earlier version lacks does not count as different.
    """
    differing = []
    if "code" in then and "code" in now and then["code"] != now["code"]:
        differing.append("code")
    if "vectors" in then and "vectors" in now:
        apart = np.subtract(then["vectors"], now["vectors"])
        if not np.all(np.abs(apart) <= VECTORS_WITHIN):
            differing.append("vectors")
    return differing

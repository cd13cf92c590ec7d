"""One's own public sentences: a file of lines, for ``--anchors`` or ``public`` in a declaration.

They must be public in earnest: everyone who takes part sees them, and they cost no ε only because
they are nobody's rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cslr.bench.own.lines import lines_of
from cslr.bench.own.problems import told
from cslr.errors import DataError

__all__ = ["FEWEST", "read_public"]

FEWEST: Final = 100
"""Distinct sentences without which there are no anchors to draw."""


def read_public(path: Path) -> tuple[str, ...]:
    """The distinct lines of a text file, gzipped if it ends in .gz, in their order."""
    sentences: dict[str, None] = {}
    for line in lines_of(path):
        if line.problem:
            raise DataError(told(path, line.problem))
        text = line.text.strip()
        if text:
            sentences[text] = None
    if len(sentences) < FEWEST:
        raise DataError(
            f"{path} holds {len(sentences)} distinct sentences; a public corpus needs {FEWEST} at "
            f"least, one a line, and is better with thousands"
        )
    return tuple(sentences)

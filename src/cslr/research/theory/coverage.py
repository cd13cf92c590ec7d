"""NON-PRIVATE. Whether the anchors cover the clients' texts, and their licence.

Anchors separate candidates only in the region that they cover (Definition 1: their distribution ρ).
The distance of rows to the nearest anchor is compared with that of public sentences; rows that are
much farther away are not covered by the public corpus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from scipy.spatial.distance import cdist

from cslr.arrays import FloatArray

__all__ = ["Coverage", "Licence", "coverage", "licence_of"]

FAR: Final = 0.95
"""A row is outside if it is farther from the anchors than this share of the public sentences."""
_CHUNK: Final = 4096


@dataclass(frozen=True)
class Coverage:
    """Median distances to the nearest anchor, in released coordinates."""

    sentences: int
    anchors: int  # m
    public: float
    """Median of the public sentences that are not anchors."""
    rows: float
    """Median of the clients' rows."""
    candidates: float
    """Median of the means of candidates, which lie nearer to the centre than single texts."""
    outside: float
    """Share of rows that are farther away than 95 % (``FAR``) of the public sentences."""

    @property
    def ratio(self) -> float:
        """Rows' distance over that of public sentences: 1 if both are distributed alike."""
        return self.rows / self.public if self.public > 0 else np.inf


def coverage(
    anchors: FloatArray, public: FloatArray, rows: FloatArray, means: FloatArray
) -> Coverage:
    """All in released coordinates: anchors (m, r), public (n, r), rows (n', r), means (N, r)."""
    among = nearest_distance(public, anchors)
    among = among[among > 1e-9]  # without the anchors themselves
    if not len(among):
        raise ValueError("public must contain sentences that are not anchors")
    of_rows = nearest_distance(rows, anchors)
    return Coverage(
        sentences=len(public),
        anchors=len(anchors),
        public=float(np.median(among)),
        rows=float(np.median(of_rows)),
        candidates=float(np.median(nearest_distance(means, anchors))),
        outside=float(np.mean(of_rows > np.quantile(among, FAR))),
    )


def nearest_distance(x: FloatArray, anchors: FloatArray) -> FloatArray:
    """(n,) how far each of x (n, r) is from the nearest of the anchors (m, r)."""
    parts = [
        cdist(x[first : first + _CHUNK], anchors).min(axis=1) for first in range(0, len(x), _CHUNK)
    ]
    return np.concatenate([np.zeros(0), *parts])


@dataclass(frozen=True)
class Licence:
    """What is known about the terms of the public sentences."""

    text: str | None
    source: str | None
    """The file that states it."""

    def __str__(self) -> str:
        if self.text is None:
            return (
                "not stated: check that you may use the sentences and distribute them to "
                "every client"
            )
        return f"{self.text} (says {self.source})"


def licence_of(data: Path | None) -> Licence:
    """The terms of ``anchors/`` in a data directory, as a file there states them.

    A file LICENSE or LICENCE beside the sentences is believed first, then a row about ``anchors``
    in a table of the directory's README.md that has a column of licences. Embedded streams (None)
    come with the program and under its licence.
    """
    if data is None:
        return Licence("Apache-2.0, written for CSLR and part of it", "cslr/data/streams")
    if not data.is_dir():
        return Licence(None, None)
    for path in sorted((data / "anchors").glob("LICEN[CS]E*")):
        if line := next((text.strip() for text in _lines(path) if text.strip()), None):
            return Licence(line, str(path))
    readme = data / "README.md"
    licence = _in_table(_lines(readme)) if readme.is_file() else None
    return Licence(licence, str(readme)) if licence else Licence(None, None)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _in_table(lines: list[str]) -> str | None:
    """The cell under "licence" in the row that begins with "anchors"."""
    column = None
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            column = None
        elif column is None:
            heads = [
                index for index, cell in enumerate(cells) if re.search(r"licen[cs]e", cell, re.I)
            ]
            column = heads[0] if heads else -1
        elif cells[0].strip("`/ ").lower() == "anchors" and 0 <= column < len(cells):
            return cells[column] or None
    return None

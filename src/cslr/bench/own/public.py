"""One's own public sentences: a file of lines, for ``--anchors`` or ``public`` in a declaration.

They must be public in earnest: everyone who takes part sees them, and they cost no ε only because
they are nobody's rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cslr.bench.own.lines import lines_of
from cslr.bench.own.problems import told
from cslr.bench.streams.words import spaced
from cslr.errors import DataError
from cslr.protocol.public import known_directions

__all__ = ["FEWEST", "few_public", "public_vectors", "read_public"]

FEWEST: Final = 100
"""Distinct sentences without which there are no anchors to draw."""
ENOUGH: Final = 5
"""Sentences, or in tagging words, for each released direction, with which its public variance is
known well."""


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


def public_vectors(sentences: tuple[str, ...], family: str) -> int:
    """How many vectors a space is made from: one for each sentence, in tagging for each word."""
    if family != "tagging":
        return len(sentences)
    return sum(len(spaced(sentence).split(" ")) for sentence in sentences)


def few_public(source: Path, count: int, directions: int, family: str) -> str | None:
    """A warning where ``count`` public vectors are few for so many directions. Nothing private."""
    enough = ENOUGH * directions
    if count >= enough:
        return None
    what = "words" if family == "tagging" else "distinct sentences"
    known = min(directions, known_directions(count))
    lost = "" if known == directions else ", and what clients say in the others is not heard"
    return (
        f"warning: {source} holds {count} {what}. They allow {known} of {directions} directions to "
        f"be released{lost}; {count / known:.1f} {what} a direction are few. Give {enough} or more"
    )

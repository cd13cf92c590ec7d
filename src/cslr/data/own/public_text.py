"""Public sentences for the user's own rows: a text file (``--anchors``, or ``public`` as declared).

They must really be public: every participant sees them, and they cost no ε only because no client
holds them. ``overlapping`` finds sentences that nevertheless occur in clients' texts. A sentence
counts if it is a whole text, or if it has at least ``SHORTEST`` characters and occurs anywhere
within one; case, white space, Unicode forms and punctuation at the ends do not matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cslr.data.own.parse.problems import described
from cslr.data.own.reader.lines import lines_of
from cslr.errors import DataError
from cslr.protocol.public_space import known_directions
from cslr.text.spacing import spaced

__all__ = ["FEWEST", "SHORTEST", "distinct_public", "few_public", "overlapping", "read_public"]

FEWEST: Final = 100
"""Fewest distinct sentences of a public corpus: anchors are drawn from them."""
ENOUGH: Final = 5
"""Public sentences (for tagging, words) per released direction that estimate its variance well."""

SHORTEST: Final = 20
"""Fewest characters of a sentence that is searched for within longer texts."""
_STEP: Final = 5
_WINDOW: Final = SHORTEST - _STEP + 1
_ENDS: Final = re.compile(r"^\W+|\W+$")


def read_public(path: Path) -> tuple[str, ...]:
    """The distinct lines of a text file, gzipped if it ends in .gz, in their order."""
    sentences: dict[str, None] = {}
    for line in lines_of(path):
        if line.problem:
            raise DataError(described(path, line.problem))
        text = line.text.strip()
        if text:
            sentences[text] = None
    if len(sentences) < FEWEST:
        raise DataError(
            f"{path} contains {len(sentences)} distinct sentences; a public corpus needs at "
            f"least {FEWEST}, one per line, and preferably thousands"
        )
    return tuple(sentences)


def distinct_public(sentences: tuple[str, ...], family: str) -> int:
    """How many distinct texts the public space is made of: sentences, for tagging their words."""
    if family != "tagging":
        return len(sentences)
    return len({word for sentence in sentences for word in spaced(sentence).split(" ")})


def few_public(source: Path, count: int, directions: int, family: str) -> str | None:
    """A warning if ``count`` distinct texts are few for so many directions. Nothing private."""
    enough = ENOUGH * directions
    if count >= enough:
        return None
    if family == "tagging":
        return (
            f"warning: {source} contains {count} distinct words, which are few for {directions} "
            "directions of word vectors: a head for names may find none. Use sentences with "
            f"{enough} distinct words or more"
        )
    what = "distinct sentences"
    estimable = min(directions, known_directions(count))
    lost = (
        ""
        if estimable == directions
        else "; what clients contribute in the other directions is lost"
    )
    return (
        f"warning: {source} contains {count} {what}, which allow {estimable} of {directions} "
        f"directions to be released{lost}; {count / estimable:.1f} {what} per direction are few. "
        f"Use {enough} or more"
    )


def overlapping(public: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The indices in ``public``, in order, of sentences that occur in ``texts``.

    Exact, in time linear in the texts: wherever a sentence occurs in a text, one of its first
    ``_STEP`` windows begins at a multiple of ``_STEP``. So every ``_STEP``-th window of a text is
    looked up among those of the sentences, and each sentence that may begin there is compared.
    """
    sentences: dict[str, list[int]] = defaultdict(list)
    for index, sentence in enumerate(public):
        if plain := _plain(sentence):
            sentences[plain].append(index)
    windows = _windows(sentences)
    found: set[str] = set()
    for text in texts:
        plain = _plain(text)
        if plain in sentences:
            found.add(plain)
        for start in range(0, len(plain) - _WINDOW + 1, _STEP):
            for offset, length in windows.get(plain[start : start + _WINDOW], ()):
                first = start - offset
                if first >= 0 and (piece := plain[first : first + length]) in sentences:
                    found.add(piece)
    return sorted(index for sentence in found for index in sentences[sentence])


def _windows(sentences: Iterable[str]) -> dict[str, set[tuple[int, int]]]:
    """For each window: its offset in a sentence and that sentence's length, for all sentences."""
    windows: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for sentence in sentences:
        if len(sentence) >= SHORTEST:
            for offset in range(_STEP):
                windows[sentence[offset : offset + _WINDOW]].add((offset, len(sentence)))
    return dict(windows)


def _plain(text: str) -> str:
    """The form in which texts are compared."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _ENDS.sub("", " ".join(folded.split()))

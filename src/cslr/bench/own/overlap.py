"""Whether public sentences are really public: do some of them stand in clients' texts?

A sentence counts if it is a whole text, or if it has at least ``SHORTEST`` characters and stands
anywhere within one; case, white space, Unicode forms and punctuation at the ends do not matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["SHORTEST", "overlapping"]

SHORTEST: Final = 20
"""Characters from which on a sentence is looked for within texts."""
_STEP: Final = 5
_WINDOW: Final = SHORTEST - _STEP + 1
_ENDS: Final = re.compile(r"^\W+|\W+$")


def overlapping(public: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The places in ``public``, in order, of sentences that occur in ``texts``.

    Exact, in time linear in the texts: wherever a sentence stands in a text, one of its first
    ``_STEP`` windows begins at a multiple of ``_STEP``. So every ``_STEP``-th window of a text is
    looked up among those of the sentences, and what may begin around it is looked up as a whole.
    """
    sentences: dict[str, list[int]] = defaultdict(list)
    for place, sentence in enumerate(public):
        if plain := _plain(sentence):
            sentences[plain].append(place)
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
    return sorted(place for sentence in found for place in sentences[sentence])


def _windows(sentences: Iterable[str]) -> dict[str, set[tuple[int, int]]]:
    """For each window: at which offset it stands in sentences of which length."""
    windows: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for sentence in sentences:
        if len(sentence) >= SHORTEST:
            for offset in range(_STEP):
                windows[sentence[offset : offset + _WINDOW]].add((offset, len(sentence)))
    return dict(windows)


def _plain(text: str) -> str:
    """As two texts are compared."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _ENDS.sub("", " ".join(folded.split()))

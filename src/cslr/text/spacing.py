"""Split running text into words with one space between them, as tagging needs it."""

from __future__ import annotations

import re

__all__ = ["spaced"]

_WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")


def spaced(text: str) -> str:
    """The words of a text with one space between them; a punctuation mark is a word.

    >>> spaced("The ward's door (No. 4) is open.")
    "The ward's door ( No . 4 ) is open ."
    """
    return " ".join(_WORD.findall(text))

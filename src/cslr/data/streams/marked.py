"""Example sentences with their names marked: ``[Marie Holt|PER] lives in [Lisbon|LOC] .``

Entity types are declared by such sentences. Every name of any type must be marked, because a word
outside brackets is an example of O.
"""

from __future__ import annotations

import re

from cslr.errors import DataError

__all__ = ["tagged_example"]

_PIECE = re.compile(r"\[(?P<name>[^\[\]|]*)\|(?P<type>[^\[\]|]*)\]|(?P<word>[^\[\]|\s]+)")


def tagged_example(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a marked sentence and their BIO tags, equally many.

    >>> tagged_example("[Marie Holt|PER] lives in [Lisbon|LOC] .")[1]
    ('B-PER', 'I-PER', 'O', 'O', 'B-LOC', 'O')
    """
    words: list[str] = []
    tags: list[str] = []
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise _wrong(text, f"cannot be parsed at {text[position : position + 20]!r}")
        if piece["word"]:
            words.append(piece["word"])
            tags.append("O")
        else:
            name, kind = piece["name"].split(" "), piece["type"]
            if not all(name) or not kind or re.search(r"\s", kind + "".join(name)):
                raise _wrong(text, f"{piece[0]!r} needs words and one type")
            words += name
            tags += [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1)]
        position = piece.end()
        if position < len(text):
            if not re.match(r" \S", text[position:]):
                raise _wrong(text, f"{piece[0]!r} must be followed by one space")
            position += 1
    if not words:
        raise _wrong(text, "it is empty")
    return tuple(words), tuple(tags)


def _wrong(text: str, what: str) -> DataError:
    return DataError(
        f"the example {text!r}: {what}; separate words by one space and write entities as "
        "[words|TYPE]"
    )

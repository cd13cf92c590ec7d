"""Public sentences: ``anchors/wikipedia_sentences.txt.gz``, one a line, in hash order.

``Salesforce/wikitext``, configuration ``wikitext-103-raw-v1`` (Parquet, column ``text``; a row is a
paragraph, a heading "= … =" or empty; punctuation marks are separate words and " @-@ " stands for
a hyphen). This was taken from the hub's pages and from programs that use it; the conversion was
tested on invented rows of that form. Any other set with a column ``text`` of plain English works.

Sentences of 20 to 300 characters that begin and end like one are kept once, usual spacing is
restored, and the 20,000 with the smallest SHA-256("cslr/public/1" NUL sentence) are written in that
order. So the file and every prefix of it are random samples that do not depend on the rows' order.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator
from typing import Final

from cslr.data.hub.columns import Lines, Row, column
from cslr.data.hub.library import split_of, splits
from cslr.errors import DataError

__all__ = ["public_files", "sentences"]

_PREFIX: Final = b"cslr/public/1"
_COUNT: Final = 20_000  # a run uses the first 10,000
_SHORTEST, _LONGEST = 20, 300

_TOKENISED = re.compile(r" [.!?](?: |$)")
_TOKENISED_END = re.compile(r"(?<= [.!?]) (?=[A-Z0-9])")
_PLAIN_END = re.compile(r"(?<=[a-z0-9)]{3}[.!?]) (?=[A-Z])")  # not after Mr. or St.
_WHOLE = re.compile(r"[A-Z0-9\"].*[a-z0-9)\"%][.!?]\"?")

_SPACING: Final = (
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" ([.,;:!?%)\]])"), r"\1"),
    (re.compile(r"([(\[$£€]) "), r"\1"),
    (re.compile(r" ('(?:s|re|ve|ll|d|m)|n't)\b"), r"\1"),
    (re.compile(r"s ' "), "s' "),
    (re.compile(r'" ([^"]+?) "'), r'"\1"'),
)


def public_files(source: str) -> dict[str, Lines]:
    """The sentences of the split ``train``."""
    chosen = _smallest(_all_sentences(split_of(splits(source), source, "train"), source))
    if not chosen:
        raise DataError(
            f"{source}: no sentence of {_SHORTEST} to {_LONGEST} characters; give a data set "
            "of English text with --source"
        )
    return {"anchors/wikipedia_sentences.txt.gz": chosen}


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph that have an allowed length and look complete."""
    text = " ".join(paragraph.split())
    if text.startswith("= ") or "<unk>" in text:
        return
    end = _TOKENISED_END if _TOKENISED.search(text) else _PLAIN_END
    for sentence in map(_spaced, end.split(text)):
        if _SHORTEST <= len(sentence) <= _LONGEST and _WHOLE.fullmatch(sentence):
            yield sentence


def _all_sentences(rows: Iterable[Row], source: str) -> Iterator[str]:
    for row in rows:
        yield from sentences(row[column(row, source, "text")] or "")


def _spaced(sentence: str) -> str:
    for pattern, replacement in _SPACING:
        sentence = pattern.sub(replacement, sentence)
    return sentence


def _smallest(lines: Iterable[str]) -> Lines:
    """The ``_COUNT`` distinct sentences of smallest hash, in that order and in bounded memory."""
    heap: list[tuple[int, str]] = []  # the largest hash first
    held: set[str] = set()
    for sentence in lines:
        digest = hashlib.sha256(_PREFIX + b"\0" + sentence.encode()).digest()
        entry = (-int.from_bytes(digest), sentence)
        if sentence in held or (len(heap) == _COUNT and entry <= heap[0]):
            continue
        held.add(sentence)
        if len(heap) < _COUNT:
            heapq.heappush(heap, entry)
        else:
            held.remove(heapq.heapreplace(heap, entry)[1])
    return [sentence for _, sentence in sorted(heap, reverse=True)]

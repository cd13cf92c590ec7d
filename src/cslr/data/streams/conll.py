"""Reading CoNLL: a word a line, a blank line between sentences.

In the layout of two columns a BIO tag follows the word: O, B-TYPE where a name begins, I-TYPE
inside one. In CoNLL-2012 there are eleven columns or more; the first is the id of the document, the
fourth the word, and the eleventh marks names by brackets: (TYPE* ... *), or (TYPE) for one word.

A damaged sentence is reported once, by its first bad line, and the sentences after it are still
read; the caller decides what to do with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cslr.data.streams.data_directory import text_lines
from cslr.errors import DataError

__all__ = [
    "BadLine",
    "TaggedSentence",
    "conll2012_sentences",
    "conll_sentences",
    "numbered",
    "read_conll",
    "read_conll2012",
    "tag_numbers",
]

_BRACKETS = re.compile(r"\((?P<open>[^()*]+)(\*|\*?\))|\*\)?")


@dataclass(frozen=True)
class TaggedSentence:
    """Words and as many BIO tags; word k is in line ``line`` + k."""

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]
    document: str = ""
    """The id of its document, where the layout has one."""

    @property
    def text(self) -> str:
        """The words with one space between them, as a stream has them."""
        return " ".join(self.words)


@dataclass(frozen=True)
class BadLine:
    """What is wrong in which line; its sentence is left out."""

    line: int
    message: str


def read_conll(path: Path) -> Iterator[TaggedSentence]:
    """The sentences of a file, gzipped if its name ends in .gz; a bad line raises an error."""
    return _sound(conll_sentences(enumerate(text_lines(path), start=1)), path)


def read_conll2012(path: Path, wanted: Callable[[str], bool]) -> Iterator[TaggedSentence]:
    """The sentences of the documents whose ids are ``wanted``; a bad line raises an error."""
    return _sound(conll2012_sentences(enumerate(text_lines(path), start=1), wanted), path)


def conll_sentences(lines: Iterable[tuple[int, str]]) -> Iterator[TaggedSentence | BadLine]:
    """A sentence, or what is wrong with it, for each block of numbered lines between blank lines.

    Columns are separated by a tab, or by other white space if a line has no tab. A line that
    begins with -DOCSTART- ends a sentence like a blank line.
    """
    return (_sentence(block) for block in _blocks(lines, "-DOCSTART-"))


def conll2012_sentences(
    lines: Iterable[tuple[int, str]], wanted: Callable[[str], bool]
) -> Iterator[TaggedSentence | BadLine]:
    """A sentence, or what is wrong with it, for each block of the documents that are ``wanted``.

    Lines that begin with # begin or end a document and end a sentence like a blank line.
    """
    for block in _blocks(lines, "#"):
        document = block[0][1].split()[0]
        if wanted(document):
            yield _sentence2012(block, document)


def tag_numbers(tags: Sequence[str], types: Sequence[str]) -> tuple[int, ...]:
    """A stream's numbers of BIO tags: 0 is O, 2i − 1 is B- and 2i is I- of ``types[i]``.

    ``types[0]`` is O itself. A tag of another type raises a ``ValueError``.
    """
    numbers = {"O": 0}
    for number, name in enumerate(types[1:], start=1):
        numbers |= {f"B-{name}": 2 * number - 1, f"I-{name}": 2 * number}
    for tag in tags:
        if tag not in numbers:
            raise ValueError(
                f"tag {tag} has no declared type; expected O, or B- or I- with one of "
                f"{', '.join(types[1:])}"
            )
    return tuple(numbers[tag] for tag in tags)


def numbered(sentence: TaggedSentence, types: Sequence[str], path: Path) -> tuple[int, ...]:
    """The tag numbers of a sentence of ``path``; an error names the line of an undeclared type."""
    numbers: list[int] = []
    for line, tag in enumerate(sentence.tags, start=sentence.line):
        try:
            numbers += tag_numbers([tag], types)
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}") from error
    return tuple(numbers)


def _sound(sentences: Iterable[TaggedSentence | BadLine], path: Path) -> Iterator[TaggedSentence]:
    for one in sentences:
        if isinstance(one, BadLine):
            raise DataError(f"{path}, line {one.line}: {one.message}")
        yield one


def _blocks(lines: Iterable[tuple[int, str]], between: str) -> Iterator[list[tuple[int, str]]]:
    """Runs of numbered lines that are not blank and do not begin with ``between``."""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        if line.strip() and not line.startswith(between):
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentence(block: list[tuple[int, str]]) -> TaggedSentence | BadLine:
    words: list[str] = []
    tags: list[str] = []
    for number, line in block:
        columns = _columns(line)
        if len(columns) != 2:
            return BadLine(
                number, f"{len(columns)} columns; a line must be a word, a tab and a tag, or blank"
            )
        word, tag = columns
        wrong = _wrong_word(word) or _wrong_tag(tag, tags[-1] if tags else "O")
        if wrong:
            return BadLine(number, wrong)
        words.append(word)
        tags.append(tag)
    return TaggedSentence(block[0][0], tuple(words), tuple(tags))


def _columns(line: str) -> list[str]:
    line = line.strip("\r\n")
    return [column.strip(" ") for column in line.split("\t")] if "\t" in line else line.split()


def _wrong_word(word: str) -> str | None:
    if not word:
        return "the word is empty; write one, or leave the line blank"
    if any(letter.isspace() for letter in word):
        return f"the word {word!r} contains a space; write two lines"
    return None


def _wrong_tag(tag: str, before: str) -> str | None:
    """What is wrong with ``tag`` after the tag ``before``, if anything."""
    if tag == "O":
        return None
    kind, _, name = tag.partition("-")
    if kind not in ("B", "I") or not name:
        return f"tag {tag!r} is not O, B-TYPE or I-TYPE"
    if kind == "I" and before not in (f"B-{name}", f"I-{name}"):
        return (
            f"tag {tag} after {before} does not continue an entity; begin the entity with B-{name}"
        )
    return None


def _sentence2012(block: list[tuple[int, str]], document: str) -> TaggedSentence | BadLine:
    words: list[str] = []
    tags: list[str] = []
    inside = ""  # the type whose bracket is open
    for number, line in block:
        columns = line.split()
        if len(columns) < 11:
            return BadLine(number, f"{len(columns)} columns; CoNLL-2012 has at least eleven")
        if columns[0] != document:
            return BadLine(number, f"document {columns[0]} in a sentence of {document}")
        word, mark = columns[3], columns[10]
        if word == "[WORD]":
            return BadLine(
                number, "the words are missing; insert them with the LDC's scripts first"
            )
        brackets = _BRACKETS.fullmatch(mark)
        if brackets is None or (brackets["open"] if inside else mark == "*)"):
            return BadLine(number, _wrong_brackets(mark, inside))
        kind = brackets["open"] or inside
        words.append(word)
        tags.append(f"{'B' if brackets['open'] else 'I'}-{kind}" if kind else "O")
        inside = "" if mark.endswith(")") else kind
    if inside:
        return BadLine(block[-1][0], f"the sentence ends within ({inside}*; close it with *)")
    return TaggedSentence(block[0][0], tuple(words), tuple(tags), document)


def _wrong_brackets(mark: str, inside: str) -> str:
    within = f" within ({inside}*" if inside else ""
    return (
        f"the brackets {mark!r}{within} are invalid; expected (TYPE*, *, *) or (TYPE), not nested"
    )

"""Rows of a CoNLL file: sentences, with ``# key = value`` lines before them as further columns.

A comment applies until its key is given again, so a file may be written client by client:

    # client = north
    # task = spring
    Marie   B-PER
    waits   O
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cslr.data.own.parse.problems import Problem
from cslr.data.own.reader.lines import Line, lines_of
from cslr.data.own.reader.raw import Raw
from cslr.data.streams.conll import BadLine, conll_sentences

__all__ = ["LABEL", "TEXT", "conll_rows"]

TEXT, LABEL = "text", "label"
"""Column names of the words and of the tags."""
_SHOWN = 200
_COMMENT = re.compile(r"#\s*(?P<key>[^\s=][^=]*?)\s*=\s*(?P<value>.*?)\s*")


def conll_rows(path: Path) -> Iterator[Raw | Problem]:
    """Each sentence: its words, its tags and the fields of the comments before it."""
    fields: dict[str, object] = {}
    for block in _blocks(path):
        while block and (comment := _COMMENT.fullmatch(block[0].text)) and not block[0].problem:
            fields[comment["key"]] = comment["value"]
            block = block[1:]
        for row in _sentences(block, dict(fields)) if block else ():
            yield _unclear(row, block) if isinstance(row, Problem) else row


def _blocks(path: Path) -> Iterator[list[Line]]:
    """Groups of lines separated by blank lines."""
    block: list[Line] = []
    for line in lines_of(path):
        if line.text.strip() or line.problem:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentences(block: list[Line], fields: dict[str, object]) -> Iterator[Raw | Problem]:
    """The sentence of a block; two if a document begins within it."""
    refused = next((line.problem for line in block if line.problem), None)
    if refused:
        yield refused
        return
    for sentence in conll_sentences((line.number, line.text) for line in block):
        if isinstance(sentence, BadLine):
            yield _problem(sentence, block[-1])
        else:
            yield Raw(
                sentence.line, {**fields, TEXT: list(sentence.words), LABEL: list(sentence.tags)}
            )


def _unclear(problem: Problem, block: list[Line]) -> Problem:
    """The problem of a bad block; a comment in it may name the client of the sentences after it."""
    if not any(line.comment or line.text.lstrip().startswith("#") for line in block):
        return problem
    what = f"{problem.what}; what the comment says about the rows after it is unclear"
    return Problem(problem.line, "unclear rows", what)


def _problem(bad_line: BadLine, last: Line) -> Problem:
    what = bad_line.message[:_SHOWN]
    if bad_line.line == last.number and not last.ended:
        return Problem(bad_line.line, "cut short", f"the file ends within this line: {what}")
    return Problem(bad_line.line, "not BIO" if what.startswith("tag ") else "not a row", what)

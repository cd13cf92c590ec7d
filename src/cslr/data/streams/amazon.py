"""Split-Amazon: reviews of five kinds of product, one after the other, negative or positive.

Read from a data directory:

    amazon/train.jsonl.gz, amazon/test.jsonl.gz     {"text", "label": 0 or 1, "domain", "split"}
                                                    a line; 0 is negative, split is ignored
    anchors/wikipedia_sentences.txt.gz              public sentences in hash order, one a line

A task is a domain; domains other than the five are skipped. In the scenario domain the tasks share
two labels, negative and positive. In class and task every task has two labels of its own, such as
"books, negative": ten in all. The rows are the same in all scenarios: they are chosen by domain and
label in the order of SHA-256("cslr/amazon/1" NUL text), which does not depend on seeds, file order
or results. Equally many rows of a domain's two labels are taken, so the rarer label limits both:

    subset      up to the first 500 train rows and the first 150 test rows of each label
    held-out    train rows only: of each label rows 501 to 700 to train on, 701 to 775 to test on
    all         every row of the five domains

Settings are chosen on ``held-out``; it never opens the test file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from cslr.data.stream import Label, Row, Stream, Task, as_rows, declared_labels
from cslr.data.streams.data_directory import (
    Sizes,
    data_directory,
    gzip_lines,
    in_hash_order,
    parts,
    public_sentences,
)
from cslr.errors import DataError

__all__ = ["DOMAINS", "load_amazon"]

DOMAINS = ("books", "dvd", "electronics", "kitchen_housewares", "toys_games")

_PREFIX = b"cslr/amazon/1"
_REPORTED = Sizes(500, 150, held_out_train=200, held_out_test=75)


def load_amazon(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    sizes: Sizes = _REPORTED,
) -> Stream:
    """Split-Amazon from the data directory ``data``: 5 tasks that share two labels.

    In the scenarios class and task each of them has two labels of its own instead.
    """
    directory = data_directory(data, "amazon", "amazon")
    sentiments = declared_labels("amazon.toml")
    read, choose = partial(_read, sentiments), partial(_chosen, sentiments)
    train, test = parts(directory / "amazon", rows, sizes, read, choose)
    separate = scenario in ("class", "task")
    if separate:
        train, test = _by_domain(train), _by_domain(test)
    return Stream(
        name="amazon",
        labels=declared_labels("amazon_class.toml") if separate else sentiments,
        tasks=tuple(
            Task(domain, (2 * task, 2 * task + 1) if separate else (0, 1))
            for task, domain in enumerate(DOMAINS)
        ),
        train=as_rows(train),
        test=as_rows(test),
        public=public_sentences(directory, sizes.public),
        scenarios=("domain", "class", "task"),
        clients=50,
        alpha=0.3,
        person="review",
    )


def _by_domain(rows: list[Row]) -> list[Row]:
    """The rows with the label that a sentiment has in its domain."""
    return [replace(row, label=2 * row.task + row.label) for row in rows]


def _chosen(
    labels: tuple[Label, ...], rows: list[Row], start: int, stop: int, path: Path
) -> list[Row]:
    """For each domain and label the rows from start to stop in hash order, equally many."""
    mixed = in_hash_order(rows, _PREFIX)
    chosen = []
    for task, domain in enumerate(DOMAINS):
        matching = [
            [row for row in mixed if (row.task, row.label) == (task, number)]
            for number in range(len(labels))
        ]
        fewest = min(range(len(labels)), key=lambda number: len(matching[number]))
        if len(matching[fewest]) <= start:
            raise DataError(
                f"{path} has {len(matching[fewest])} rows of {domain}, {labels[fewest].name}, but "
                f"this choice of rows needs more than {start}; use the complete file, or "
                "--rows all"
            )
        for of_label in matching:
            chosen += of_label[start : min(stop, len(matching[fewest]))]
    return chosen


def _read(labels: tuple[Label, ...], path: Path) -> list[Row]:
    """Every row of the five domains in one file, checked line by line."""
    lines = enumerate(gzip_lines(path), start=1)
    rows = (_row(line, labels, path, number) for number, line in lines)
    return [row for row in rows if row is not None]


def _row(line: str, labels: tuple[Label, ...], path: Path, number: int) -> Row | None:
    """The row of one line; None if its domain is not one of the tasks."""
    try:
        fields = json.loads(line)
        text, label, domain = fields["text"], fields["label"], fields["domain"]
        if not isinstance(text, str) or not isinstance(domain, str):
            raise TypeError("text and domain must be strings")
        text.encode()  # raises an error for a lone surrogate
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}, line {number}: not a row with text, label 0..{len(labels) - 1} and "
            f"domain ({type(error).__name__}: {error}); download the file again"
        ) from error
    if domain not in DOMAINS:
        return None
    if type(label) is not int or not 0 <= label < len(labels):
        raise DataError(
            f"{path}, line {number}: unknown label {label!r}; expected "
            f"{', '.join(f'{index} {each.name}' for index, each in enumerate(labels))}"
        )
    if not text.strip():
        raise DataError(f"{path}, line {number}: the text is empty; remove the row or fill it in")
    return Row(text, label, DOMAINS.index(domain))

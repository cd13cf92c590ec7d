"""Split-AG-News: four categories of news, one after the other.

Read from a data directory:

    ag_news/train.jsonl.gz, ag_news/test.jsonl.gz   {"label": 0..3, "label_name", "title",
                                                     "description"} a line
    anchors/wikipedia_sentences.txt.gz               public sentences in hash order, one a line

The text of a row is title + ". " + description. Rows are chosen label by label in the order of
SHA-256("cslr/ag-news/1" NUL text), which does not depend on seeds, file order or results:

    subset      the first 3,000 train rows and the first 1,000 test rows of each label
    held-out    train rows only: of each label the next 3,000 to train on, then 1,000 to test on
    all         every row

Settings are chosen on ``held-out``; it never opens the test file.

AG-News-Small is the same with fewer rows, for slow encoders: 500 train and 250 test rows of each
label, held out the next 500 and 125, and 4,000 public sentences.
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

__all__ = ["load_ag_news", "load_ag_news_small"]

_PREFIX = b"cslr/ag-news/1"
_REPORTED = Sizes(3_000, 1_000, held_out_train=3_000, held_out_test=1_000)
_SMALL = Sizes(500, 250, held_out_train=500, held_out_test=125, public=4_000)


def load_ag_news(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    sizes: Sizes = _REPORTED,
) -> Stream:
    """Split-AG-News from the data directory ``data``: 4 tasks of one label, scenario class."""
    directory = data_directory(data, "ag-news", "ag_news")
    labels = declared_labels("ag_news.toml")
    read, choose = partial(_read, labels), partial(_chosen, labels)
    train, test = parts(directory / "ag_news", rows, sizes, read, choose)
    return Stream(
        name="ag-news",
        labels=labels,
        tasks=tuple(Task(label.name, (number,)) for number, label in enumerate(labels)),
        train=as_rows(train),
        test=as_rows(test),
        public=public_sentences(directory, sizes.public),
        scenarios=("class",),
        clients=20,
        alpha=0.5,
    )


def load_ag_news_small(
    data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """AG-News-Small from the data directory ``data``."""
    return replace(load_ag_news(data, rows, scenario, _SMALL), name="ag-news-small")


def _chosen(
    labels: tuple[Label, ...], rows: list[Row], start: int, stop: int, path: Path
) -> list[Row]:
    """For each label the rows from start to stop in hash order, in that order."""
    mixed = in_hash_order(rows, _PREFIX)
    chosen = []
    for number, label in enumerate(labels):
        of_label = [row for row in mixed if row.label == number]
        if len(of_label) < stop:
            raise DataError(
                f"{path} has {len(of_label)} rows of {label.name}, but this choice of rows needs "
                f"{stop}; use the complete file, or --rows all"
            )
        chosen += of_label[start:stop]
    return chosen


def _read(labels: tuple[Label, ...], path: Path) -> list[Row]:
    """Every row of one file, checked line by line."""
    lines = enumerate(gzip_lines(path), start=1)
    return [_row(line, labels, path, number) for number, line in lines]


def _row(line: str, labels: tuple[Label, ...], path: Path, number: int) -> Row:
    try:
        fields = json.loads(line)
        label, title, description = fields["label"], fields["title"], fields["description"]
        text = title + ". " + description
        text.encode()  # raises an error for a lone surrogate
        agrees = type(label) is int and fields["label_name"] == labels[label].name and label >= 0
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{path}, line {number}: not a row with label 0..{len(labels) - 1}, label_name, "
            f"title and description ({type(error).__name__}: {error}); download the file again"
        ) from error
    if not agrees:
        raise DataError(
            f"{path}, line {number}: label {label!r} has the name {fields['label_name']!r}; "
            "expected "
            f"{', '.join(f'{index} {each.name}' for index, each in enumerate(labels))}"
        )
    return Row(text, label, task=label)

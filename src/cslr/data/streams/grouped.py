"""Streams whose labels are several things: there a list may find more than a mean does.

MultiWOZ-Services has the turns of MultiWOZ-Intent with the service as label; a service is asked for
in two ways, a wish and a question. Amazon-Products has the reviews of Split-Amazon with the kind of
product as label, in two moods. Each label is a task of its own, ``kinds`` says which of its two
things a row is, to measure how well modes were found, and the texts of the two are the label's
topics. Rows, their choice and their people are those of the stream they are made of.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cslr.data.stream import Label, Rows, Stream, Task
from cslr.data.streams.amazon import DOMAINS, load_amazon
from cslr.data.streams.multiwoz import SERVICES, load_multiwoz

__all__ = ["load_amazon_products", "load_multiwoz_services"]


def load_multiwoz_services(
    data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """MultiWOZ-Services from the data directory ``data``: 7 tasks of one label."""
    stream = _grouped(load_multiwoz(data, rows), SERVICES)
    return replace(stream, name="multiwoz-services", scenarios=("class",), family="classification")


def load_amazon_products(
    data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """Amazon-Products from the data directory ``data``: 5 tasks of one label."""
    stream = _grouped(load_amazon(data, rows, "class"), DOMAINS)
    return replace(stream, name="amazon-products", scenarios=("class",), family="classification")


def _grouped(stream: Stream, labels: tuple[str, ...]) -> Stream:
    """Labels 2i and 2i + 1 of the stream as label i of another; which one it was is its kind."""
    return replace(
        stream,
        labels=tuple(
            Label(
                each, _both(stream.labels[2 * index : 2 * index + 2]), topics=_texts(stream, index)
            )
            for index, each in enumerate(labels)
        ),
        tasks=tuple(Task(each, (index,)) for index, each in enumerate(labels)),
        train=_by_group(stream.train),
        test=_by_group(stream.test),
    )


def _both(labels: tuple[Label, ...]) -> str:
    return " ".join(label.description for label in labels)


def _texts(stream: Stream, index: int) -> tuple[str, ...]:
    return tuple(label.description for label in stream.labels[2 * index : 2 * index + 2])


def _by_group(rows: Rows) -> Rows:
    """The main label of a row says its group, which is its task, and its kind."""
    kinds = rows.labels
    groups = kinds // 2
    answers = tuple((int(group),) for group in groups)
    return replace(rows, answers=answers, tasks=groups.astype(np.int64), kinds=kinds)

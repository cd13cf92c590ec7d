"""Streams whose labels have two known modes each, so that a list can find more than one mean does.

MultiWOZ-Services has the turns of MultiWOZ-Intent with the service as label; its modes are the two
intents Inform and Request. Amazon-Products has the reviews of Split-Amazon with the kind of product
as label; its modes are negative and positive. Each label is a task of its own. ``kinds`` says which
mode a row is from, to measure how well modes were found, and the descriptions of the two modes are
the label's topics. Rows, their selection and their people are those of the original stream.
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
    """The stream with its labels 2i and 2i + 1 as label i; which one it was is a row's kind."""
    texts = [label.description for label in stream.labels]
    pairs = [(texts[2 * index], texts[2 * index + 1]) for index in range(len(labels))]
    return replace(
        stream,
        labels=tuple(
            Label(name, " ".join(pair), topics=pair)
            for name, pair in zip(labels, pairs, strict=True)
        ),
        tasks=tuple(Task(name, (index,)) for index, name in enumerate(labels)),
        train=_by_group(stream.train),
        test=_by_group(stream.test),
    )


def _by_group(rows: Rows) -> Rows:
    """Half the main label of a row is its new label and its task; the main label is its kind."""
    kinds = rows.labels
    groups = kinds // 2
    answers = tuple((int(group),) for group in groups)
    return replace(rows, answers=answers, tasks=groups.astype(np.int64), kinds=kinds)

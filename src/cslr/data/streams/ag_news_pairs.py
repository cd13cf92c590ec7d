"""AG-News-Pairs: the rows of Split-AG-News, with two sections of the newspaper under one label.

A label with two topics has two modes, so here there is something for a list to find: ``kinds`` says
which section a row is from, to measure how well modes were found. Two tasks of one label each.
AG-News-Pairs-Small has the rows of AG-News-Small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from cslr.data.stream import Rows, Stream, Task, labels_from_toml
from cslr.data.streams.ag_news import load_ag_news, load_ag_news_small

__all__ = ["load_ag_news_pairs", "load_ag_news_pairs_small"]

_PAIR_OF: Final = np.array([0, 1, 0, 1])  # of World, Sports, Business, Sci/Tech


def load_ag_news_pairs(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    load: Callable[[Path | None, str], Stream] = load_ag_news,
) -> Stream:
    """The stream from the data directory ``data``; ``rows`` as in Split-AG-News."""
    news = load(data, rows)
    text = files("cslr.data.streams").joinpath("ag_news_pairs.toml").read_text(encoding="utf-8")
    labels = labels_from_toml(text, "ag_news_pairs.toml")
    return replace(
        news,
        name="ag-news-pairs",
        labels=labels,
        tasks=tuple(Task(label.name, (number,)) for number, label in enumerate(labels)),
        train=_paired(news.train),
        test=_paired(news.test),
    )


def load_ag_news_pairs_small(
    data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """The same with fewer rows, for encoders that take long."""
    pairs = load_ag_news_pairs(data, rows, scenario, load_ag_news_small)
    return replace(pairs, name="ag-news-pairs-small")


def _paired(rows: Rows) -> Rows:
    section = rows.labels
    pair = _PAIR_OF[section]
    answers = tuple((int(label),) for label in pair)
    return replace(rows, answers=answers, tasks=pair, kinds=section)

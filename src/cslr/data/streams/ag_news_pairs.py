"""AG-News-Pairs: the rows of Split-AG-News, with two categories of news under one label.

A label with two topics has two modes, so a list of modes can find more than one mean does.
``kinds`` says which category a row is from, to measure how well modes were found. Two tasks of one
label each. AG-News-Pairs-Small has the rows of AG-News-Small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from cslr.data.stream import Rows, Stream, Task, declared_labels
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
    labels = declared_labels("ag_news_pairs.toml")
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
    """The same with fewer rows, for slow encoders."""
    pairs = load_ag_news_pairs(data, rows, scenario, load_ag_news_small)
    return replace(pairs, name="ag-news-pairs-small")


def _paired(rows: Rows) -> Rows:
    """The category of a row decides its label, which is its task, and is kept as its kind."""
    categories = rows.labels
    pairs = _PAIR_OF[categories]
    answers = tuple((int(label),) for label in pairs)
    return replace(rows, answers=answers, tasks=pairs, kinds=categories)

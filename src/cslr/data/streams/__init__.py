"""Streams of text tasks by name: the embedded ones, and those read from a data directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cslr.data.stream import SCENARIOS, Label, Rows, Stream, Task
from cslr.data.streams.ag_news import load_ag_news, load_ag_news_small
from cslr.data.streams.ag_news_pairs import load_ag_news_pairs, load_ag_news_pairs_small
from cslr.data.streams.amazon import load_amazon
from cslr.data.streams.grouped import load_amazon_products, load_multiwoz_services
from cslr.data.streams.multiwoz import load_multiwoz
from cslr.data.streams.ner import load_ner
from cslr.data.streams.ontonotes import load_ontonotes
from cslr.data.streams.shipped import load_clinic, load_desk, load_ward
from cslr.errors import ConfigError

__all__ = ["EMBEDDED", "SCENARIOS", "STREAMS", "Label", "Rows", "Stream", "Task", "load_stream"]

STREAMS: dict[str, Callable[[Path | None, str, str | None], Stream]] = {
    "clinic": load_clinic,
    "desk": load_desk,
    "ward": load_ward,
    "ag-news": load_ag_news,
    "ag-news-pairs": load_ag_news_pairs,
    "ag-news-small": load_ag_news_small,
    "ag-news-pairs-small": load_ag_news_pairs_small,
    "amazon": load_amazon,
    "amazon-products": load_amazon_products,
    "multiwoz": load_multiwoz,
    "multiwoz-services": load_multiwoz_services,
    "ner": load_ner,
    "ontonotes": load_ontonotes,
}

EMBEDDED = ("clinic", "desk", "ward")
"""Streams that come with the program."""


def load_stream(
    name: str, data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """The stream called ``name``, read from the directory ``data`` unless it is embedded.

    ``rows``: ``"subset"`` is what figures are reported on, ``"all"`` is everything, and
    ``"held-out"`` is train rows outside the subset, on which settings may be chosen. What the
    labels are may follow from the scenario; None is the stream's headline one.
    """
    if name not in STREAMS:
        raise ConfigError(f"unknown stream {name!r}; known streams: {', '.join(STREAMS)}")
    return STREAMS[name](data, rows, scenario)

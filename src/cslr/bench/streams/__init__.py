"""Streams of text tasks by name: the embedded one, and those read from a data directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cslr.bench.streams.ag_news import load_ag_news
from cslr.bench.streams.amazon import load_amazon
from cslr.bench.streams.embedded import load_clinic
from cslr.bench.streams.stream import SCENARIOS, Label, Rows, Stream, Task
from cslr.errors import ConfigError

__all__ = ["SCENARIOS", "STREAMS", "Label", "Rows", "Stream", "Task", "load_stream"]

STREAMS: dict[str, Callable[[Path | None, str], Stream]] = {
    "clinic": load_clinic,
    "ag-news": load_ag_news,
    "amazon": load_amazon,
}


def load_stream(name: str, data: Path | None, rows: str = "subset") -> Stream:
    """The stream called ``name``, read from the directory ``data`` unless it is embedded.

    ``rows``: ``"subset"`` is what figures are reported on, ``"all"`` is everything, and
    ``"held-out"`` is train rows outside the subset, on which settings may be chosen.
    """
    if name not in STREAMS:
        raise ConfigError(f"no stream {name!r}; known streams: {', '.join(STREAMS)}")
    return STREAMS[name](data, rows)

"""Public data sets from the Hugging Face hub, written as the data directory the streams read.

All loaders of ``cslr.data.streams`` read files and stay offline; only ``fetch`` uses the network.
It needs the library ``datasets``, an extra: ``pip install "cslr[hub]"``. A ``source`` is one of

    DIR           a copy of the data set on this machine; the network is not used
    ID            another data set of the hub that has the same columns
    ID:CONFIG     one configuration of such a data set

The module of each data set describes its conversion. Reported scores were not measured on these
rows: the hub's copies are longer, split differently or spelt differently.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from cslr.data.hub.ag_news import ag_news_files
from cslr.data.hub.amazon import amazon_files
from cslr.data.hub.columns import Lines, write_lines
from cslr.data.hub.library import quiet
from cslr.data.hub.multiwoz import multiwoz_files
from cslr.data.hub.public import public_files
from cslr.errors import ConfigError

__all__ = ["SOURCES", "fetch"]

SOURCES: Final = {
    "ag-news": "fancyzhx/ag_news",
    "amazon": "McAuley-Lab/Amazon-Reviews-2023",
    "multiwoz": "pfb30/multi_woz_v22",
    "public": "Salesforce/wikitext:wikitext-103-raw-v1",
}
"""The default sources."""

_FILES: Final[dict[str, Callable[[str], dict[str, Lines]]]] = {
    "ag-news": ag_news_files,
    "amazon": amazon_files,
    "multiwoz": multiwoz_files,
    "public": public_files,
}


def fetch(
    name: str, directory: Path, source: str | None = None, progress: bool = False
) -> list[Path]:
    """The data set ``name`` as files in ``directory``; returns what was written.

    Nothing is written before everything is converted, each file is written atomically, and the
    same rows give the same bytes. Downloads stay in the cache of ``datasets``.
    """
    if name not in SOURCES:
        raise ConfigError(f"unknown data set {name!r}; known data sets: {', '.join(SOURCES)}")
    with quiet(progress):
        files = _FILES[name](source or SOURCES[name])
    return [write_lines(directory / path, lines) for path, lines in files.items()]

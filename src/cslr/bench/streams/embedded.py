"""The stream that comes with the program: four clinics' letters, written for CSLR.

Nobody's data: every sentence is invented, so the default run needs no download and no licence.
It shows that the program works; it is small and easy, and no figure on it is a result.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import numpy as np

from cslr.bench.streams.stream import Rows, Stream, Task, labels_from_toml
from cslr.errors import ConfigError

__all__ = ["load_clinic"]

_TOPICS = ("heart", "skin", "joints", "mind")
_TRAIN_SHARE = 0.7  # 140 of a topic's 200 sentences


def load_clinic(data: Path | None = None, rows: str = "subset") -> Stream:
    """The embedded stream: four topics, one label each, 40 clients, Dirichlet 1.

    ``data`` is not looked at. ``rows`` may be ``"subset"`` or ``"all"``, which are the same here.
    """
    if rows not in ("subset", "all"):
        raise ConfigError(
            f"stream 'clinic' has no rows {rows!r}: it is too small for a held-out part; "
            f"use --rows subset, or choose settings on another stream"
        )
    parts = [_split(_sentences(topic)) for topic in _TOPICS]
    return Stream(
        name="clinic",
        labels=labels_from_toml(_read("labels.toml"), "clinic/labels.toml"),
        tasks=tuple(Task(topic, (number,)) for number, topic in enumerate(_TOPICS)),
        train=_rows([train for train, _ in parts]),
        test=_rows([test for _, test in parts]),
        public=_sentences("public"),
        scenarios=("class",),
        clients=40,
        alpha=1.0,
    )


def _read(name: str) -> str:
    return files("cslr.bench.streams").joinpath("clinic", name).read_text(encoding="utf-8")


def _sentences(name: str) -> tuple[str, ...]:
    """The distinct lines of one file, in their order."""
    lines = (line.strip() for line in _read(f"{name}.txt").splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def _split(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Train and test by the SHA-256 of the text: fixed, and blind to what a text says."""
    mixed = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
    cut = round(_TRAIN_SHARE * len(mixed))
    return tuple(mixed[:cut]), tuple(mixed[cut:])


def _rows(topics: list[tuple[str, ...]]) -> Rows:
    """One topic after the other; task and label are the topic's number."""
    numbers = np.repeat(np.arange(len(topics), dtype=np.int64), [len(texts) for texts in topics])
    return Rows(tuple(text for texts in topics for text in texts), numbers, numbers.copy())

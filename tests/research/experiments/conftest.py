"""Small cells of the embedded stream, and their places."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cslr.config import load_config
from cslr.research.experiments.grid import Cell
from cslr.research.experiments.places import Places

SMALL = {
    "yardsticks": False,
    "stream.name": "clinic",
    "stream.clients": 12,
    "privacy.epsilon": 4.0,
    "replay.dimension": 8,
    "paper.m": 20,
    "paper.n_r": 20,
}


@pytest.fixture(autouse=True)
def cached(cache, monkeypatch):
    """The cache directory, which child processes inherit."""
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))


@pytest.fixture
def places(tmp_path) -> Places:
    return Places(tmp_path / "traces", tmp_path / "runs" / "cells")


@pytest.fixture
def small() -> Callable[..., Cell]:
    """A cell of a second or two: ``small(seed, method, {dotted name: value})``."""

    def make(seed: int = 13, method: str = "cslr", more: dict[str, Any] | None = None) -> Cell:
        settings = {**SMALL, "seeds": [seed], "method": method, **(more or {})}
        return Cell.of(load_config(None, settings))

    return make


@pytest.fixture
def lines_of(places) -> Callable[[Cell], list[dict[str, Any]]]:
    """The trace of a finished cell."""

    def read(cell: Cell) -> list[dict[str, Any]]:
        text = places.trace(cell.name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    return read


@pytest.fixture
def timeless() -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Lines without their seconds, the only part that may differ between two runs."""

    def strip(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in line.items() if name not in ("seconds", "cpu")}
            for line in lines
        ]

    return strip

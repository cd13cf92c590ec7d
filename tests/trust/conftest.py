"""The trust card: every figure that the evidence here measures, one row each.

A test says ``card(name, target, figure, holds)``. `make trust` sets ``CSLR_CARD`` to a directory
and gathers the rows; without it they are only checked. Recording never fails a test: what must hold
is asserted beside it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

Card = Callable[[str, str, str, bool], None]


@pytest.fixture
def card() -> Card:
    """Write one row: ``card("off-grid coordinates", "0", "0 of 300,000", True)``."""

    def write(name: str, target: str, figure: str, holds: bool) -> None:
        row = {"name": name, "target": target, "figure": figure, "holds": bool(holds)}
        directory = os.environ.get("CSLR_CARD")
        if directory:
            file = Path(directory) / f"{uuid.uuid4().hex}.json"
            file.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")

    return write

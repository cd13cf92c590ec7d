"""Detect finished traces that were made with other defaults than today's.

A cell's name depends on the settings that differ from the defaults, so it stays the same when a
default changes. A trace contains all settings it was made with, and changes are reported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cslr.errors import DataError
from cslr.former_settings import REMOVED, moved
from cslr.research.experiments.grid import Cell, dotted, plain_config

__all__ = ["outdated"]


def outdated(cell: Cell, trace: Path) -> list[str]:
    """Settings that differed when the trace was made, as ``head.samples 400, now 500``.

    Settings missing in the trace were added later, with defaults that change nothing.
    """
    try:
        with trace.open(encoding="utf-8") as file:
            then = _today(dotted(json.loads(file.readline())["config"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DataError(f"{trace} is damaged; remove it and run the cell again") from None
    now = dotted(plain_config(cell.config))
    changed = [
        f"{name} {then[name]}, now {value}"
        for name, value in now.items()
        if name in then and then[name] != value
    ]
    return changed + [
        f"{name} {then[name]}, now fixed at {value}"
        for name, value in REMOVED.items()
        if then.get(name, value) != value
    ]


def _today(then: dict[str, Any]) -> dict[str, Any]:
    """Settings of a trace, with replaced settings under today's names."""
    renamed = {name: moved(name, value) for name, value in then.items()}
    kept = {name: value for name, value in then.items() if renamed[name] is None}
    return {**kept, **dict(today for today in renamed.values() if today is not None)}

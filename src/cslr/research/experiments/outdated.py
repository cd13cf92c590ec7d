"""Detect finished traces that were made with other defaults than today's.

A cell's name depends on the settings that differ from the defaults, so it stays the same when a
default changes. A trace contains all settings it was made with, and changes are reported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cslr.errors import DataError
from cslr.former_settings import MOVED, REMOVED, current_settings, dotted
from cslr.research.experiments.grid import Cell, plain_config

__all__ = ["outdated"]


def outdated(cell: Cell, trace: Path) -> list[str]:
    """Settings that differed when the trace was made, as ``paper.n_r 400, now 500``.

    Settings missing in the trace were added later, with defaults that change nothing.
    """
    try:
        with trace.open(encoding="utf-8") as file:
            then = dotted(json.loads(file.readline())["config"])
        fixed = [name for name in REMOVED if not _is_read(name, then)]
        kept = {name: value for name, value in then.items() if name not in fixed}
        settings = dotted(current_settings(kept))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DataError(f"{trace} is damaged; remove it and run the cell again") from None
    constants = {"paper": cell.config.paper.model_dump(mode="json")}
    now = {**dotted(plain_config(cell.config)), **dotted(constants)}
    changed = [
        f"{name} {settings[name]}, now {value}"
        for name, value in now.items()
        if name in settings and settings[name] != value
    ]
    return changed + [f"{name} {then[name]}, now fixed at {REMOVED[name]}" for name in fixed]


def _is_read(name: str, then: dict[str, Any]) -> bool:
    """Whether a removed setting is absent, has the value it is fixed at, or has a new name."""
    value = then.get(name, REMOVED[name])
    return value == REMOVED[name] or (name, value) in MOVED

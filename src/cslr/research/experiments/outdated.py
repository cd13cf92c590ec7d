"""Detect finished traces that were made with other defaults than today's.

A cell's name depends on the settings that differ from the defaults, so it stays the same when a
default changes. A trace contains all settings it was made with, and changes are reported.
"""

from __future__ import annotations

import json
from pathlib import Path

from cslr.config import dotted
from cslr.errors import DataError
from cslr.research.experiments.first_names import FORMERLY, first_names
from cslr.research.experiments.grid import Cell, plain_config

__all__ = ["outdated"]

_TODAY = {formerly: today for today, formerly in FORMERLY.items()}


def outdated(cell: Cell, trace: Path) -> list[str]:
    """Settings that differed when the trace was made, as ``paper.n_r 400, now 500``.

    Settings missing in the trace were added later, with defaults that change nothing.
    """
    try:
        with trace.open(encoding="utf-8") as file:
            then = first_names(dotted(json.loads(file.readline())["config"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DataError(f"{trace} is damaged; remove it and run the cell again") from None
    constants = {"paper": cell.config.paper.model_dump(mode="json")}
    now = first_names({**dotted(plain_config(cell.config)), **dotted(constants)})
    return [
        f"{_TODAY.get(name, name)} {then[name]}, now {value}"
        for name, value in now.items()
        if name in then and then[name] != value
    ]

"""The scenario of a row of REPRODUCTION.md, and what its ε covers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cslr.research.experiments.grid import Cell
from paper.built import Built
from paper.names import key_of, setting_of
from paper.traces import Trace
from paper.verdicts import Tables

__all__ = ["scope_of"]


def scope_of(place: tuple[str, str, str, str], tables: Tables, traces: Mapping[str, Trace]) -> str:
    """Scenario and coverage of the cells in one place of our table; – if none ran."""
    experiment, table, row, column = place
    built = tables.get((experiment, table))
    if built is None:
        return "–"
    ran = [
        traces[c.name] for c in built.cells if c.name in traces and _is_in(c, built, row, column)
    ]
    if not ran:
        return "–"
    scenarios = ", ".join(sorted({trace.scenario for trace in ran}))
    return f"{scenarios}; {', '.join(sorted({_covered(trace) for trace in ran}))}"


def _is_in(cell: Cell, built: Built, row: str, column: str) -> bool:
    """Whether a cell belongs to a row and column; for effects, to a method and a stream."""
    spec = built.spec
    rows, columns = spec.rows[0], spec.columns[0]
    if spec.kind == "effects":
        rows, columns = spec.axis, "stream.name"
    return all(
        not key or axis == "value" or key_of(setting_of(cell.config, axis)) == key
        for axis, key in ((rows, row), (columns, column))
    )


def _covered(trace: Trace) -> str:
    """What ε covers, against the roster."""
    end_to_end, replay = (trace.epsilon[scope]["roster"] for scope in ("end_to_end", "replay"))
    if math.isfinite(end_to_end):
        return "end to end"
    return "replay release" if math.isfinite(replay) else "nothing (no noise)"

"""The block of docs/results.md: the main table with its yardsticks, between two markers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from cslr.runs.measure import closed_share
from paper.built import Built
from paper.facts import REBUILD, command, earlier, ran
from paper.figure import NOT_RUN, number
from paper.layout import Keys, Layout
from paper.names import called
from paper.sheet import markdown_table
from paper.traces import Trace

__all__ = ["BEGIN", "END", "readme_block", "with_block"]

BEGIN: Final = "<!-- reproduction:begin -->"
END: Final = "<!-- reproduction:end -->"


def readme_block(built: Built, traces: Mapping[str, Trace]) -> str:
    """AA by method and stream, each method's end-to-end ε, and CSLR's share of the gap."""
    layout = built.layout
    if layout is None or built.spec.rows != ("method",) or built.spec.columns != ("stream.name",):
        raise ValueError(f"{built.sheet.name} is not a table of methods by streams")
    header = ("method", *[_stream(built, key, traces) for (key,) in layout.columns])
    rows = []
    for row in layout.rows:
        figures = [layout.entries.get((row, column)) for column in layout.columns]
        spent = _spent(built, row[0], traces)
        rows.append([called("method", row[0]), *[f.text if f else "" for f in figures], spent])
    privacy = built.cells[0].config.privacy
    seeds = ", ".join(map(str, sorted({cell.seed for cell in built.cells})))
    return "\n\n".join(
        [
            f"Average score in % after all tasks, mean ± sd over seeds {seeds}. Noise for "
            f"ε = {privacy.epsilon:g}, δ = {privacy.delta:g} against the {privacy.adversary}, unit "
            f"one client; the last column is what the ledgers say end to end against the roster. "
            f"Privacy simulated. {ran(built.cells, traces)}{earlier(built.cells, traces)}",
            markdown_table((*header, "end-to-end ε"), rows),
            f"† reads clients' rows without noise.{_closed(layout)}",
            f"Every number of the paper beside ours: [REPRODUCTION.md](../REPRODUCTION.md). Run: "
            f"`{command(built.experiment.name)}`; tables again from traces: `{REBUILD}`.",
        ]
    )


def with_block(page: str, block: str) -> str | None:
    """The page with the block between its markers; None if it has none."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(page):
        return None
    return pattern.sub(lambda _: f"{BEGIN}\n{block}\n{END}", page)


def _stream(built: Built, key: str, traces: Mapping[str, Trace]) -> str:
    scenarios = {
        traces[cell.name].scenario
        for cell in built.cells
        if cell.config.stream.name == key and cell.name in traces
    }
    return ", ".join([called("stream.name", key), *sorted(scenarios)])


def _spent(built: Built, method: str, traces: Mapping[str, Trace]) -> str:
    """One ε, or the range over streams; with the replay's ε if that differs."""
    found = [
        traces[cell.name]
        for cell in built.cells
        if cell.config.method == method and cell.name in traces
    ]
    if not found:
        return NOT_RUN
    end, replay = (_range(t.value(scope) for t in found) for scope in ("epsilon", "replay_epsilon"))
    return f"{end} (replay {replay})" if end != replay else end


def _range(values: Iterable[float]) -> str:
    shown = list(dict.fromkeys(number(value, 2) for value in sorted(values)))
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def _closed(layout: Layout) -> str:
    """Share of the gap from the better of majority and zero-shot to pooled training."""
    shares = []
    for column in layout.columns:
        level = {name: _mean(layout, name, column) for name in ("cslr", *_YARDSTICKS)}
        floor = max(level["majority"], level["zero-shot"])
        share = closed_share(level["cslr"], floor, level["joint"])
        if not math.isnan(share):
            shares.append(f"{100 * share:.0f} % on {called('stream.name', column[0])}")
    if not shares:
        return ""
    way = "Of the way from the better of majority and zero-shot to pooled training"
    return f" {way} CSLR goes {', '.join(shares)}."


_YARDSTICKS: Final = ("majority", "zero-shot", "joint")


def _mean(layout: Layout, row: str, column: Keys) -> float:
    figure = layout.entries.get(((row,), column))
    return figure.spread.mean if figure and figure.known else math.nan

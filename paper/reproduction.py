"""REPRODUCTION.md: each number of the paper, ours, the command that makes it, and why they differ.

Generated from ``experiments/paper.toml`` and traces; what was not run is marked so.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from cslr.research.experiments.grid import Experiment, all_cells
from paper.doubts import confirmed, doubts
from paper.facts import REBUILD, command, cpu_minutes, ran
from paper.first_page import first_page
from paper.printed import Paper, PaperTable
from paper.scope import scope_of
from paper.sheet import markdown_table
from paper.traces import Trace
from paper.verdicts import Line, Tables, counted, lines

__all__ = ["document"]

_HOW = """\
- **not comparable**: the score is of another label space or privacy scope. The direction is said
  in words and means nothing more.
- A margin between two methods is judged by our paired 95 % interval over the seeds that both ran.
  **confirmed**: a gain, and its interval meets the paper's. **smaller gain**, **larger gain**: a
  gain, and its interval lies below or above the paper's. **no gain shown**: the interval holds 0.
  **reversed**: it lies below 0. **void**: both sides gave the same figure with every seed, so
  nothing was compared.
- **promise kept**, **not kept**: whether the paper's noise multiplier costs the ε printed with it.
- Every row names its scenario and what its ε covers. The paper calls its setting task-incremental
  and its ε covers the replay release; a margin from another scenario or scope is evidence about
  the method and not a repetition of the paper's measurement.
- **not run**: there is no trace of it. No number here comes from anywhere but a trace, and no ε
  from anywhere but a ledger, by way of the trace.
- Letters name the reasons below a table. † reads clients' rows without noise."""


def document(
    paper: Paper,
    experiments: Sequence[Experiment],
    tables: Tables,
    traces: Mapping[str, Trace],
    folder: str,
) -> str:
    """The whole document; ``folder`` is the path of the tables relative to it."""
    found = {
        label: lines(table, tables.get((table.experiment, table.table)), tables)
        for label, table in paper.tables.items()
        if table.kind != "given"
    }
    sections = [
        _section(paper.tables[label], own, (tables, traces), folder) for label, own in found.items()
    ]
    costs = next((built.costs for built in tables.values() if built.costs), ())
    parts = [
        "# Reproduction",
        f"Written by `{REBUILD}` from `experiments/paper.toml` and the traces; changes here are "
        f"lost. Each number of the paper stands beside ours with the command that makes it.",
        "## What of the paper holds",
        first_page(found),
        "## How to read it",
        _HOW,
        "## How far it is",
        "CPU minutes: all cells of an experiment on one core, by what traces recorded of their "
        "stream and method; cells that two experiments share are counted in both.",
        _state(experiments, traces),
        f"Of {sum(map(len, found.values()))} comparisons: {_verdicts(found)}.",
        *sections,
        "## Where the paper disagrees with itself",
        _bullets(doubts(paper, costs)),
        "And what follows from its printed numbers just as it says:",
        _bullets(confirmed(paper)),
        "## Beyond the paper",
        _further(paper, experiments, tables, traces, folder),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _verdicts(found: Mapping[str, Sequence[Line]]) -> str:
    return ", ".join(
        f"{count} {verdict}"
        for verdict, count in counted(chain.from_iterable(found.values())).items()
    )


def _state(experiments: Sequence[Experiment], traces: Mapping[str, Trace]) -> str:
    """For each experiment: cells that ran, how many by an earlier version, CPU minutes."""
    rows, every = [], all_cells(experiments)
    for experiment in experiments:
        found = [traces[cell.name] for cell in experiment.cells if cell.name in traces]
        rows.append(
            [
                experiment.title,
                ", ".join(experiment.paper) or "–",
                f"{len(found)} of {len(experiment.cells)}",
                str(sum(trace.code is None for trace in found)),
                cpu_minutes(experiment.cells, traces, every),
                f"`{command(experiment.name)}`",
            ]
        )
    header = ("experiment", "of the paper", "cells that ran", "earlier version", "CPU minutes")
    return markdown_table((*header, "command"), rows, 6)


def _section(
    table: PaperTable,
    found: Sequence[Line],
    ours: tuple[Tables, Mapping[str, Trace]],
    folder: str,
) -> str:
    tables, traces = ours
    built = tables.get((table.experiment, table.table))
    letters = dict(zip(string.ascii_lowercase, table.reason, strict=False))
    rows = [
        [
            line.row,
            line.column,
            line.paper,
            line.ours,
            line.said,
            scope_of(line.place, tables, traces),
            ", ".join(letter for letter, why in letters.items() if why.about(line.printed)),
        ]
        for line in found
    ]
    parts = [f"## {table.label}: {table.title}"]
    if built:
        sheet = built.sheet.name
        parts.append(f"Ours: [{sheet}]({folder}/{sheet}.md).")
        parts.append(_bullets(built.sheet.notes))
    elif table.experiment:
        parts.append(f"No experiment here makes it ({table.experiment}, {table.table}).")
    if rows:
        header = ("", "", "paper", "ours", "verdict", "scenario; ε covers", "why")
        parts.append(markdown_table(header, rows, 7))
    parts += [_bullets(f"({letter}) {why.text}" for letter, why in letters.items())]
    return "\n\n".join(part for part in parts if part)


def _further(
    paper: Paper,
    experiments: Sequence[Experiment],
    tables: Tables,
    traces: Mapping[str, Trace],
    folder: str,
) -> str:
    """Our tables that correspond to none of the paper's."""
    shown = {(table.experiment, table.table) for table in paper.tables.values()}
    listed = []
    for experiment in experiments:
        links = ", ".join(
            f"[{built.sheet.name}]({folder}/{built.sheet.name}.md)"
            for place, built in tables.items()
            if place[0] == experiment.name and place not in shown
        )
        if links:
            listed.append(f"{experiment.title}: {links}. {ran(experiment.cells, traces)}")
    return _bullets(listed)


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)

"""The paper's tables from traces alone: nothing is run and no data are needed.

Tooling of the repository, not part of any wheel: ``cslr tables`` loads it in a checkout.

traces           a finished cell's trace as a typed record
names            how settings, methods and measures are called in a table
figure, facts    an entry of a table, and the facts below it: scope, seeds, command
layout, built    a ``[[table]]`` of an experiment: which figure is in which row and column
effects          margins between methods, with intervals and corrected p
statistics       spreads, intervals, tests and Holm's correction
accountant       the ε that the paper's noise table costs
sheet            Markdown, LaTeX and CSV
printed, doubts  the paper's numbers as data, and where they contradict each other
drawings         its figures
verdicts, scope, first_page, reproduction   REPRODUCTION.md
readme           the block of docs/results.md
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from cslr.files import write_atomic
from cslr.research.experiments.grid import all_cells, load_experiment
from paper.built import Built, build
from paper.layout import specs
from paper.printed import load_paper
from paper.readme import readme_block, with_block
from paper.reproduction import document
from paper.sheet import WRITERS
from paper.traces import Trace, read_traces

__all__ = ["readme_block", "rebuild"]

PAPER: Final = "paper.toml"
"""The file with the paper's own numbers; it is no experiment although it is among them."""
MAIN: Final = ("main", "main")
"""Experiment and table that docs/results.md shows."""


def rebuild(
    experiments: Path, traces: Path, out: Path, target: Path | None = None, figures: bool = False
) -> list[Path]:
    """Write every table, REPRODUCTION.md, and the block of docs/results.md where it has markers.

    out: a folder for <experiment>-<table>.md, .tex and .csv. target: REPRODUCTION.md, by default
    next to ``out``; docs/results.md is searched next to it. figures: whether the paper's figures
    are drawn into ``out`` too. The same traces give the same bytes.
    """
    target = target or out.parent / "REPRODUCTION.md"
    paper = load_paper(experiments / PAPER)
    files = sorted(path for path in experiments.glob("*.toml") if path.name != PAPER)
    loaded = [load_experiment(path) for path in files]
    finished = read_traces(all_cells(loaded), traces)
    tables = {
        (experiment.name, spec.name): build(experiment, spec, finished, paper)
        for experiment in loaded
        for spec in specs(experiment)
    }
    written = [path for built in tables.values() for path in _write(built, out)]
    if figures:
        from paper.drawings import draw  # here, because matplotlib takes a second to load

        written += draw(tables, finished, out)
    folder = Path(os.path.relpath(out, target.parent)).as_posix()
    text = document(paper, loaded, tables, finished, folder)
    write_atomic(target, text.encode())
    return [
        *written,
        target,
        *_page(target.parent / "docs" / "results.md", tables.get(MAIN), finished),
    ]


def _write(built: Built, out: Path) -> list[Path]:
    paths = []
    for ending, writer in WRITERS.items():
        path = out / f"{built.sheet.name}.{ending}"
        write_atomic(path, f"{writer(built.sheet)}\n".encode())
        paths.append(path)
    return paths


def _page(path: Path, main: Built | None, traces: dict[str, Trace]) -> list[Path]:
    """The page of results, if there is one with markers and a main table to show."""
    if main is None or not path.exists():
        return []
    page = with_block(path.read_text(encoding="utf-8"), readme_block(main, traces))
    if page is None:
        return []
    write_atomic(path, page.encode())
    return [path]

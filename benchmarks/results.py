"""Measure the figures of docs/results.md and write them into it.

    python benchmarks/results.py --data DIR [--streams ag-news,amazon]

Runs go to runs/results/ and are resumed there; the tables are made from their result.json alone.
Yardsticks are measured with the first cell of each stream. Streams that are not named are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin (written by `make results`) -->", "<!-- results:end -->"
SEEDS = "13,17,19,23,29"
DELTA = 1e-5
Cell = tuple[str, int, float, str]
MOST_LABELS = 5
"""With more labels than this there are no columns for single labels."""


@dataclass(frozen=True)
class Table:
    """One stream's cells: (unit, clients, ε, prior), the paper's client count first."""

    stream: str
    title: str
    score: str
    paper: str
    cells: tuple[Cell, ...]


def _cells(clients: int, many: int, none: bool) -> tuple[Cell, ...]:
    cells: list[Cell] = [
        (unit, clients, epsilon, "labels")
        for unit in ("client", "person")
        for epsilon in (1.0, 4.0, 8.0, math.inf)
    ]
    cells.insert(4, ("client", many, 4.0, "labels"))
    cells += [("client", clients, epsilon, "none") for epsilon in (1.0, 4.0, 8.0)] if none else []
    return tuple(cells)


TABLES = (
    Table(
        "ag-news",
        "Split-AG-News, class-incremental, 4 topics, Dirichlet 0.5, 12,000 train and 4,000 test "
        "rows",
        "AA",
        "The paper has 54.5 / 62.1 / 64.4 at ε = 1 / 4 / 8",
        _cells(20, 100, none=True),
    ),
    Table(
        "amazon",
        "Split-Amazon, domain-incremental, 5 kinds of product, Dirichlet 0.3, 5,000 train and "
        "1,500 test rows",
        "AA",
        "The paper has 53.8 at ε = 4",
        _cells(50, 250, none=False),
    ),
    Table(
        "multiwoz",
        "MultiWOZ-Intent, class-incremental, 7 services, 14 intents, Dirichlet 0.5 over dialogues, "
        "4,576 train and 1,460 test turns",
        "AA",
        "The paper has 53.8 at ε = 4",
        _cells(40, 200, none=False),
    ),
    Table(
        "ner",
        "NER-Domain, domain-incremental, 6 domains, 4 types, every client within one domain "
        "(cap 1; beyond 30 clients rows are drawn with replacement), 2,015 train and 1,500 test "
        "sentences",
        "F1",
        "The paper has 48.6 at ε = 4, on OntoNotes",
        _cells(30, 300, none=False),
    ),
)


def measure(data: Path, stream: str, cell: Cell, yardsticks: bool) -> dict[str, Any]:
    """One cell: five seeds."""
    unit, clients, epsilon, prior = cell
    directory = ROOT / "runs" / "results" / f"{stream}-{unit}-{clients}-{epsilon:g}-{prior}"
    command = [sys.executable, "-m", "cslr.cli", "run", "--stream", stream, "--data", str(data)]
    command += ["--clients", str(clients), "--epsilon", str(epsilon), "--prior", prior]
    command += ["--unit", unit, "--delta", str(DELTA)]
    command += ["--seeds", SEEDS, "--run-dir", str(directory), "--json"]
    command += ["--yardsticks" if yardsticks else "--no-yardsticks"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measured(data: Path, table: Table) -> list[dict[str, Any]]:
    """All cells of a table; the first has the yardsticks."""
    return [measure(data, table.stream, cell, i == 0) for i, cell in enumerate(table.cells)]


def lines_of(table: Table, cells: list[dict[str, Any]]) -> list[str]:
    """One stream's part of the block."""
    first = cells[0]
    yardsticks = {name: first["yardsticks"][name]["aa"] for name in first["yardsticks"]}
    floor = max(yardsticks["majority"], yardsticks["zero-shot"])
    more = list(first["more"])
    labels = [name for name, value in first["labels"].items() if value is not None]
    labels = labels if len(labels) <= MOST_LABELS else []
    lines = [
        f"**{table.title}**",
        "",
        f"| hidden | clients | ε | prior | {table.score} | over zero-shot | of the way to pooled "
        "| BWT | " + "".join(f"{name.replace('_', ' ')} | " for name in [*more, *labels]),
        "|---|---|---|---|---|---|---|---|" + "---|" * len([*more, *labels]),
    ]
    for (unit, *_), cell in zip(table.cells, cells, strict=True):
        cost = cell["epsilon"]["end_to_end"]["roster"]
        closed = 100 * (cell["aa"] - floor) / (yardsticks["joint"] - floor)
        epsilon = "∞" if cost is None else f"{cost:.2f}"
        lines.append(
            f"| a {unit} | {cell['clients']} | {epsilon} | {cell['prior']} | "
            f"**{cell['aa']:.1f}** | {cell['aa'] - yardsticks['zero-shot']:+.1f} | "
            f"{closed:.0f} % | {cell['bwt']:.1f} | "
            + "".join(f"{cell['more'][name]:.1f} | " for name in more)
            + "".join(f"{cell['labels'][name]:.1f} | " for name in labels)
        )
    alone = first["matrix"][0]
    ends = ", ".join(f"{name} {value:.1f}" for name, value in yardsticks.items())
    lines += ["", f"Yardsticks of the same rows: {ends}, the label prior alone (public, ε = 0) "]
    lines[-1] += f"{sum(alone) / len(alone):.1f}."
    lines[-1] += f" {table.paper} for the replay release alone: not comparable."
    return [line.rstrip() for line in lines]


def block(parts: list[list[str]]) -> str:
    """The Markdown between the markers."""
    lines = [
        BEGIN,
        f"Average score in %, mean over seeds {SEEDS}; MiniLM; end-to-end ε from the ledger,",
        f"against the roster, δ = {DELTA:g}, for what is hidden; privacy simulated.",
    ]
    for part in parts:
        lines += ["", *part]
    lines += [
        "",
        "`make results DATA=DIR` measures and writes this block; one row is",
        f"`cslr run --stream ag-news --data DIR --clients 20 --epsilon 4 --seeds {SEEDS}`.",
        END,
    ]
    return "\n".join(lines)


def part_of(before: str, table: Table) -> list[str]:
    """A stream's part of the present block, which is kept if it is not measured again."""
    lines = before.splitlines()
    begin = lines.index(f"**{table.title}**")
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith("Yardsticks"))
    return lines[begin : end + 1]


def main() -> None:
    """Measure the cells of the named streams and rewrite the block and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--streams", default=",".join(table.stream for table in TABLES))
    asked = parser.parse_args()
    page = ROOT / "docs" / "results.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    before, rest = rest.split(END)
    named = asked.streams.split(",")
    parts = [
        lines_of(table, measured(asked.data, table))
        if table.stream in named
        else part_of(before, table)
        for table in TABLES
    ]
    page.write_text(head + block(parts) + rest, encoding="utf-8")
    if "ag-news" not in named:
        return
    picture = ROOT / "runs" / "results" / "ag-news-client-20-8-labels" / "accuracy.png"
    shutil.copy(picture, ROOT / "docs" / "ag-news.png")


if __name__ == "__main__":
    main()

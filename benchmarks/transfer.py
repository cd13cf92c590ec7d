"""Whether CSLR ends below what is free, on other streams than the reported ones.

    python benchmarks/transfer.py --data DIR [--only "news;intents"]

Runs CSLR with default settings on every grouping of ``groupings.py``, at ε = 1, 4 and 8, with a
client and with a person as unit, seeds 101 and 102, and prints it beside zero-shot and pooled
training. A cell below zero-shot − 0.5 is marked ``!``; the program then ends with exit code 1. What
was measured is kept in runs/transfer/, and docs/transfer.md gets the table of all of it; remove a
file there to measure a grouping again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from groupings import GROUPINGS

from cslr.config import Config, load_config, with_settings
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, embed_stream, settle
from cslr.runs.measure import figures_of
from cslr.runs.prepare import context_of, ledger_of, plan_of, population_of, with_head

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "runs" / "transfer"
BEGIN, END = (
    "<!-- transfer:begin (written by `benchmarks/transfer.py`) -->",
    "<!-- transfer:end -->",
)
SEEDS: Final = (101, 102)
CELLS: Final = tuple(product(("client", "person"), (1.0, 4.0, 8.0)))
PUBLIC: Final = 4_000
"""Public sentences that spaces are built from: fewer than reported streams have, to be quick."""
ALLOWED: Final = 0.5
"""Points below zero-shot that chance may explain."""


@dataclass(frozen=True)
class Outcome:
    """One grouping, mean scores in %."""

    name: str
    labels: int
    tasks: int
    clients: int
    people: int
    zero_shot: float
    pooled: float
    cells: dict[tuple[str, float], float]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return KEPT / f"{self.name.replace(', ', '-').replace(' ', '-')}.json"

    def keep(self) -> None:
        """Write it down."""
        KEPT.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({**asdict(self), "cells": list(self.cells.items())}))

    @classmethod
    def kept(cls) -> dict[str, Outcome]:
        """All that were written down, by name."""
        found = [json.loads(path.read_text()) for path in KEPT.glob("*.json")]
        return {
            each["name"]: cls(**{**each, "cells": {tuple(c): s for c, s in each["cells"]}})
            for each in found
        }

    def below(self) -> list[tuple[str, float]]:
        """Cells that asking clients made worse."""
        return [cell for cell, score in self.cells.items() if score < self.zero_shot - ALLOWED]

    def closed(self) -> float:
        """Share of the gap that is closed for people at ε = 4."""
        gap = self.pooled - self.zero_shot
        return (self.cells.get(("person", 4.0), float("nan")) - self.zero_shot) / gap

    def row(self) -> str:
        """In Markdown."""
        sizes = f"{self.labels} / {self.tasks} / {self.clients} / {self.people:,}"
        below = self.below()
        cells = [f"{score:.1f}{' !' * (cell in below)}" for cell, score in self.cells.items()]
        ends = [f"{self.pooled:.1f}", f"{100 * self.closed():.0f} %"]
        return f"| {' | '.join([self.name, sizes, f'{self.zero_shot:.1f}', *cells, *ends])} |"


def score(settled: SettledConfig, embedded: EmbeddedStream, seeds: tuple[int, ...]) -> float:
    """Mean over seeds of the average score after the last task, in %."""
    settled = with_head(settled, embedded.stream)
    tasks, means = len(embedded.stream.tasks), []
    plan = plan_of(settled, tasks, embedded.stream.cap)
    for seed in seeds:
        population = population_of(settled.config, embedded, seed)
        with tempfile.TemporaryDirectory() as folder:
            directory = RunDirectory(Path(folder) / "run", settled.given)
            directory.begin()
            with ledger_of(settled, seed, directory) as ledger:
                context = context_of(settled, embedded, population, seed, plan, ledger, directory)
                *_, last = settled.method.stages(context)
                scenario = embedded.stream.scenario(None)
                figures = figures_of(embedded, context, scenario, last(), tasks)
        means.append(100 * float(np.mean(figures["scores"])))
    return float(np.mean(means))


def outcome(name: str, embedded: EmbeddedStream, base: Config) -> Outcome:
    """All cells of one grouping."""

    def of(method: str, unit: str, epsilon: float, seeds: tuple[int, ...]) -> float:
        settings = {"method": method, "privacy.unit": unit, "privacy.epsilon": epsilon}
        return score(settle(with_settings(base, settings)), embedded, seeds)

    stream = embedded.stream
    return Outcome(
        name,
        len(stream.labels),
        len(stream.tasks),
        stream.clients,
        stream.registered_people,
        of("zero-shot", "client", 4.0, SEEDS[:1]),
        of("joint", "client", 4.0, SEEDS[:1]),
        {cell: of("cslr", *cell, SEEDS) for cell in CELLS},
    )


def table(outcomes: list[Outcome]) -> str:
    """The Markdown between the markers."""
    head = [f"{unit}, ε = {epsilon:g}" for unit, epsilon in CELLS]
    columns = ["grouping", "labels / tasks / clients / people", "zero-shot", *head]
    columns += ["pooled", "gap closed (person, ε = 4)"]
    rows = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    missing = [name for name in GROUPINGS if name not in {each.name for each in outcomes}]
    note = ["", f"Not measured: {'; '.join(missing)}."] if missing else []
    return "\n".join([BEGIN, *rows, *[each.row() for each in outcomes], *note, END])


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    wanted = [name for name in asked.only.split(";") if name] or list(GROUPINGS)
    for name in wanted:
        if name in Outcome.kept():
            continue
        started = time.perf_counter()
        base = load_config(None, {"stream.name": "clinic", "seeds": SEEDS})
        stream = GROUPINGS[name](asked.data)
        stream = replace(stream, public=stream.public[:PUBLIC])
        embedded = embed_stream(stream, base, started, progress=True)
        found = replace(outcome(name, embedded, base), name=name)
        found.keep()
        print(found.row(), f"{time.perf_counter() - started:.0f} s", flush=True)
    kept = Outcome.kept()
    outcomes = [kept[name] for name in GROUPINGS if name in kept]
    page = ROOT / "docs" / "transfer.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(head + table(outcomes) + rest.split(END)[1], encoding="utf-8")
    return 1 if any(each.below() for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Hold the forecast of ``cslr plan`` against runs, and write both into docs/planning.md.

    python benchmarks/planning.py [--data DIR] [--cells clinic,desk] [--seeds 101,102]

Runs are simulated, on held-out train rows of the real streams (``stream.rows=held-out``) and on the
embedded ones, with seeds that are reported nowhere else. They go to runs/planning/ and are resumed
there; the table is made of what is finished, and a cell that was not run says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cslr.data.streams import Stream, load_stream
from cslr.methods.outlook import Federated, Outlook, outlook_of
from cslr.privacy.plan import Budget, Unit

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "planning.md"
BEGIN, END = "<!-- planning:begin (written by benchmarks/planning.py) -->", "<!-- planning:end -->"
EMBEDDED = ("clinic", "desk", "ward")
REAL = ("ag-news", "amazon", "multiwoz", "ner")
GRID: tuple[tuple[Unit, float], ...] = (
    ("person", 1.0),
    ("person", 4.0),
    ("person", 8.0),
    ("client", 4.0),
    ("client", 8.0),
)


@dataclass(frozen=True)
class Cell:
    """One stream, unit and ε."""

    stream: str
    unit: Unit
    epsilon: float

    @property
    def path(self) -> Path:
        """Where its run is kept."""
        return ROOT / "runs" / "planning" / f"{self.stream}-{self.unit}-{self.epsilon:g}"


def outlook(cell: Cell, stream: Stream) -> Outlook:
    """What ``cslr plan`` says of the declared numbers."""
    person = cell.unit == "person"
    tasks = [task.labels for task in stream.tasks]
    units = stream.registered_people if person else stream.clients
    rows = stream.rows_per_person if person else len(stream.train) // (units * len(tasks))
    every = len(stream.labels)
    federation = Federated(
        Budget(cell.epsilon, unit=cell.unit),
        units,
        len(tasks),
        labels_per_task=max(map(len, tasks)),
        rows_per_unit=max(1, rows),
        tasks_per_unit=tasks_of(stream) if person else stream.cap or len(tasks),
        all_labels=all(len(labels) == every for labels in tasks),
        family=stream.family,
    )
    return outlook_of(federation)


def tasks_of(stream: Stream) -> int:
    """Tasks that a person of a benchmark has rows of, on average."""
    people = stream.train.people
    if people is None:
        return 1
    pairs = np.unique(np.stack([people, stream.train.tasks]), axis=1)
    return max(1, round(pairs.shape[1] / len(np.unique(people))))


def run(cell: Cell, data: Path | None, seeds: str) -> None:
    """Run the cell unless it is finished."""
    if (cell.path / "result.json").exists():
        return
    command = [sys.executable, "-m", "cslr.cli", "run", "--stream", cell.stream]
    if cell.stream in REAL:
        command += ["--data", str(data), "--set", "stream.rows=held-out"]
    command += ["--unit", cell.unit, "--epsilon", str(cell.epsilon), "--seeds", seeds]
    asked = "--no-yardsticks" if yardsticks_of(cell.stream) else "--yardsticks"
    command += ["--run-dir", str(cell.path), "--json", asked]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def yardsticks_of(stream: str) -> dict[str, Any]:
    """Those of the first finished run of a stream that has them: no unit and no ε changes them."""
    for path in sorted((ROOT / "runs" / "planning").glob(f"{stream}-*/result.json")):
        found: dict[str, Any] = json.loads(path.read_text()).get("yardsticks") or {}
        if "joint" in found:
            return found
    return {}


def line(cell: Cell, stream: Stream | None) -> str:
    """Forecast beside outcome."""
    name = f"| {cell.stream} | {cell.unit} | {cell.epsilon:g}"
    if stream is None:
        return f"{name} | | | not run | | | |"
    told = outlook(cell, stream)
    what = "rounds" if told.rounds else f"tied {told.resolution.tied or '–'}"
    said = f"{name} | {told.federation.units:,} | {what} | {100 * told.share:.0f} %"
    found = cell.path / "result.json"
    if not found.exists():
        return f"{said} | not run | | |"
    result: dict[str, Any] = json.loads(found.read_text())
    yardsticks = yardsticks_of(cell.stream)
    zero, pooled = yardsticks["zero-shot"]["aa"], yardsticks["joint"]["aa"]
    share = 100 * (result["aa"] - zero) / (pooled - zero) if pooled > zero else float("nan")
    return f"{said} | {share:.0f} % | {result['aa']:.1f} | {zero:.1f} to {pooled:.1f} |"


def main() -> None:
    """Run what is asked for and rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cells", default=",".join(EMBEDDED), help="streams, or 'none'")
    parser.add_argument("--seeds", default="101,102")
    parser.add_argument("--epsilons", default="1,4,8")
    given = parser.parse_args()
    wanted, epsilons = given.cells.split(","), [float(e) for e in given.epsilons.split(",")]
    cells = [Cell(stream, unit, e) for stream in (*EMBEDDED, *REAL) for unit, e in GRID]
    for cell in cells:
        if cell.stream in wanted and cell.epsilon in epsilons:
            run(cell, given.data, given.seeds)
            print(cell.path.name, flush=True)
    streams: dict[str, Stream | None] = {}
    for name in (*EMBEDDED, *REAL):
        rows = "held-out" if name in REAL else "subset"
        known = name in EMBEDDED or given.data is not None
        streams[name] = load_stream(name, given.data, rows) if known else None
    table = [
        "| stream | unit | ε | units | released | forecast | outcome | score | gap |",
        "|---|---|---|---|---|---|---|---|---|",
        *[line(cell, streams[cell.stream]) for cell in cells],
    ]
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    text = "\n".join([BEGIN, *table, END])
    PAGE.write_text(head + text + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()

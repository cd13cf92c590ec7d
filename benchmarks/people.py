"""Measure accuracy with a person and with a client as the unit of privacy; written to the README.

    python benchmarks/people.py --data DIR [--streams ag-news,amazon]

Runs go to runs/people/ and are resumed there; the table is made from their result.json alone. Rows
of other streams are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- people:begin (written by `make people`) -->", "<!-- people:end -->"
SEEDS = "13,17,19,23,29"
STREAMS = {
    "ag-news": "topics (AG-News, class)",
    "amazon": "sentiment (Amazon, domain)",
    "multiwoz": "intents (MultiWOZ, class)",
    "ner": "names (NER, domain, F1)",
}
CELLS = (
    ("client", 4.0),
    ("person", 1.0),
    ("person", 4.0),
    ("person", 8.0),
    ("person", math.inf),
)


def measure(
    data: Path, stream: str, unit: str, epsilon: float, seeds: str, yardsticks: bool
) -> dict[str, Any]:
    """The result of one cell."""
    directory = ROOT / "runs" / "people" / f"{stream}-{unit}-{epsilon:g}"
    command = [sys.executable, "-m", "cslr.cli", "run", "--stream", stream, "--data", str(data)]
    command += ["--set", f"privacy.unit={unit}", "--epsilon", str(epsilon), "--seeds", seeds]
    command += ["--run-dir", str(directory), "--json"]
    command += ["--yardsticks" if yardsticks else "--no-yardsticks"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(title: str, cells: list[dict[str, Any]]) -> str:
    """One stream: zero-shot, the cells, pooled training, and the share of the gap at ε = 4."""
    yardsticks = cells[0]["yardsticks"]
    zero, joint = yardsticks["zero-shot"]["aa"], yardsticks["joint"]["aa"]
    floor = max(zero, yardsticks["majority"]["aa"])
    closed = 100 * (cells[2]["aa"] - floor) / (joint - floor)
    scores = [f"{cell['aa']:.1f}" for cell in cells]
    scores[2] = f"**{scores[2]}**"
    return " | ".join([f"| {title}", f"{zero:.1f}", *scores, f"{joint:.1f}", f"{closed:.0f} % |"])


def block(rows: list[str], seeds: str) -> str:
    """The Markdown between the markers."""
    return "\n".join(
        [
            BEGIN,
            "| | zero-shot, ε = 0 | client, ε = 4 | person, ε = 1 | person, ε = 4 | "
            "person, ε = 8 | person, no noise | pooled, no privacy | gap closed at ε = 4 |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"Average score in %, mean over seeds {seeds}, end-to-end ε from the ledger against",
            "the roster, δ = 1e-5, the paper's numbers of clients as silos, privacy simulated. A",
            "person is a row (topics, sentiment), a dialogue (intents) or a sentence (names).",
            "`make people DATA=DIR` measures and writes this.",
            END,
        ]
    )


def main() -> None:
    """Measure every cell and rewrite the block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--seeds", default=SEEDS)
    asked = parser.parse_args()
    page = ROOT / "README.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    before, rest = rest.split(END)
    rows = {line.split(" | ")[0]: line for line in before.splitlines() if line.startswith("| ")}
    for stream in asked.streams.split(","):
        cells = [
            measure(asked.data, stream, *cell, asked.seeds, i == 0) for i, cell in enumerate(CELLS)
        ]
        rows[f"| {STREAMS[stream]}"] = row(STREAMS[stream], cells)
        print(rows[f"| {STREAMS[stream]}"], flush=True)
    shown = [rows[f"| {title}"] for title in STREAMS.values() if f"| {title}" in rows]
    page.write_text(head + block(shown, asked.seeds) + rest, encoding="utf-8")


if __name__ == "__main__":
    main()

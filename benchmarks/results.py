"""Measure the README's results and write them into it.

    python benchmarks/results.py --data DIR

Runs go to runs/results/ and are resumed there; the table is made from their result.json alone.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin (written by `make results`) -->", "<!-- results:end -->"
SEEDS = "13,17,19,23,29"
CELLS = [(20, 1.0), (20, 4.0), (20, 8.0), (20, math.inf), (100, 4.0)]


def measure(data: Path, clients: int, epsilon: float, prior: str) -> dict[str, Any]:
    """One cell: five seeds, with yardsticks."""
    directory = ROOT / "runs" / "results" / f"ag-news-{clients}-{epsilon:g}-{prior}"
    command = [sys.executable, "-m", "cslr.cli", "run", "--stream", "ag-news", "--data", str(data)]
    command += ["--clients", str(clients), "--epsilon", str(epsilon), "--prior", prior]
    command += ["--seeds", SEEDS, "--run-dir", str(directory), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def block(cells: list[dict[str, Any]]) -> str:
    """The Markdown between the markers."""
    first = cells[0]
    yardsticks = {name: first["yardsticks"][name]["aa"] for name in first["yardsticks"]}
    lines = [
        BEGIN,
        "Split-AG-News, class-incremental (no task id at test time), 4 tasks, Dirichlet 0.5,",
        "12,000 train and 4,000 test rows, MiniLM; average accuracy in %, mean over seeds",
        f"{SEEDS}; "
        f"end-to-end ε against the roster at δ = {first['delta']:g}, unit: one client; simulated.",
        "",
        "| clients | ε | prior | AA | over zero-shot | of the way to pooled | BWT | "
        + " | ".join(first["labels"])
        + " |",
        "|---|---|---|---|---|---|---|" + "---|" * len(first["labels"]),
    ]
    for cell in cells:
        cost = cell["epsilon"]["end_to_end"]["roster"]
        epsilon = "∞" if cost is None else f"{cost:.2f}"
        zero_shot = cell["yardsticks"]["zero-shot"]["aa"]
        labels = " | ".join(f"{value:.1f}" for value in cell["labels"].values())
        lines.append(
            f"| {cell['clients']} | {epsilon} | {cell['prior']} | **{cell['aa']:.1f}** | "
            f"{cell['aa'] - zero_shot:+.1f} | {100 * cell['closed']:.0f} % | {cell['bwt']:.1f} | "
            f"{labels} |"
        )
    lines += ["", "Yardsticks of the same runs (20 clients): "]
    lines[-1] += ", ".join(f"{name} {value:.1f}" for name, value in yardsticks.items())
    alone = next(cell for cell in cells if cell["prior"] == "labels")["matrix"][0]
    lines[-1] += f", the label prior alone (public, ε = 0) {sum(alone) / len(alone):.1f}."
    lines += [
        "",
        "`make results DATA=DIR` measures and writes this block; one row is",
        "`cslr run --stream ag-news --data DIR --clients 20 --epsilon 4 --prior labels "
        f"--seeds {SEEDS}`.",
        END,
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure every cell and rewrite the block and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    cells = [
        measure(data, clients, epsilon, prior)
        for prior in ("labels", "none")
        for clients, epsilon in CELLS
    ]
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    readme.write_text(head + block(cells) + rest.split(END)[1], encoding="utf-8")
    picture = ROOT / "runs" / "results" / "ag-news-20-8-labels" / "accuracy.png"
    shutil.copy(picture, ROOT / "docs" / "ag-news.png")


if __name__ == "__main__":
    main()

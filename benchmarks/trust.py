"""Measure the evidence for every privacy claim and print it as the trust card.

    python benchmarks/trust.py

Runs everything in tests/trust, writes trust-card.json (name, target, figure, holds) and the card in
docs/trust.md. A row whose test did not finish is shown as not measured and does not hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- trust:begin (written by `make trust`) -->", "<!-- trust:end -->"
EXPECTED = (
    "RDP against quadrature",
    "RDP against Opacus",
    "PLD against closed form",
    "inside PRV bracket",
    "RDP ≥ PLD",
    "calibrated σ",
    "discrete grid δ",
    "ledger verified by",
    "messages declared and charged",
    "noise scale, 10⁷ draws",
    "exact-pmf χ²",
    "the sampler's distance",
    "beside OpenDP",
    "noise moments",
    "noise across",
    "low bits",
    "noise in the release",
    "noise in single messages",
    "coordinates off the grid",
    "precision attack",
    "integer clip",
    "empirical ε, mechanism, ε = 4",
    "empirical ε, mechanism, ε = 8",
    "empirical ε, whole pipeline",
    "black box on Q_t alone",
    "noise halved, one run",
    "two worlds, whole program",
    "two worlds, people inside clients",
    "mutants caught",
    "false alarms",
    "kill −9 at every point, sum",
    "kill −9 at every point, list",
    "kill −9, then changed rows",
    "random kills",
    "disk full or failing, sum",
    "disk full or failing, list",
    "SIGTERM",
    "two processes",
    "corrupted ledger",
    "corrupted files",
    "corrupted noise key",
    "going on over a damaged file",
    "8 processes race",
    "dropouts, all patterns",
    "dropouts, random patterns",
    "noise in a secure sum",
    "hostile server",
    "hostile clients",
    "fuzzed messages",
    "fuzzed by coverage",
    "rounds under crashes and lies",
    "soak",
    "reading 10,000 charges",
)
"""The beginning of every row's name, in the order of the card."""


class Row(TypedDict):
    """One figure of the card."""

    name: str
    target: str
    figure: str
    holds: bool


def measured(directory: Path) -> int:
    """Run the tests, which write their figures into ``directory``; returns the exit code."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist=worksteal", "tests/trust"],
        cwd=ROOT,
        env={**os.environ, **one_thread, "CSLR_CARD": str(directory)},
        check=False,
    )
    return done.returncode


def card(directory: Path) -> list[Row]:
    """The rows in the order of ``EXPECTED``, with those that no test has written."""
    written = [json.loads(file.read_text(encoding="utf-8")) for file in directory.glob("*.json")]
    found: list[Row] = sorted(written, key=lambda row: str(row["name"]))
    rows: list[Row] = []
    for name in EXPECTED:
        missing = Row(name=name, target="measured", figure="not measured", holds=False)
        rows += [row for row in found if row["name"].startswith(name)] or [missing]
    return rows + [row for row in found if not row["name"].startswith(EXPECTED)]


def show(rows: list[Row], minutes: float) -> None:
    """Print the card on the terminal."""
    table = Table(title=f"Trust card, {minutes:.0f} minutes", title_justify="left")
    for column in ("", "promise", "target", "figure"):
        table.add_column(column)
    for row in rows:
        mark = "[green]✓[/green]" if row["holds"] else "[red]✗[/red]"
        table.add_row(mark, row["name"], row["target"], row["figure"])
    Console().print(table)


def write(rows: list[Row], minutes: float) -> None:
    """trust-card.json, and the block in docs/trust.md."""
    content = json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    (ROOT / "trust-card.json").write_text(content, encoding="utf-8")
    lines = [BEGIN, "", "| promise | target | figure | holds |", "|---|---|---|---|"]
    lines += [
        f"| {row['name']} | {row['target']} | {row['figure']} | {'yes' if row['holds'] else 'no'} |"
        for row in rows
    ]
    lines += ["", f"`make trust` measures and writes this; it took {minutes:.0f} minutes.", END]
    page = ROOT / "docs" / "trust.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(head + "\n".join(lines) + rest.split(END)[1], encoding="utf-8")


def main() -> None:
    """Measure, show, write; the exit code is that of the tests."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        code = measured(Path(directory))
        rows = card(Path(directory))
    minutes = (time.monotonic() - started) / 60
    show(rows, minutes)
    write(rows, minutes)
    sys.exit(code)


if __name__ == "__main__":
    main()

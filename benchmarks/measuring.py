"""Measured rows: repetitions of two sides in turn, medians, and what is written about them."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- speed:begin (written by `make bench`) -->", "<!-- speed:end -->"

Side = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """One row: seconds of both sides, or one figure against a limit."""

    row: str
    unit: str
    ours: float | None
    peer: float | None
    peer_name: str
    ratio: float | None
    target: float
    """The least ratio peer / ours; where there is no peer, the most that ours may be."""
    holds: bool | None
    spread: float | None
    """(slowest − fastest) / median of our repetitions."""
    skipped: str = ""


def cpu_seconds(run: Side) -> float:
    """CPU seconds of a call in this process."""
    begun = time.process_time()
    run()
    return time.process_time() - begun


def command_seconds(*arguments: str) -> float:
    """CPU seconds of a command, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=_one_thread())
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def printed_json(*arguments: str) -> dict[str, float]:
    """What a script of this folder prints, as JSON."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_one_thread())
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def beside(row: str, ours: Side, peer_name: str, peer: Side, target: float, times: int) -> Measured:
    """Both sides in turn, after one call of each that does not count."""
    ours()
    peer()
    own: list[float] = []
    others: list[float] = []
    for _ in range(times):
        own.append(cpu_seconds(ours))
        others.append(cpu_seconds(peer))
    median, theirs = statistics.median(own), statistics.median(others)
    ratio = theirs / median
    return Measured(
        row, "CPU s", median, theirs, peer_name, ratio, target, ratio >= target, spread_of(own)
    )


def within(row: str, unit: str, figures: Sequence[float], limit: float) -> Measured:
    """Figures of our own against a limit."""
    median = statistics.median(figures)
    holds = median <= limit
    return Measured(row, unit, median, None, "limit", None, limit, holds, spread_of(figures))


def left_out(row: str, peer_name: str, target: float, reason: str) -> Measured:
    """A row whose peer is not installed here."""
    return Measured(row, "", None, None, peer_name, None, target, None, None, reason)


def spread_of(figures: Sequence[float]) -> float:
    """How far repetitions lie apart, relative to their median."""
    return (max(figures) - min(figures)) / max(statistics.median(figures), 1e-12)


def write(rows: Sequence[Measured]) -> None:
    """benchmarks/results.json, and the table in docs/speed.md."""
    text = json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False)
    (ROOT / "benchmarks" / "results.json").write_text(text + "\n", encoding="utf-8")
    page = ROOT / "docs" / "speed.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + table(rows) + rest.split(END)[1], encoding="utf-8")


def table(rows: Sequence[Measured]) -> str:
    """The block between the markers."""
    lines = [
        BEGIN,
        "| row | ours | peer | peer / ours | target | holds | spread |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.skipped:
            lines.append(f"| {row.row} | – | {row.peer_name} | – | – | {row.skipped} | – |")
            continue
        peer = "–" if row.peer is None else f"{row.peer_name}: {row.peer:.3g}"
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        target = f"≥ {row.target:g}" if row.ratio is not None else f"≤ {row.target:g}"
        holds = "yes" if row.holds else "no"
        lines.append(
            f"| {row.row} | {row.ours:.3g} {row.unit} | {peer} | {ratio} | {target} | {holds} | "
            f"{row.spread:.0%} |"
        )
    return "\n".join([*lines, END])


def _one_thread() -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, "1")}

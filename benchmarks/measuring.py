"""Measure rows of ``bench.py``: alternating repetitions of two sides, medians, and the table."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peers import rounds

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- speed:begin (written by `make bench`) -->", "<!-- speed:end -->"

MISSING = "peer not installed (`make bench-peers`) or failed"

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
    """The least ratio peer / ours; without a peer the upper limit of ours."""
    holds: bool | None
    spread: float | None
    """(slowest − fastest) / median of our repetitions."""
    skipped: str = ""


def cpu_seconds(run: Side) -> float:
    """CPU seconds of a call in this process."""
    begun = time.process_time()
    run()
    return time.process_time() - begun


def children_seconds() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_seconds(*arguments: str) -> float:
    """CPU seconds of a command, children included."""
    before = children_seconds()
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=_one_thread())
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-500:]}")
    return children_seconds() - before


def printed_json(*arguments: str) -> dict[str, Any]:
    """The JSON object that a script of this folder prints in its last line."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_one_thread())
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def beside(row: str, ours: Side, peer_name: str, peer: Side, target: float, times: int) -> Measured:
    """Measure both sides alternately; if repeated, after one call of each that is not counted."""
    if times > 1:
        ours()
        peer()
    own: list[float] = []
    others: list[float] = []
    for _ in range(times):
        own.append(cpu_seconds(ours))
        others.append(cpu_seconds(peer))
    return against(row, own, peer_name, statistics.median(others), target)


def elsewhere(row: str, ours: Side, peer_name: str, target: float, times: int) -> Measured:
    """Ours next to a training round of a peer that runs in its own environment."""
    found = rounds(peer_name, (10, 20, 32))
    if found is None:
        return left_out(row, peer_name, target, MISSING)
    return against(
        row, [cpu_seconds(ours) for _ in range(times)], peer_name, found["round"], target
    )


def against(
    row: str, own: Sequence[float], peer_name: str, theirs: float, target: float
) -> Measured:
    """Our repetitions next to one figure of a peer."""
    median = statistics.median(own)
    ratio = theirs / median
    return Measured(
        row, "CPU s", median, theirs, peer_name, ratio, target, ratio >= target, spread_of(own)
    )


def within(row: str, unit: str, figures: Sequence[float], limit: float) -> Measured:
    """Our own figures against a limit."""
    median = statistics.median(figures)
    holds = median <= limit
    return Measured(row, unit, median, None, "limit", None, limit, holds, spread_of(figures))


def left_out(row: str, peer_name: str, target: float, reason: str) -> Measured:
    """A row whose peer is not installed here."""
    return Measured(row, "", None, None, peer_name, None, target, None, None, reason)


def spread_of(figures: Sequence[float]) -> float:
    """The range of repetitions, relative to their median."""
    return (max(figures) - min(figures)) / max(statistics.median(figures), 1e-12)


def write(kinds: Sequence[str], measured: Mapping[str, Sequence[Measured]]) -> None:
    """Write benchmarks/results.json and the table in docs/speed.md, in the order of ``kinds``.

    Kinds that were not measured this time are kept.
    """
    path = ROOT / "benchmarks" / "results.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for kind, rows in measured.items():
        stored[kind] = [asdict(row) for row in rows]
    stored = {kind: stored[kind] for kind in kinds if kind in stored}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    rows = [Measured(**row) for each in stored.values() for row in each]
    write_block(BEGIN, table(rows), END)


def write_block(begin: str, lines: Sequence[str], end: str) -> None:
    """Put lines between two markers of docs/speed.md."""
    page = ROOT / "docs" / "speed.md"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    block = "\n".join([begin, *lines, end])
    page.write_text(before + block + rest.split(end)[1], encoding="utf-8")


def table(rows: Sequence[Measured]) -> list[str]:
    """The lines between the markers."""
    lines = [
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
    return lines


def _one_thread() -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, "1")}

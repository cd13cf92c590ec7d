"""Whether a tied matrix and gradient rounds make any run worse than plain means, on four streams.

    python benchmarks/resolution.py --data DIR [--streams ag-news,amazon] [--seeds 13,17]

Runs CSLR with default settings and with means alone (no tied matrix, no gradient rounds), a person
as the unit, the same seeds and noise on both sides, and writes both into docs/planning.md. Scores
are stored in runs/resolution/; remove a file there to measure a stream again. Exit code 1 if a cell
is below means alone by more than twice the standard error of the paired differences.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from transfer import score

from cslr.config import load_config
from cslr.protocol.step4_aggregate import contribution
from cslr.runs.embedded import EmbeddedStream, load_embedded, settle

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "runs" / "resolution"
PAGE: Final = ROOT / "docs" / "planning.md"
BEGIN, END = (
    "<!-- resolution:begin (written by benchmarks/resolution.py) -->",
    "<!-- resolution:end -->",
)
STREAMS: Final = ("ag-news", "amazon", "multiwoz", "ner")
SEEDS: Final = (13, 17, 19, 23, 29)
EPSILONS: Final = (1.0, 4.0, 8.0, math.inf)


@contextmanager
def means_alone() -> Iterator[None]:
    """Inside a with block no tied matrix is released."""
    least = contribution.LEAST_TIED
    contribution.LEAST_TIED = sys.maxsize  # type: ignore[misc]
    try:
        yield
    finally:
        contribution.LEAST_TIED = least  # type: ignore[misc]


def settings_of(stream: str, data: Path, epsilon: float) -> dict[str, Any]:
    """The settings of one cell."""
    return {
        "stream.name": stream,
        "stream.data": str(data),
        "privacy.unit": "person",
        "privacy.epsilon": epsilon,
        "seeds": SEEDS,
    }


def measured(
    embedded: EmbeddedStream, settings: dict[str, Any], seeds: tuple[int, ...]
) -> dict[str, list[float]]:
    """Scores in % of both sides, seed by seed."""
    default = settle(load_config(None, settings))
    plain = settle(load_config(None, {**settings, "head.kind": "released"}))
    full = [score(default, embedded, (seed,)) for seed in seeds]
    with means_alone():
        means = [score(plain, embedded, (seed,)) for seed in seeds]
    return {"default": full, "means": means}


def kept_or_measured(stream: str, data: Path, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """All cells of a stream, one for each ε."""
    path = KEPT / f"{stream}.json"
    if path.exists():
        cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return cells
    first = settle(load_config(None, settings_of(stream, data, 4.0)))
    embedded = load_embedded(first.config)
    cells = []
    for epsilon in EPSILONS:
        started = time.perf_counter()
        cell = measured(embedded, settings_of(stream, data, epsilon), seeds)
        cells.append({"epsilon": epsilon, **cell})
        seconds = f"{time.perf_counter() - started:.0f} s"
        print(stream, f"ε = {epsilon:g}", cell, seconds, flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells), encoding="utf-8")
    return cells


def worse(cell: dict[str, Any]) -> bool:
    """Whether a cell is below means alone by more than twice the standard error."""
    difference = np.subtract(cell["default"], cell["means"])
    error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return bool(difference.mean() < -2 * error) and bool(difference.mean() < 0)


def row(stream: str, cells: list[dict[str, Any]]) -> str:
    """One stream in Markdown: the default scores, and in brackets the difference to means alone."""
    shown = []
    for cell in cells:
        default, means = np.mean(cell["default"]), np.mean(cell["means"])
        mark = " !" if worse(cell) else ""
        shown.append(f"{default:.1f} ({default - means:+.1f}){mark}")
    return f"| {stream} | {' | '.join(shown)} |"


def main() -> int:
    """Measure what is not kept, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    asked = parser.parse_args()
    seeds = tuple(int(seed) for seed in asked.seeds.split(","))
    found = {name: kept_or_measured(name, asked.data, seeds) for name in asked.streams.split(",")}
    head = ["stream", *[f"ε = {'∞' if math.isinf(e) else f'{e:g}'}" for e in EPSILONS]]
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table, rest = rest.split(END)
    rows = {line.split(" | ")[0]: line for line in table.splitlines()}  # others stay as they are
    rows |= {f"| {name}": row(name, cells) for name, cells in found.items()}
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [rows[f"| {name}"] for name in STREAMS if f"| {name}" in rows]
    PAGE.write_text(before + "\n".join([BEGIN, *lines, END]) + rest, encoding="utf-8")
    return 1 if any(worse(cell) for cells in found.values() for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Where lists help: CSLR with one mode per label and with two, on labels that have two modes each.

    python benchmarks/lists.py --data DIR [--streams multiwoz-services] [--seeds 101]

Held-out train rows, seeds that are reported nowhere else, privacy simulated. Each cell is one line
of runs/lists.jsonl and is not run again. The table in docs/lists.md is made of that file; cells
that are not in it are shown as not run.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from cslr.config import load_config
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, load_embedded
from cslr.runs.learn import run

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "runs" / "lists.jsonl", ROOT / "docs" / "lists.md"
BEGIN, END = "<!-- lists:begin (written by benchmarks/lists.py) -->", "<!-- lists:end -->"
STREAMS = ("multiwoz-services", "amazon-products", "ag-news-pairs-small")
UNITS: tuple[tuple[str, int | None], ...] = (
    ("client", 20),
    ("client", 100),
    ("client", 1000),
    ("person", None),
)
EPSILONS = (4.0, 8.0, math.inf)
METHODS = (
    ("cslr", 1),
    ("cslr", 2),
    ("cslr-noanchor", 2),
    ("cslr-nearestmean", 2),
    ("dp-class-stats", None),
)
Key = tuple[str, str, int | None, str, str, int | None, int]


def keys(streams: list[str], seeds: list[int], units: list[str]) -> Iterator[Key]:
    """(stream, unit, clients, ε, method, J, seed) of every cell, in the order of running.

    units: numbers of clients, or person.
    """
    chosen = [each for each in UNITS if str(each[1] or each[0]) in units]
    for seed, epsilon in product(seeds, reversed(EPSILONS)):
        for (unit, clients), stream, (method, modes) in product(chosen, streams, METHODS):
            if method in ("cslr", "dp-class-stats") or clients == 100:
                yield stream, unit, clients, f"{epsilon:g}", method, modes, seed


def measure(key: Key, embedded: EmbeddedStream, data: Path) -> float:
    """The average score after all tasks."""
    stream, unit, clients, epsilon, method, modes, seed = key
    settings: dict[str, Any] = {
        "stream.name": stream,
        "stream.data": data,
        "stream.rows": "held-out",
        "stream.clients": clients,
        "stream.min_rows": 0,
        "privacy.unit": unit,
        "privacy.epsilon": float(epsilon),
        "method": method,
        "replay.sub_modes": modes,
        "seeds": [seed],
        "yardsticks": False,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    config = load_config(None, given)
    with tempfile.TemporaryDirectory() as place:
        directory = RunDirectory(Path(place) / "run", config)
        result = run(SettledConfig.of(config), embedded, directory, lambda *_: None)
    return float(result.as_json()["aa"])


def kept() -> dict[Key, float]:
    """The scores that were measured so far."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    rows = [json.loads(line) for line in lines]
    return {tuple(row["key"]): row["aa"] for row in rows}


def table(found: dict[Key, float]) -> list[str]:
    """One row for each stream, unit and ε: the score without lists, then those of other methods."""
    names = [f"{method}, J = {modes}" if modes else method for method, modes in METHODS[1:]]
    lines = [
        f"| stream | unit | ε | cslr, J = 1 | {' | '.join(names)} |",
        "|---" * (4 + len(names)) + "|",
    ]
    for stream in STREAMS:
        for unit, clients in UNITS:
            for epsilon in EPSILONS:
                scores = [
                    _mean(found, (stream, unit, clients, f"{epsilon:g}", method, modes))
                    for method, modes in METHODS
                ]
                if scores[0] is None:
                    continue
                whom = "person" if clients is None else f"{clients} clients"
                shown = [f"{scores[0]:.1f}", *[_beside(each, scores[0]) for each in scores[1:]]]
                told = "∞" if math.isinf(epsilon) else f"{epsilon:g}"
                lines.append(f"| {stream} | {whom} | {told} | {' | '.join(shown)} |")
    return lines


def _mean(found: dict[Key, float], cell: tuple[object, ...]) -> float | None:
    own = [score for key, score in found.items() if key[:-1] == cell]
    return sum(own) / len(own) if own else None


def _beside(score: float | None, plain: float) -> str:
    return "not run" if score is None else f"{score:.1f} ({score - plain:+.1f})"


def main() -> None:
    """Measure the selected cells, then rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--streams", default="")
    parser.add_argument("--seeds", default="101")
    parser.add_argument("--units", default="20,100,1000,person")
    given = parser.parse_args()
    streams = [name for name in given.streams.split(",") if name]
    done, embedded = kept(), {}
    seeds, units = [int(seed) for seed in given.seeds.split(",")], given.units.split(",")
    for key in keys(streams, seeds, units):
        if key in done:
            continue
        if key[0] not in embedded:
            stream = {"stream.name": key[0], "stream.data": given.data, "stream.rows": "held-out"}
            embedded[key[0]] = load_embedded(load_config(None, stream))
        done[key] = measure(key, embedded[key[0]], given.data)
        KEPT.parent.mkdir(exist_ok=True)
        with KEPT.open("a") as file:
            file.write(json.dumps({"key": key, "aa": done[key]}) + "\n")
        print(*key, f"{done[key]:.1f}", flush=True)
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    text = "\n".join([BEGIN, *table(done), END])
    PAGE.write_text(head + text + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()

"""Compare the forecast of ``cslr plan`` with runs, and write both into docs/planning.md.

    python benchmarks/transfer.py --data DIR && python benchmarks/planning.py --data DIR

The runs are those of ``transfer.py``, whose unrounded scores are in transfer.json: every grouping,
both units, ε = 1, 4 and 8. Prints the errors of the forecast, and with ``--fit`` the constants that
fit the text groupings best: for all of them, and leaving each grouping out in turn.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import numpy as np
from groupings import GROUPINGS
from transfer import CELLS, Outcome

from cslr.data.streams import Stream
from cslr.methods import outlook as forecasting
from cslr.methods.outlook import Federated, Outlook, outlook_of
from cslr.privacy.plan import Budget, Unit

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "planning.md"
BEGIN, END = "<!-- planning:begin (written by benchmarks/planning.py) -->", "<!-- planning:end -->"
GAP: Final = 5.0
"""A share of the gap from zero-shot to pooled training means little if the gap is smaller."""


def outlook(stream: Stream, unit: Unit, epsilon: float) -> Outlook:
    """The forecast of ``cslr plan`` for the declared numbers."""
    person, tasks = unit == "person", [task.labels for task in stream.tasks]
    units = stream.registered_people if person else stream.clients
    rows = stream.rows_per_person if person else len(stream.train) // (units * len(tasks))
    every = len(stream.labels)
    federation = Federated(
        Budget(epsilon, unit=unit),
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


def shares(outcome: Outcome) -> list[float]:
    """Measured shares of the gap, in the order of the cells."""
    gap = outcome.pooled - outcome.zero_shot
    return [(outcome.cells[cell] - outcome.zero_shot) / gap for cell in CELLS]


def row(outcome: Outcome, found: list[Outlook]) -> str:
    """Forecasts and outcomes as a row in Markdown."""
    pairs = zip(found, shares(outcome), strict=True)
    cells = [f"{100 * each.share:.0f} / {100 * share:.0f} %" for each, share in pairs]
    gap = f"{outcome.pooled - outcome.zero_shot:.1f}"
    return f"| {' | '.join([outcome.name, gap, *cells])} |"


def fit(signals: dict[str, list[float]], measured: dict[str, list[float]]) -> None:
    """Print the best constants for all groupings, and leave-one-out constants with errors."""

    def nearest(names: list[str]) -> tuple[float, float]:
        s = np.concatenate([signals[name] for name in names])
        y = np.concatenate([measured[name] for name in names])
        tried = [(m, h) for m in np.arange(0.6, 1.01, 0.05) for h in np.geomspace(0.5, 8, 17)]
        return min(tried, key=lambda c: float(np.abs(c[0] * s / (s + c[1]) - y).mean()))

    names = list(signals)
    print("all:", nearest(names))
    for name in names:
        most, half = nearest([other for other in names if other != name])
        s = np.array(signals[name])
        off = most * s / (s + half) - np.array(measured[name])
        print(f"without {name}: {most:.2f} {half:.2f}", np.round(100 * off).astype(int))


def main() -> None:
    """Rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fit", action="store_true")
    asked = parser.parse_args()
    kept = Outcome.kept()
    head = [f"{unit}, ε = {epsilon:g}" for unit, epsilon in CELLS]
    table = [
        f"| {' | '.join(['grouping', 'gap, points', *head])} |",
        "|---" * (2 + len(head)) + "|",
    ]
    signals, measured, off = {}, {}, {"client": [], "person": []}
    for name in GROUPINGS:
        if name not in kept:
            continue
        stream, outcome = GROUPINGS[name](asked.data), kept[name]
        found = [outlook(stream, unit, epsilon) for unit, epsilon in CELLS]
        table.append(row(outcome, found))
        if stream.family == "tagging" or outcome.pooled - outcome.zero_shot < GAP:
            continue
        signals[name] = [forecasting._signal(each) for each in found]
        measured[name] = shares(outcome)
        for (unit, _), each, share in zip(CELLS, found, measured[name], strict=True):
            off[unit].append(100 * (each.share - share))
    text = [
        f"{unit}: off by {np.abs(each).mean():.0f} points on average, from {min(each):+.0f} to "
        f"{max(each):+.0f} (texts, gaps of {GAP:g} points or more)."
        for unit, each in off.items()
    ]
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    page = before + "\n".join([BEGIN, *table, "", *text, END]) + rest.split(END)[1]
    PAGE.write_text(page, encoding="utf-8")
    print("\n".join(text))
    if asked.fit:
        fit(signals, measured)


if __name__ == "__main__":
    main()

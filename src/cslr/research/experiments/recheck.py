"""Finished cells run again and compared with their traces, within a stated tolerance.

In a simulation noise follows from the seed and the name of a release, so another machine draws the
same noise. What differs are the last bits of embeddings and of floating-point sums, which may
change the predictions of a few test rows.

Now and then such a bit decides more: which of two prototypes a list entry is matched to, or which
step a long training takes. Of all 713 cells of ``cslr reproduce``, run on two machines, 67 % have
the same scores to the last digit, 99 % the same average to 0.4 points, and four exceed the
tolerance. So one cell in twenty may.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import DataError
from cslr.research.experiments.fingerprint import other_origin
from cslr.research.experiments.grid import Cell
from cslr.research.experiments.places import Places
from cslr.seeding import Seeds

__all__ = ["AA_WITHIN", "SCORE_WITHIN", "Recheck", "compared", "drawn_cells", "may_differ"]

AA_WITHIN: Final = 0.5
"""Points by which the average score after the last task may differ."""
SCORE_WITHIN: Final = 5.0
"""Points by which a score on one task may differ: six rows of the smallest one."""
DIFFERING_SHARE: Final = 0.05
"""Of the cells of a check, the share that may exceed the tolerance."""
EPSILON_WITHIN: Final = 1e-6
"""Relative difference that is allowed for ε."""


@dataclass(frozen=True)
class Recheck:
    """One cell: the scores of its committed trace and of its second run, in points."""

    cell: Cell
    committed: float
    """Average score after the last task, from the committed trace."""
    again: float
    """The same from the second run."""
    largest: float
    """Largest difference between two scores of the matrices."""
    same_epsilon: bool
    origin: tuple[str, ...]
    """Which fingerprints differ: code, vectors."""

    @property
    def agrees(self) -> bool:
        """Whether all figures agree within the tolerance."""
        close = abs(self.committed - self.again) <= AA_WITHIN and self.largest <= SCORE_WITHIN
        return close and self.same_epsilon


def drawn_cells(cells: Sequence[Cell], places: Places, count: int, seed: int) -> tuple[Cell, ...]:
    """``count`` of the finished cells, or all if there are fewer; the same for the same seed."""
    finished = [cell for cell in cells if places.state(cell.name) == "finished"]
    order = Seeds(seed).at("cells to check").permutation(len(finished))
    return tuple(finished[index] for index in sorted(order[:count].tolist()))


def may_differ(cells: int) -> int:
    """How many of so many cells may exceed the tolerance of their scores."""
    return int(cells * DIFFERING_SHARE)


def compared(cell: Cell, trace: Path, again: Path) -> Recheck:
    """The committed trace of a cell beside the trace of its second run."""
    then, now = _lines(trace), _lines(again)
    before, after = _matrix(then, cell), _matrix(now, cell)
    largest = math.inf
    if before.shape == after.shape and np.array_equal(np.isnan(before), np.isnan(after)):
        apart = np.abs(before - after)
        largest = float(np.nanmax(apart)) if np.isfinite(apart).any() else 0.0
    return Recheck(
        cell,
        float(before[-1].mean()),
        float(after[-1].mean()),
        largest,
        _same_costs(_costs(then), _costs(now)),
        tuple(other_origin(then[0], now[0])),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines[0]["config"]
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{path} is damaged; remove it and run the cell again") from None
    return lines


def _matrix(lines: Sequence[dict[str, Any]], cell: Cell) -> FloatArray:
    """(T + 1, T) scores of the cell's own method, in points, NaN where undefined."""
    method = cell.config.method
    rows = [line for line in lines if line["kind"] == "row" and line["method"] == method]
    scores = [[math.nan if each is None else each for each in row["scores"]] for row in rows]
    return 100.0 * np.array(scores, dtype=np.float64)


def _costs(lines: Sequence[dict[str, Any]]) -> list[float]:
    """ε by scope and adversary; ∞ where it is null."""
    costs = []
    for line in lines:
        if line["kind"] == "cost":
            for scope in sorted(line["epsilon"]):
                for _, value in sorted(line["epsilon"][scope].items()):
                    costs.append(math.inf if value is None else float(value))
    return costs


def _same_costs(then: Sequence[float], now: Sequence[float]) -> bool:
    return len(then) == len(now) and all(
        math.isclose(one, two, rel_tol=EPSILON_WITHIN) for one, two in zip(then, now, strict=True)
    )

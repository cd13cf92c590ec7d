"""An entry of a table: a measure over the seeds that ran, and which seeds are missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paper.names import Measure
from paper.statistics import Spread, spread

__all__ = ["NOT_RUN", "UNDEFINED", "Figure", "number"]

NOT_RUN: Final = "not run"
UNDEFINED: Final = "undefined"


@dataclass(frozen=True)
class Figure:
    """One measure over seeds; seeds without a trace are missing."""

    measure: Measure
    by_seed: Mapping[int, float]
    """The values in the order of the seeds; NaN where the measure is undefined."""
    wanted: tuple[int, ...]
    """The seeds the experiment asks for."""

    @property
    def values(self) -> tuple[float, ...]:
        """One for each seed that ran."""
        return tuple(self.by_seed.values())

    @property
    def known(self) -> bool:
        """Whether there is a mean: some seed ran and all values are defined."""
        return bool(self.by_seed) and not any(map(math.isnan, self.values))

    @property
    def spread(self) -> Spread:
        """Mean and deviation; only if ``known``."""
        return spread(self.values)

    @property
    def seeds(self) -> str:
        """How many of the wanted seeds ran."""
        return f"{len(self.by_seed)} of {len(self.wanted)}"

    @property
    def text(self) -> str:
        """Mean ± deviation; a note where seeds are missing."""
        if not self.by_seed:
            return NOT_RUN
        if not self.known:
            return UNDEFINED
        shown = self._shown()
        complete = len(self.by_seed) == len(self.wanted)
        return shown if complete else f"{shown} ({self.seeds} seeds)"

    def _shown(self) -> str:
        digits = self.measure.digits
        if not self.measure.varies:
            low, high = (number(value, digits) for value in (min(self.values), max(self.values)))
            return low if low == high else f"{low}–{high}"
        mean = number(self.spread.mean, digits)
        return f"{mean} ± {number(self.spread.sd, digits)}" if len(self.by_seed) > 1 else mean


def number(value: float, digits: int) -> str:
    """A number with so many decimals; without a minus if it rounds to zero."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text

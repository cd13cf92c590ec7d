"""What evaluations that were paid for say, read from the lines of a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["PrivateFigures", "private_figures"]


@dataclass(frozen=True, eq=False)
class PrivateFigures:
    """Accuracy after the last task by noised counts that were paid for, means over seeds, in %."""

    accuracy: FloatArray  # (T,), NaN where too few clients have test rows
    error: FloatArray  # (T,) standard error by the noise
    before_upgrade: bool
    """Whether the head of the run before an exchange of encoders was measured, not this one's."""

    @property
    def aa(self) -> tuple[float, float]:
        """The mean over tasks and its standard error."""
        error = math.sqrt(float(np.square(self.error).sum())) / len(self.error)
        return float(self.accuracy.mean()), error

    def as_json(self, tasks: Sequence[str]) -> dict[str, Any]:
        """As plain values."""
        rows = zip(tasks, self.accuracy, self.error, strict=True)
        aa, error = self.aa
        return {
            "tasks": [
                {"task": task, "accuracy": _number(share), "standard_error": _number(deviation)}
                for task, share, deviation in rows
            ],
            "aa": _number(aa),
            "aa_standard_error": _number(error),
            "before_upgrade": self.before_upgrade,
        }


def private_figures(lines: Sequence[dict[str, Any]]) -> PrivateFigures | None:
    """Of the lines of kind ``evaluation``, one a seed; None if there are none."""
    if not lines:
        return None
    accuracy = 100 * np.array([line["accuracy"] for line in lines], dtype=np.float64)
    error = 100 * np.array([line["standard_error"] for line in lines], dtype=np.float64)
    return PrivateFigures(
        accuracy.mean(axis=0),
        np.sqrt(np.square(error).sum(axis=0)) / len(lines),
        any(line.get("before_upgrade", False) for line in lines),
    )


def _number(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None

"""The score matrix a[r, j] and the paper's metrics of it.

a[r, j] is the score on task j after task r, with r = 0 before any training, so the matrix is
(T + 1, T). With T tasks and b_j the zero-shot score on task j (paper, Section 6.1):

    AA  = 1/T Σ_j a[T, j]
    BWT = 1/(T−1) Σ_{j<T} (a[T, j] − a[j, j])
    FWT = 1/(T−1) Σ_{j≥2} (a[j−1, j] − b_j)

An entry that cannot exist (a label the model does not know yet, without a label prior) is NaN,
and so is whatever needs it.
"""

from __future__ import annotations

import math

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["average_accuracy", "backward_transfer", "closed_share", "forward_transfer"]


def average_accuracy(matrix: FloatArray) -> float:
    """AA: the mean of the last row."""
    return float(matrix[-1].mean())


def backward_transfer(matrix: FloatArray) -> float:
    """BWT: what was gained (or lost) on a task since it was learnt; NaN with one task."""
    learnt = np.diagonal(matrix[1:])[:-1]
    return float(np.mean(matrix[-1, :-1] - learnt)) if len(learnt) else math.nan


def forward_transfer(matrix: FloatArray, zero_shot: FloatArray) -> float:
    """FWT: what earlier tasks gave to one not seen yet, beyond zero-shot; NaN with one task."""
    before = np.diagonal(matrix[1:], offset=1)
    return float(np.mean(before - zero_shot[1:])) if len(before) else math.nan


def closed_share(score: float, floor: float, ceiling: float) -> float:
    """Share of the gap between the best constant or zero-shot score and joint that is closed."""
    return (score - floor) / (ceiling - floor) if ceiling > floor else math.nan

"""Covariances of K values of which some share effects, without a matrix of K × K numbers.

In each of r directions

    C = D + U A Uᵀ,   D diagonal, U (K, q) says who is in which group, A diagonal (q, q),

so by Woodbury's identity C⁻¹ = D⁻¹ − D⁻¹ U P Uᵀ D⁻¹ with P = A^½ M⁻¹ A^½ and
M = I + A^½ Uᵀ D⁻¹ U A^½, and log|C| = log|D| + log|M|. A direction costs K q² + q³ where a dense
inverse costs K³; with one effect that all values share, q = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["GroupedCovariances", "factored"]

NUMBERS: Final = 1 << 21
"""Held at once while groups are added up: bounds memory, however many the directions are."""


@dataclass(frozen=True, eq=False)
class GroupedCovariances:
    """r covariances, factored."""

    groups: tuple[IntArray, ...]  # for each effect (K,) the column of U of each value
    precision: FloatArray  # (r, K) 1 / D
    within: FloatArray  # (r, q, q) Uᵀ D⁻¹ U
    core: FloatArray  # (r, q, q) P
    log_determinant: FloatArray  # (r,)
    indicators: FloatArray  # (K, q) U

    def solve(self, vectors: FloatArray) -> FloatArray:
        """(r, K) C⁻¹ v of vectors (r, K)."""
        scaled = self.precision * vectors
        inner = np.matmul(self.core, (scaled @ self.indicators)[..., None])[..., 0]  # (r, q)
        solved: FloatArray = scaled - self.precision * (inner @ self.indicators.T)
        return solved

    def diagonal_of_inverse(self) -> FloatArray:
        """(r, K) the diagonal of C⁻¹."""
        taken = np.zeros_like(self.precision)
        for one in self.groups:
            for two in self.groups:
                taken += self.core[:, one, two]
        diagonal: FloatArray = self.precision - np.square(self.precision) * taken
        return diagonal

    def traces(self) -> list[FloatArray]:
        """For each effect (r,) tr(C⁻¹ Z Zᵀ), Z its columns of U."""
        seen = self.within - self.within @ self.core @ self.within
        diagonal = np.diagonal(seen, axis1=-2, axis2=-1)  # (r, q)
        return [diagonal[:, np.unique(group)].sum(axis=1) for group in self.groups]


def factored(
    diagonal: FloatArray, groups: Sequence[IntArray], amounts: Sequence[FloatArray]
) -> GroupedCovariances:
    """C of a diagonal (r, K) and effects: groups (K,) from 0 on, and the variance (r,) of each."""
    counts = [int(group.max()) + 1 for group in groups]
    begins = np.cumsum([0, *counts])
    columns = tuple(group + begin for group, begin in zip(groups, begins, strict=False))
    values, q = diagonal.shape[1], int(begins[-1])
    indicators = np.zeros((values, q))
    for column in columns:
        indicators[np.arange(values), column] = 1.0
    precision = 1.0 / diagonal
    within = _within(precision, indicators)
    each = np.stack([np.zeros(len(diagonal)), *amounts], axis=1)[:, 1:]  # there may be none
    root = np.sqrt(np.repeat(each, np.array(counts, dtype=np.int64), axis=1))  # (r, q)
    scaled = root[:, :, None] * within * root[:, None, :] + np.eye(q)
    core = root[:, :, None] * np.linalg.inv(scaled) * root[:, None, :]
    log_determinant = np.log(diagonal).sum(axis=1) + np.linalg.slogdet(scaled)[1]
    return GroupedCovariances(columns, precision, within, core, log_determinant, indicators)


def _within(precision: FloatArray, indicators: FloatArray) -> FloatArray:
    """(r, q, q) Uᵀ D⁻¹ U, some directions at a time."""
    some = max(1, NUMBERS // max(indicators.size, 1))
    parts = [
        (indicators.T * precision[begin : begin + some, None, :]) @ indicators
        for begin in range(0, len(precision), some)
    ]
    return np.concatenate(parts)

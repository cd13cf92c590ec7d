"""Covariances of K values of which some share effects, without a matrix of K × K numbers.

In each of r directions

    C = D + U A Uᵀ,   D diagonal, U (K, q) how far each value has each factor, A diagonal (q, q),

so by Woodbury's identity C⁻¹ = D⁻¹ − D⁻¹ U P Uᵀ D⁻¹ with P = A^½ M⁻¹ A^½ and
M = I + A^½ Uᵀ D⁻¹ U A^½, and log|C| = log|D| + log|M|. A direction costs K q² + q³ where a dense
inverse costs K³; with one effect that all values share, q = 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["FactoredCovariances", "factored", "membership"]

NUMBERS: Final = 1 << 21
"""Held at once while factors are added up: bounds memory, however many the directions are."""


@dataclass(frozen=True, eq=False)
class FactoredCovariances:
    """r covariances, factored."""

    factors: FloatArray  # (K, q) U
    ends: IntArray  # (effects + 1,) effect e has the columns of U from ends[e] to ends[e + 1]
    precision: FloatArray  # (r, K) 1 / D
    within: FloatArray  # (r, q, q) Uᵀ D⁻¹ U
    core: FloatArray  # (r, q, q) P
    log_determinant: FloatArray  # (r,)

    def solve(self, vectors: FloatArray) -> FloatArray:
        """(r, K) C⁻¹ v of vectors (r, K)."""
        scaled = self.precision * vectors
        inner = np.matmul(self.core, (scaled @ self.factors)[..., None])[..., 0]  # (r, q)
        solved: FloatArray = scaled - self.precision * (inner @ self.factors.T)
        return solved

    def diagonal_of_inverse(self) -> FloatArray:
        """(r, K) the diagonal of C⁻¹."""
        taken = np.zeros_like(self.precision)
        for some in _pieces(len(taken), self.factors.size):
            taken[some] = ((self.factors @ self.core[some]) * self.factors).sum(axis=-1)
        diagonal: FloatArray = self.precision - np.square(self.precision) * taken
        return diagonal

    def traces(self) -> list[FloatArray]:
        """For each effect (r,) tr(C⁻¹ Z Zᵀ), Z its columns of U."""
        seen = self.within - self.within @ self.core @ self.within
        diagonal = np.diagonal(seen, axis1=-2, axis2=-1)  # (r, q)
        spans = zip(self.ends[:-1], self.ends[1:], strict=True)
        return [diagonal[:, begin:end].sum(axis=1) for begin, end in spans]


def membership(group: IntArray) -> FloatArray:
    """(K, groups) 1 where a value belongs to a group; group: (K,) numbers from 0 on."""
    members: FloatArray = (group[:, None] == np.arange(int(group.max()) + 1)).astype(np.float64)
    return members


def factored(
    diagonal: FloatArray, effects: Sequence[FloatArray], amounts: Sequence[FloatArray]
) -> FactoredCovariances:
    """C of a diagonal (r, K) and effects: factors (K, ·) of each, and its variance (r,)."""
    counts = np.array([factors.shape[1] for factors in effects], dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)])
    values, q = diagonal.shape[1], int(ends[-1])
    together = np.concatenate([np.zeros((values, 0)), *effects], axis=1)
    precision = 1.0 / diagonal
    within = np.concatenate(
        [
            (together.T * precision[some, None, :]) @ together
            for some in _pieces(len(diagonal), together.size)
        ]
    )
    each = np.stack([np.zeros(len(diagonal)), *amounts], axis=1)[:, 1:]  # there may be none
    root = np.sqrt(np.repeat(each, counts, axis=1))  # (r, q)
    scaled = root[:, :, None] * within * root[:, None, :] + np.eye(q)
    core = root[:, :, None] * np.linalg.inv(scaled) * root[:, None, :]
    log_determinant = np.log(diagonal).sum(axis=1) + np.linalg.slogdet(scaled)[1]
    return FactoredCovariances(together, ends, precision, within, core, log_determinant)


def _pieces(directions: int, numbers: int) -> Iterator[slice]:
    """Some directions at a time, each of which needs so many numbers."""
    some = max(1, NUMBERS // max(numbers, 1))
    return (slice(begin, begin + some) for begin in range(0, directions, some))

"""Quadratic forms and the determinant of a symmetric matrix, without its eigenvectors.

    A = Q T Qᵀ, T = U diag(λ) Uᵀ tridiagonal:   yᵀ V f(λ) Vᵀ y = Σ_j f(λ_j) (Uᵀ Qᵀ y)_j²

V = Q U is never formed: the reflectors of Q are applied to the few vectors y. This takes two thirds
of the time of ``numpy.linalg.eigh``. The steps are LAPACK's ``sytrd``, ``ormqr`` and ``stevd``.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["floored_forms"]

_BLOCK = 64
"""Block size of LAPACK's work space, in columns."""


def floored_forms(matrix: FloatArray, floor: float, y: FloatArray) -> tuple[FloatArray, float]:
    """yᵢᵀ A⁻¹ yᵢ (n,) and log|A| of A, the matrix (d, d) with eigenvalues raised to ``floor`` > 0.

    matrix: symmetric; its lower triangle is read. y: (n, d).

    Guarantee: equal to the result from eigenvalues and eigenvectors, up to rounding.
    """
    values, along = _in_eigenvectors(matrix, y)
    values = np.maximum(values, floor)
    forms: FloatArray = (1.0 / values) @ np.square(along)
    return forms, float(np.log(values).sum())


def _in_eigenvectors(matrix: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (d,), ascending, and the coordinates (d, n) of y (n, d) along eigenvectors."""
    d = len(matrix)
    if d < 3 or not len(y):  # SciPy's wrappers accept no empty arrays of reflectors
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors.T @ y.T
    from scipy.linalg import lapack  # takes a while to load, and most runs need none of it

    copy = np.array(matrix.T, order="F", dtype=np.float64)
    reduced, diagonal, beside, factors, info = lapack.dsytrd(
        copy, lower=1, lwork=d * _BLOCK, overwrite_a=1
    )
    turned = np.array(y.T, order="F", dtype=np.float64)
    turned[1:], _, more = lapack.dormqr(
        "L", "T", reduced[1:, :-1], factors, turned[1:], lwork=len(y) * _BLOCK
    )
    values, vectors, last = lapack.dstevd(diagonal, beside)
    if info or more or last:
        raise np.linalg.LinAlgError("eigenvalues did not converge")
    return values, vectors.T @ turned

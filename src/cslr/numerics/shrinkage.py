"""Covariances of few samples, shrunk towards a multiple of the identity by a closed form.

The eigenvectors stay, and so does the trace. Small eigenvalues, which few samples underestimate,
down to zero where there are fewer samples than dimensions, are raised, and large ones lowered.

Reference: Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
estimation", IEEE Transactions on Signal Processing 58(10), 2010, eq. (23), the oracle approximating
shrinkage (OAS), without its terms in 2/d, which vanish in high dimension; so does scikit-learn.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["oas_intensity", "shrunk_covariance"]


def oas_intensity(covariance: FloatArray, samples: float) -> float:
    """ρ in [0, 1], the weight of the identity: about effective rank / samples if small.

        ρ = (tr S² + tr² S) / ((n + 1) (tr S² − tr² S / d))

    covariance: (d, d) S of ``samples`` n independent samples around a known mean. A multiple of the
    identity, zero included, has ρ = 1, and shrinking does not change it.
    """
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"covariance must be a square matrix, got shape {covariance.shape}")
    if not np.isfinite(covariance).all():
        raise ValueError("covariance must be finite")
    if not samples > 0:
        raise ValueError(f"samples must be greater than 0, not {samples:g}")
    squares = float(np.square(covariance).sum())
    trace_squared = float(np.trace(covariance)) ** 2
    unequal = (samples + 1.0) * (squares - trace_squared / len(covariance))
    if unequal <= 0:
        return 1.0
    return min(1.0, (squares + trace_squared) / unequal)


def shrunk_covariance(covariance: FloatArray, samples: float) -> FloatArray:
    """(d, d) (1 − ρ) S + ρ (tr S / d) I with ρ of ``oas_intensity``; of the same trace as S."""
    intensity = oas_intensity(covariance, samples)
    shrunk: FloatArray = (1.0 - intensity) * covariance
    shrunk[np.diag_indices_from(shrunk)] += intensity * np.trace(covariance) / len(covariance)
    return shrunk

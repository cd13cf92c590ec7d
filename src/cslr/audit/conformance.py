"""White box: whether releases contain the noise that is charged for.

The residual, release minus exact sum, must have the claimed noise distribution. Less noise violates
the guarantee; more noise spoils the release and indicates a defect elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

__all__ = ["Conformance", "conforms"]


@dataclass(frozen=True)
class Conformance:
    """How the measured noise compares with the claimed noise."""

    ratio: float
    """Root mean square of the residuals over the claimed standard deviation."""
    p: float
    """Probability, under the claim, of a ratio at least as far off in either direction."""
    alarm: bool
    """Whether p is below the alarm level: the noise is not what is claimed."""


def conforms(residuals: ArrayLike, sigma_steps: float, alarm: float = 1e-6) -> Conformance:
    """Compare residuals (released minus exact sum, any shape) with noise of ``sigma_steps``.

    Both are in grid steps (``noise_in_steps``), or both in another unit.

    Guarantee: an honest mechanism alarms with probability ``alarm``. Under the claim
    Σ (residual/σ)² is χ² with one degree of freedom per residual, up to the resolution of the grid:
    at σ ≥ 2¹² steps the difference is far below double precision. At the default level a relative
    error of σ of about 3.5/√n is detected with probability ½: 0.35 % with 10⁶ residuals.
    """
    sample = np.asarray(residuals, dtype=np.float64).ravel()
    if not sample.size:
        raise ValueError("residuals must not be empty")
    if not np.isfinite(sample).all():
        raise ValueError("residuals must be finite")
    if not (math.isfinite(sigma_steps) and sigma_steps > 0):
        raise ValueError(f"sigma_steps must be positive and finite, not {sigma_steps}")
    if not 0 < alarm < 1:
        raise ValueError(f"alarm must lie strictly between 0 and 1, not {alarm}")
    squared = float(np.square(sample / sigma_steps).sum())
    law = chi2(sample.size)
    p = min(1.0, 2.0 * min(float(law.cdf(squared)), float(law.sf(squared))))
    return Conformance(math.sqrt(squared / sample.size), p, p < alarm)

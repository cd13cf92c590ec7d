"""Whole second moments, as the paper releases them: Σ = M − μμᵀ, symmetrised and floored.

r (r + 1) / 2 noisy numbers determine a covariance poorly, so it is shrunk towards the public shape
according to the noise, like every other release.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.numerics.linear_algebra import onto_psd
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step4_aggregate.contribution import unfolded

__all__ = ["full_covariances"]

UNSURE: Final = 0.5
"""Relative doubt that a mode spreads as the public shape does, direction by direction."""
FLOOR: Final = 0.05
"""λ_min, relative to the public variance of an average direction."""


def full_covariances(
    second: FloatArray, noise: FloatArray, mean: FloatArray, space: PublicSpace
) -> tuple[FloatArray, float]:
    """(K, r, r) covariances, and the share of eigenvalues that noise had pushed below the floor.

    second: (K, r (r + 1) / 2) folded E[x xᵀ] with noise of variance ``noise`` (K,), ∞ if unseen.
    """
    r = space.dimension
    public = space.shape[:r, :r]
    sigma = unfolded(second, r) - mean[:, :, None] * mean[:, None, :]
    doubt = np.square(UNSURE * np.trace(public) / r) / r  # a matrix entry's share of the doubt
    trust = (doubt / (doubt + noise))[:, None, None]
    shrunk = np.where(
        np.isfinite(noise)[:, None, None], trust * sigma + (1 - trust) * public, public
    )
    floor = FLOOR * float(np.trace(public)) / r
    below = float(np.mean(np.linalg.eigvalsh(shrunk) < floor))
    return onto_psd(shrunk, floor), below

"""Lines 8 to 13 of Algorithm 1: from noised sums to Q_t, as written. Post-processing.

μ̄_k and M̄_k are sums over the cohort divided by its expected size (the realised one is private);
Σ̄_k = M̄_k − μ̄_k μ̄_kᵀ, symmetrised, with eigenvalues of at least λ_min; π̄ is projected onto the
simplex. There is no shrinkage, and label texts are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.numerics.linear_algebra import onto_simplex, unfolded
from cslr.numerics.mixture import Gaussians, from_moments
from cslr.paper_constants import PaperConstants
from cslr.protocol.head import Family, softmax
from cslr.protocol.step4_aggregate.contribution import Statistics

__all__ = ["WrittenModes", "written_modes"]

LEAST_WEIGHT: Final = 0.02
"""Lower limit of the Σπ by which a mode's sums are divided, as a share of the expected cohort."""


@dataclass(frozen=True, eq=False)
class WrittenModes:
    """PUBLIC. The modes of one task."""

    weights: FloatArray  # (K,) π̂, on the simplex
    gaussians: Gaussians  # (K, r), full
    targets: FloatArray  # (K, outputs)
    floored: float
    """Share of the variances of single directions that were below λ_min before the projection."""


def written_modes(
    sums: Statistics,
    cohort: float,
    paper: PaperConstants,
    family: Family,
    groups: Sequence[tuple[int, ...]],
    elected: FloatArray | None = None,
) -> WrittenModes:
    """The modes of released sums (K, ·) over an expected cohort; elected: (K, r) selected means.

    groups: (K,) the labels that each mode may be about.
    """
    by = np.full(len(sums.weight), cohort)
    if paper.division == "weights":
        by = np.maximum(sums.weight, LEAST_WEIGHT * cohort)
    r = sums.offset.shape[1] if elected is None else elected.shape[1]
    mean = sums.offset / by[:, None] if elected is None else elected
    second = unfolded(sums.second / by[:, None], r)
    variance = np.einsum("kii->ki", second) - np.square(mean)
    return WrittenModes(
        onto_simplex(sums.weight / cohort),
        from_moments(mean, second, paper.lambda_min),
        _targets(sums.target / by[:, None], paper, family, groups),
        float(np.mean(variance < paper.lambda_min)),
    )


def _targets(
    released: FloatArray, paper: PaperConstants, family: Family, groups: Sequence[tuple[int, ...]]
) -> FloatArray:
    """(K, outputs) r̄_k: softmax of logits over the mode's labels; frequencies and masks projected.

    Outputs of labels that the mode cannot be about are zero.
    """
    of_output = family.label_of_output()
    possible = np.stack([np.isin(of_output, group) for group in groups])
    if family.name == "classification":
        return softmax(np.where(possible, paper.logit_scale * released, -np.inf))
    return family.projected(np.where(possible, released, 0.0)) * possible

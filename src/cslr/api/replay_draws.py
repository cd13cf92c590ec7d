"""Draws from the released replay Q_{1:t} of a model. Post-processing, so they cost no ε."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.seeding import Seeds

__all__ = ["ReplayDraws"]


@dataclass(frozen=True, eq=False)
class ReplayDraws:
    """A mixture of Gaussians over embeddings with a label for each mode."""

    arrays: Mapping[str, FloatArray]
    """``replay.safetensors`` of a run."""
    classes: NDArray[np.str_]  # (c,)

    def __repr__(self) -> str:
        modes, labels = int(self._known.sum()), len(np.unique(self._labels[self._known]))
        return f"{type(self).__name__}({modes} modes of {labels} labels)"

    def sample(
        self, n: int, seed: int | np.random.Generator = 0
    ) -> tuple[FloatArray, NDArray[np.str_]]:
        """Embeddings (n, d) and the labels (n,) of the modes they were drawn from.

        Modes are drawn by their released weights. The same seed gives the same draws. In directions
        that were not released, draws are at the public centre.
        """
        if n < 0:
            raise ValueError(f"n must not be negative: {n}")
        rng = seed if isinstance(seed, np.random.Generator) else Seeds(seed).at("replay draws")
        known_modes = np.flatnonzero(self._known)
        weights = self.arrays["weights"][known_modes]
        total = weights.sum()
        share = weights / total if total > 0 else np.full(len(known_modes), 1 / len(known_modes))
        modes = known_modes[rng.choice(len(known_modes), size=n, p=share)]
        mean = self.arrays["mean"]
        white = rng.standard_normal((n, mean.shape[1]))
        x = mean[modes] + _shaped(white, self.arrays["variance"], modes)
        directions = self.arrays["basis"][:, : mean.shape[1]]
        z: FloatArray = (x @ directions.T + self.arrays["centre"]).astype(np.float32)
        return z, self.classes[self._labels[modes]]

    @property
    def _labels(self) -> IntArray:
        return self.arrays["labels"].astype(np.int64)

    @property
    def _known(self) -> BoolArray:
        """(K,) the modes that were released; before any release, all modes of the label texts."""
        is_known = self.arrays["known"] > 0
        return is_known if is_known.any() else np.ones_like(is_known)


def _shaped(white: FloatArray, variance: FloatArray, modes: IntArray) -> FloatArray:
    """(n, r) white noise with the modes' variances (K, r) or covariances (K, r, r)."""
    if variance.ndim == 2:
        scaled: FloatArray = white * np.sqrt(variance[modes])
        return scaled
    factors = np.linalg.cholesky(variance)
    shaped: FloatArray = np.einsum("nij,nj->ni", factors[modes], white)
    return shaped

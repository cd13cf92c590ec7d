"""Stand-ins for other encoders, derived from one model: ``minilm+rotated``, ``minilm+cut-128``.

For experiments with several encoders when only one model is installed. Each changes the
coordinates of that model:

    rotated     a random rotation: no information is lost, and all coordinates change
    cut-K       a rotation of which K coordinates are kept
    noisy-S     a rotation, plus S times a vector of unit length that depends on the text alone

They are public functions of an embedding, so only the model's own embedding is cached. Another
layer of the same model (``minilm+layer-3``) is no such function: see ``WordMeans``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import EncoderError
from cslr.numerics.linear_algebra import row_by_row
from cslr.seeding import Seeds

if TYPE_CHECKING:
    from cslr.text.encoders import Encoder

__all__ = ["Derived", "derived"]

_NAME: Final = re.compile(r"rotated|cut-[1-9]\d*|noisy-\d+(\.\d+)?")
_FREQUENCY: Final = 997.0
"""High enough that similar embeddings get unrelated noise."""


@dataclass(frozen=True, eq=False)
class Derived:
    """An encoder whose vectors are a fixed function of another's."""

    base: Encoder
    name: str
    change: Callable[[FloatArray], FloatArray]
    dimension: int

    @property
    def id(self) -> str:
        """The id of the base encoder, and the name of the change."""
        return f"{self.base.id}+{self.name}"

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts."""
        return self.change(self.base.encode(texts))


def derived(base: Encoder, name: str) -> Derived:
    """The stand-in called ``name``."""
    if not _NAME.fullmatch(name):
        raise EncoderError(
            f"unknown stand-in {name!r}; use rotated, cut-K, noisy-S or layer-N, as in "
            "'minilm+cut-128'"
        )
    kind, _, value = name.partition("-")
    d = base.dimension
    kept = int(value) if kind == "cut" else d
    if kept > d:
        raise EncoderError(f"{name}: the encoder has only {d} coordinates")
    rotation = np.linalg.qr(Seeds(0).at("stand-in", name).standard_normal((d, d)))[0]
    noise = float(value) if kind == "noisy" else 0.0

    def change(z: FloatArray) -> FloatArray:
        turned = z @ rotation[:, :kept]
        if noise:
            turned = turned + noise * _unit(np.sin(_FREQUENCY * turned @ rotation))
        return _unit(turned).astype(np.float32)

    return Derived(base, name, partial(row_by_row, change), kept)


def _unit(z: FloatArray) -> FloatArray:
    unit: FloatArray = z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1e-12)
    return unit

"""Short numeric summaries of public data for the plan, compared within a tolerance.

Embeddings of the same sentences differ between machines in their last bits. What follows from them
then differs too: mostly as little, but sentences that are as near as each other to a topic may
change places, and directions of nearly equal variance turn into each other. A sketch is a list of
numbers that moves little when that happens and much when sentences, label texts or an encoder are
others. ``records.agree`` compares two of them: the Euclidean distance may be at most ``within``.

    centre, texts      random projections: their distance is about that of the vectors themselves
    spectrum, bounds   logarithms, so that a distance is a relative one
    others             seen through B = Σ b_i v_i v_iᵀ / b_1, the public between-topic covariance:
                       neither the sign of a direction nor a turn among equal ones changes it

The projections have entries ±1/√k (Achlioptas 2003) from SHAKE-256: the same on every machine and
with every version of NumPy.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.privacy.ledger.records import Sketch
from cslr.protocol.public_space import Modes, PublicSpace

__all__ = ["bounds_sketch", "modes_facts", "space_facts"]

CENTRE_WITHIN: Final = 3e-5
"""Of the length 1 that embeddings have. Errors of 1e-6 in every entry of all public embeddings, the
same in all of them, move the centre by 2e-5 in 384 dimensions; errors that differ from sentence to
sentence much less. One other sentence among 10,000 moves it by about 1e-4."""
TEXT_WITHIN: Final = 1e-4
"""The same for a label text: errors of 1e-6 move it by 2e-5, a changed word by 1e-2 or more."""
TOPIC_WITHIN: Final = 0.01
"""Relative, for what depends on which sentences are neighbours: a few of them change places."""
PROTOTYPE_WITHIN: Final = 0.02
"""Of the length 1 of embeddings, for each mode: sentences that stand for a label may change."""
BOUND_WITHIN: Final = 0.02
"""Relative, for a quantile over simulated clients of public sentences."""
_LEADING: Final = 8
_MANY: Final = 64
_FEW: Final = 8


def space_facts(space: PublicSpace) -> dict[str, object]:
    """The plan's facts about the public space."""
    seen = _through(space)  # (d, r)
    signs = _probes("anchors", _FEW, len(space.anchors)) * np.sqrt(_FEW / len(space.anchors))
    anchors = (space.anchors * _weights(space)) @ (signs @ space.anchors).T  # (m, few)
    anchors = _probes("of anchors", _FEW, len(anchors)) @ anchors
    centre = _probes("centre", _MANY, len(space.centre)) @ space.centre
    probes = _probes("directions", _MANY, len(space.centre))
    ambient = probes @ space.basis  # (many, d)
    return {
        "encoder": space.encoder,
        "centre": Sketch.of(centre, CENTRE_WITHIN),
        "spectrum": Sketch.of(_logs(_spectrum(space)), TOPIC_WITHIN * np.sqrt(_LEADING)),
        "directions": Sketch.of(_unit(np.square(probes @ seen).sum(axis=1)), TOPIC_WITHIN),
        "shape": Sketch.of(
            _unit(np.einsum("ki,ij,kj->k", ambient, space.within, ambient)), TOPIC_WITHIN
        ),
        "anchors": Sketch.of(_unit(anchors), TOPIC_WITHIN),
    }


def modes_facts(modes: Modes, space: PublicSpace) -> dict[str, object]:
    """The plan's facts about the prototypes."""
    seen = _through(space) * np.sqrt(_weights(space))
    means = modes.prototypes.mean @ seen.T  # (K, d)
    facts: dict[str, object] = {
        "labels": modes.labels.tolist(),
        "means": Sketch.of(
            means @ _probes("prototypes", _FEW, means.shape[1]).T,
            PROTOTYPE_WITHIN * np.sqrt(len(means)),
        ),
    }
    if modes.texts is not None:
        projected = modes.texts @ _probes("texts", _FEW, modes.texts.shape[1]).T
        facts["texts"] = [Sketch.of(each, TEXT_WITHIN) for each in projected]
    return facts


def bounds_sketch(bounds: tuple[float, ...]) -> Sketch:
    """The clipping bounds."""
    return Sketch.of(_logs(np.array(bounds)), BOUND_WITHIN)


def _spectrum(space: PublicSpace) -> FloatArray:
    """(8 + 1,) the largest between-topic variances, and all within-topic variance."""
    return np.append(space.between[:_LEADING], np.trace(space.within))


def _weights(space: PublicSpace) -> FloatArray:
    """(r,) b_i / b_1 of the released directions."""
    weights: FloatArray = space.between[: space.dimension] / space.between[0]
    return weights


def _through(space: PublicSpace) -> FloatArray:
    """(d, r) the released directions, each times √(b_i / b_1)."""
    through: FloatArray = space.basis[:, : space.dimension] * np.sqrt(_weights(space))
    return through


def _probes(name: str, count: int, width: int) -> FloatArray:
    """(count, width) ±1/√count: a product with them keeps the length of a vector, on average."""
    bits = hashlib.shake_256(f"cslr/sketch/1/{name}".encode()).digest(-(-count * width // 8))
    signs = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[: count * width]
    probes: FloatArray = (2.0 * signs - 1.0).reshape(count, width) / np.sqrt(count)
    return probes


def _logs(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    return logs


def _unit(values: FloatArray) -> FloatArray:
    """Of length 1: a distance is then a relative one."""
    unit: FloatArray = values / max(float(np.linalg.norm(values)), np.finfo(np.float64).tiny)
    return unit

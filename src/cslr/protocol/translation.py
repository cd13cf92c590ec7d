"""Common coordinates for clients with different encoders, and the way back.

Every client embeds the same public sentences with its own encoder. With these embeddings, its texts
can be described in coordinates that are comparable across clients:

    projection   all clients run the reference encoder; its embeddings are the coordinates
    mapped       a ridge map from a client's encoder to the reference encoder
    relative     similarities to the anchors, each standardised over the public sentences

Everything here is fitted on ``PublicEmbeddings`` alone, so it is public, and it is computed on the
device. Clients whose public sentences differ are refused, by the digest of the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.errors import DataError
from cslr.numerics.linear_algebra import row_by_row

__all__ = [
    "Affine",
    "PublicEmbeddings",
    "Translation",
    "check_same_corpus",
    "corpus_digest",
    "fit_map",
    "identity",
    "mapped",
    "missed",
    "relative",
    "translation_from",
    "untranslated",
]

_HELD_OUT: Final = 5
"""Every fifth public sentence is held out from a map, to choose the ridge and measure the error."""
_RIDGES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridges tried, as shares of the mean variance of the source."""
_STEADY: Final = 1.0
"""The ridge of the map back from similarities. In most directions similarities hardly vary over
sentences; with the ridge that fits sentences best, the map would amplify what the means of a replay
have there."""


@dataclass(frozen=True, eq=False)
class PublicEmbeddings:
    """PUBLIC. The embeddings of the public sentences; maps are fitted on no other text."""

    encoder: str
    corpus: str
    """Digest of the sentences, in their order."""
    z: FloatArray  # (n, d)


@dataclass(frozen=True, eq=False)
class Affine:
    """z (…, a) -> z matrix + offset (…, b), scaled to unit length."""

    matrix: FloatArray  # (a, b)
    offset: FloatArray  # (b,)

    def __call__(self, z: FloatArray) -> FloatArray:
        moved = z @ self.matrix + self.offset
        unit: FloatArray = moved / np.maximum(np.linalg.norm(moved, axis=-1, keepdims=True), 1e-12)
        return unit


@dataclass(frozen=True, eq=False)
class Translation:
    """PUBLIC. From one encoder's embeddings to the common coordinates, and back."""

    encoder: str
    corpus: str
    into: Affine | None
    """None: the embeddings are the common coordinates."""
    back: Affine | None
    error: float
    """Held-out share of the variance of public sentences that is lost: in mapping back from common
    coordinates, or with ``mapped`` in predicting the reference embeddings."""

    def common(self, z: FloatArray) -> FloatArray:
        """(…, d) of this encoder -> common coordinates; the bits of a row depend on it alone."""
        return z if self.into is None else row_by_row(self.into, z)

    def own(self, z: FloatArray) -> FloatArray:
        """Common coordinates, for example of replay -> (…, d) of this encoder."""
        return z if self.back is None else self.back(z)


def translation_from(arrays: Mapping[str, FloatArray], encoder: str) -> Affine | None:
    """The map of an encoder to common coordinates; None: its embeddings are those coordinates."""
    if f"{encoder} matrix" not in arrays:
        return None
    return Affine(arrays[f"{encoder} matrix"], arrays[f"{encoder} offset"])


def corpus_digest(sentences: Iterable[str]) -> str:
    """A digest of a public corpus: of its sentences and their order."""
    sha = hashlib.sha256()
    for sentence in sentences:
        content = sentence.encode()
        sha.update(len(content).to_bytes(8, "little") + content)
    return sha.hexdigest()[:16]


def identity(public: PublicEmbeddings) -> Translation:
    """The reference encoder's own translation."""
    return Translation(public.encoder, public.corpus, None, None, 0.0)


def mapped(embeddings: PublicEmbeddings, reference: PublicEmbeddings) -> Translation:
    """Ridge maps between a client's encoder and the reference encoder, in both directions."""
    check_same_corpus([embeddings, reference])
    if embeddings.encoder == reference.encoder:
        return identity(embeddings)
    into, error = fit_map(embeddings.z, reference.z)
    back, _ = fit_map(reference.z, embeddings.z)
    return Translation(embeddings.encoder, embeddings.corpus, into, back, error)


def untranslated(embeddings: PublicEmbeddings, reference: PublicEmbeddings) -> Translation:
    """For comparison only: coordinates are reused unchanged, although they mean something else."""
    if embeddings.encoder == reference.encoder:
        return identity(embeddings)
    shape = (embeddings.z.shape[1], reference.z.shape[1])
    into, back = (Affine(np.eye(*each), np.zeros(each[1])) for each in (shape, shape[::-1]))
    return Translation(
        embeddings.encoder, embeddings.corpus, into, back, missed(reference.z, into(embeddings.z))
    )


def relative(embeddings: PublicEmbeddings, anchors: IntArray) -> Translation:
    """Similarities to the public sentences at ``anchors``: the same m of them for every encoder.

    Embeddings are centred at the mean of the public sentences, and each similarity is divided by
    its standard deviation over them, so neither location nor scale of a space matters.
    """
    centre = embeddings.z.mean(axis=0)
    directions = (embeddings.z[anchors] - centre).T  # (d, m)
    similarity = (embeddings.z - centre) @ directions
    scale = np.maximum(similarity.std(axis=0), 1e-12)
    middle = similarity.mean(axis=0)
    into = Affine(directions / scale, -(centre @ directions + middle) / scale)
    common = into(embeddings.z)
    _, error = fit_map(common, embeddings.z)
    back = _ridge(common, embeddings.z, _STEADY)
    return Translation(embeddings.encoder, embeddings.corpus, into, back, error)


def fit_map(source: FloatArray, target: FloatArray) -> tuple[Affine, float]:
    """The ridge map of source (n, a) to target (n, b), and its error on held-out sentences.

    The error is the share of the target's variance that is not explained; the ridge is the best of
    a few.
    """
    held = np.arange(len(source)) % _HELD_OUT == 0
    maps = [_ridge(source[~held], target[~held], ridge) for ridge in _RIDGES]
    errors = [missed(target[held], each(source[held])) for each in maps]
    best = int(np.argmin(errors))
    return _ridge(source, target, _RIDGES[best]), errors[best]


def missed(target: FloatArray, predicted: FloatArray) -> float:
    """Share of the variance of ``target`` that ``predicted`` does not explain."""
    return float(
        np.square(predicted - target).sum() / np.square(target - target.mean(axis=0)).sum()
    )


def check_same_corpus(embeddings: Sequence[PublicEmbeddings]) -> None:
    """Refuse clients that do not hold the same public sentences in the same order."""
    first = embeddings[0]
    for other in embeddings[1:]:
        if other.corpus != first.corpus or len(other.z) != len(first.z):
            raise DataError(
                f"the public sentences of {other.encoder} ({other.corpus}, {len(other.z)}) "
                f"differ from those of {first.encoder} ({first.corpus}, {len(first.z)}); all "
                "clients need the same file of public sentences, byte for byte"
            )


def _ridge(source: FloatArray, target: FloatArray, share: float) -> Affine:
    centre, middle = source.mean(axis=0), target.mean(axis=0)
    x, y = source - centre, target - middle
    gram = x.T @ x
    ridge = share * np.trace(gram) / len(gram)
    matrix = np.linalg.solve(gram + ridge * np.eye(len(gram)), x.T @ y)
    return Affine(matrix, middle - centre @ matrix)

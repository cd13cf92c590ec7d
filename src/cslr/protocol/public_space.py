"""The public space that clients and server fix before any private row is read.

A public corpus is embedded once. Sentences that are near each other form local topics. How topics
differ gives the directions in which classes are likely to differ (``basis``, ``between``); how
sentences differ within a topic gives the shape of a class (``within``). Coordinates are
x = Vᵀ(z − c). The first r of them are released, the rest is described by public statistics only.
Few sentences determine few directions: both covariances are shrunk towards the identity according
to the number of sentences, and at most half as many directions are released as there are sentences.

Nothing here may be computed from client data: the anchors, the directions and the label priors
are part of the plan that is fixed before the first release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.linear_algebra import shrunk_covariance
from cslr.numerics.mixture import Gaussians, fit

__all__ = [
    "Modes",
    "PublicSpace",
    "build_space",
    "clearness",
    "declare_modes",
    "known_directions",
]

TOPICS: Final = 1000
"""Most local topics that are formed, each around a random public sentence."""
NEIGHBOURS: Final = 20
"""Sentences in a local topic."""
LEAST_SENTENCES: Final = 2
"""Least public sentences for each released direction: n sentences around their mean span n − 1
directions, and the last of these are determined by chance."""
PRIOR_SHARE: Final = 0.04
"""Share of the public sentences that represent a label."""
SENTENCES_HALF: Final = 1.0
"""The ``clearness`` at which sentences count as much as the label text."""
SHAPE_POWER: Final = 0.5
"""A mode spreads as the public within-topic covariance to this power.

With 1 a head whitens, and so relies on directions in which the means are mostly noise; with 0 it
ignores what is publicly known about the shape of a class."""
FEW_ROWS: Final = 32
"""Units with fewer rows are projected together: a product per unit would be too small."""
BLOCK: Final = 192
"""Rows of such a product, a multiple of the tile sizes of matrix libraries."""


@dataclass(frozen=True)
class PublicSpace:
    """The coordinates of one encoder, or common ones into which other encoders are translated."""

    encoder: str
    centre: FloatArray  # (d,)
    basis: FloatArray  # (d, d), orthonormal columns, by falling ``between``
    between: FloatArray  # (d,) variance of topic means along each direction
    within: FloatArray  # (d, d) covariance of sentences around their topic, in this basis
    dimension: int  # r
    anchors: FloatArray  # (m, r)

    @property
    def spread(self) -> FloatArray:
        """(r,) variance of public sentences along the released directions."""
        return (self.between + np.diagonal(self.within))[: self.dimension]

    @cached_property
    def shape(self) -> FloatArray:
        """(d, d) covariance of a mode in this basis: within-topic, tempered by ``SHAPE_POWER``.

        Its trace is the total public variance.
        """
        return self._shape(self.within, SHAPE_POWER)

    @cached_property
    def whole_shape(self) -> FloatArray:
        """As ``shape`` for modes of words, which occur in any topic: from the total covariance."""
        return self._shape(self.within + np.diag(self.between), SHAPE_POWER)

    @cached_property
    def plain_shape(self) -> FloatArray:
        """As ``shape``, not tempered: the expected covariance of a mode's texts."""
        return self._shape(self.within, 1.0)

    def _shape(self, covariance: FloatArray, power: float) -> FloatArray:
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-3 * values.max()) ** power
        values *= (self.between.sum() + np.trace(self.within)) / values.sum()
        shape: FloatArray = (vectors * values) @ vectors.T
        return shape

    def into(self, z: FloatArray) -> FloatArray:
        """Embeddings (..., d) -> released coordinates (..., r)."""
        directions = self.basis[:, : self.dimension]
        if z.ndim > 2 and z.shape[-2] < FEW_ROWS:
            return _in_blocks(z, directions, self._middle)
        return z @ directions - self._middle

    @cached_property
    def _middle(self) -> FloatArray:
        """(r,) the centre along the released directions."""
        middle: FloatArray = self.centre @ self.basis[:, : self.dimension]
        return middle

    def lift(self, x: FloatArray) -> FloatArray:
        """All coordinates (..., d) -> embeddings (..., d)."""
        return x @ self.basis.T + self.centre

    def digest(self) -> str:
        """A digest of all numbers, to the last bit; plans are compared by sketches instead."""
        sha = hashlib.sha256(f"{self.encoder}/{self.dimension}".encode())
        for array in (self.centre, self.basis, self.between, self.within, self.anchors):
            sha.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return sha.hexdigest()[:32]


def _in_blocks(z: FloatArray, directions: FloatArray, centre: FloatArray) -> FloatArray:
    """z (b, n, d) times directions (d, r) minus centre (r,), in products of equal shape.

    The last one is padded with zeros, so that the bits of a row depend neither on its position nor
    on the other rows.
    """
    rows = z.reshape(-1, z.shape[-1]).astype(np.float64)
    short = -len(rows) % BLOCK
    filled = np.concatenate([rows, np.zeros((short, rows.shape[1]))]) if short else rows
    product = np.empty((len(filled), directions.shape[1]))
    for begin in range(0, len(filled), BLOCK):
        np.matmul(filled[begin : begin + BLOCK], directions, out=product[begin : begin + BLOCK])
    product -= centre
    return product[: len(rows)].reshape(*z.shape[:-1], directions.shape[1])


def known_directions(sentences: int) -> int:
    """The maximum number of released directions for so many public sentences; at least one."""
    return max(1, sentences // LEAST_SENTENCES)


def build_space(
    z: FloatArray,
    encoder: str,
    dimension: int,
    anchors: int,
    rng: np.random.Generator,
    anchor_kind: str = "sentences",
) -> PublicSpace:
    """The space of a public corpus z (n, d) with its anchors, fixed per stream.

    dimension: directions to release; fewer if the encoder has fewer or the corpus is too small.
    Covariances are shrunk as those of n samples: topics overlap, so they do not have as many
    independent members as they have members. anchor_kind: ``sentences`` of the corpus;
    ``synthetic`` embeddings, drawn with the corpus's mean and variances; or ``random`` directions,
    as far from the centre as sentences are.
    """
    n, d = z.shape
    if n < max(anchors, 2 * NEIGHBOURS):
        raise ValueError(f"z: {n} public sentences are not enough for {anchors} anchors")
    z = z.astype(np.float64)
    centre = z.mean(axis=0)
    means, residuals = _local_topics(z - centre, rng)
    within = shrunk_covariance(residuals.T @ residuals / len(residuals), n)
    spectrum, basis = np.linalg.eigh(shrunk_covariance(means.T @ means / len(means), n))
    order = np.argsort(-spectrum, kind="stable")
    basis = _signed(basis[:, order])
    dimension = min(dimension, d, known_directions(n))
    space = PublicSpace(
        encoder=encoder,
        centre=centre,
        basis=basis,
        between=np.maximum(spectrum[order], 1e-9),
        within=basis.T @ within @ basis,
        dimension=dimension,
        anchors=np.zeros((0, dimension)),
    )
    return replace(space, anchors=_anchors(space, z, anchors, rng, anchor_kind))


def _anchors(
    space: PublicSpace, z: FloatArray, count: int, rng: np.random.Generator, kind: str
) -> FloatArray:
    """(m, r) the points at which signatures are evaluated."""
    if kind == "sentences":
        return space.into(z[np.sort(rng.choice(len(z), size=count, replace=False))])
    white: FloatArray = rng.standard_normal((count, space.dimension))
    if kind == "synthetic":
        drawn: FloatArray = white * np.sqrt(space.spread)
        return drawn
    if kind == "random":
        length = np.sqrt(space.spread.sum())
        directions: FloatArray = white * (length / np.linalg.norm(white, axis=1, keepdims=True))
        return directions
    raise ValueError(f"anchor_kind must be sentences, synthetic or random, not {kind!r}")


def _local_topics(x: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Means (t, d) of the neighbourhoods of random sentences, and all deviations from them."""
    size = max(2, min(NEIGHBOURS, len(x) // 20))
    seeds = rng.choice(len(x), size=min(TOPICS, len(x)), replace=False)
    near = x[seeds] @ x.T
    members = np.argpartition(np.negative(near, out=near), size, axis=1)[:, :size]
    topics = x[members]  # (t, size, d)
    means = topics.mean(axis=1)
    topics -= means[:, None]
    topics *= np.sqrt(size / (size - 1))
    return means - means.mean(axis=0), topics.reshape(-1, x.shape[1])


def _signed(basis: FloatArray) -> FloatArray:
    """The sign of an eigenvector is arbitrary: make its largest entry positive."""
    largest = np.abs(basis).argmax(axis=0)
    signed: FloatArray = basis * np.sign(basis[largest, np.arange(basis.shape[1])])
    return signed


@dataclass(frozen=True)
class Modes:
    """The modes of all groups of labels: J per group, in their order. Public.

    A group is one label, so that a mode determines the answer, or all labels of a task
    (``pooled``), so that only its target does.
    """

    groups: tuple[tuple[int, ...], ...]
    group: IntArray  # (K,) the group of each mode
    prototypes: Gaussians  # (K, r), diagonal
    from_texts: bool
    """Whether the prototypes depend on the label texts (``prior = "labels"``)."""
    candidates: FloatArray | None = None  # (G, V, r) public means that may be selected
    texts: FloatArray | None = None  # (c, d) or (c J, d) what the prototypes were made from

    @property
    def labels(self) -> IntArray:
        """(K,) the label of each mode; the first one if its group has several."""
        return np.array([group[0] for group in self.groups], dtype=np.int64)[self.group]

    @property
    def pooled(self) -> bool:
        """Whether a mode may be about several labels."""
        return any(len(group) > 1 for group in self.groups)

    def groups_of(self, labels: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The groups of a task with these labels, in their order."""
        if labels in self.groups:
            return (labels,)
        return tuple((label,) for label in labels)

    def of_groups(self, groups: tuple[tuple[int, ...], ...]) -> IntArray:
        """Indices of the modes of these groups, in the order of ``groups``."""
        number = {group: index for index, group in enumerate(self.groups)}
        numbers = [number[group] for group in groups]
        order = np.argsort(self.group, kind="stable")
        sorted_groups = self.group[order]
        begins = np.searchsorted(sorted_groups, numbers)
        ends = np.searchsorted(sorted_groups, numbers, side="right")
        modes = [order[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *modes])


def declare_modes(
    space: PublicSpace,
    public: FloatArray,
    texts: FloatArray,
    sub_modes: int,
    prior: str,
    rng: np.random.Generator,
    groups: Iterable[tuple[int, ...]] | None = None,
    *,
    candidates: int = 0,
    topics: FloatArray | None = None,
) -> Modes:
    """Prototypes of J modes per group, from public sentences and label texts alone.

    public: (n, d) the corpus; texts: (c, d) embedded label texts. With ``prior = "labels"`` a
    label is represented by its text and by the public sentences that prefer it to every other
    label's; with ``"none"`` all labels share prototypes made from the whole corpus. groups: the
    label groups that modes describe; None: each label alone. candidates: V, the public means to
    select from. topics: (c, J, d) texts about the J topics of each label, one for each mode.
    """
    if topics is not None:
        topic_texts = topics.reshape(-1, topics.shape[-1])
        modes = declare_modes(space, public, topic_texts, 1, prior, rng, candidates=candidates)
        labels = tuple((label,) for label in range(len(topics)))
        group = np.repeat(np.arange(len(topics)), topics.shape[1])
        shared = modes.candidates
        if shared is not None:  # a mode may be any candidate of its label's topics
            shared = shared.reshape(len(topics), -1, shared.shape[-1])
        return replace(modes, groups=labels, group=group, candidates=shared)
    coordinates = space.into(public)
    groups = tuple(groups or [(label,) for label in range(len(texts))])

    def centres(count: int) -> list[FloatArray]:
        """(J, r) for each group."""
        if prior != "labels":
            return [_centres(coordinates, count, rng)] * len(groups)
        sentences = _sentences_of_labels(public, texts)
        moves = _towards_texts(space, public, texts, sentences)
        return [
            _centres(coordinates[_distinct(sentences[list(group)])], count, rng)
            + moves[list(group)].mean(axis=0)
            for group in groups
        ]

    means = np.concatenate(centres(sub_modes))
    covariance = np.broadcast_to(space.spread, means.shape)
    group = np.repeat(np.arange(len(groups)), sub_modes)
    chosen = np.stack(centres(candidates)) if candidates else None
    from_texts, prototypes = prior == "labels", Gaussians(means, covariance)
    return Modes(groups, group, prototypes, from_texts, chosen, texts if from_texts else None)


def _distinct(sentences: IntArray) -> IntArray:
    """Each number once, in the order of its first occurrence."""
    return np.array(list(dict.fromkeys(sentences.ravel().tolist())), dtype=np.int64)


def _sentences_of_labels(public: FloatArray, texts: FloatArray) -> IntArray:
    """(c, k) the k public sentences that prefer each label most clearly."""
    similarity = public @ texts.T
    if len(texts) > 1:
        others = np.stack(
            [np.delete(similarity, j, axis=1).max(axis=1) for j in range(len(texts))], axis=1
        )
        similarity = similarity - others
    k = max(10, round(PRIOR_SHARE * len(public)))
    return np.argsort(-similarity, axis=0, kind="stable")[:k].T.copy()


def _towards_texts(
    space: PublicSpace, public: FloatArray, texts: FloatArray, groups: IntArray
) -> FloatArray:
    """(c, r) shifts of the labels' sentence means towards the means that their texts imply.

    A label text is not an example of its label; it gives the direction of its linear rule. The mean
    it implies is the one for which linear discriminant analysis with ``space.shape`` has that rule,
    scaled to the same Mahalanobis length. The less clearly sentences prefer their label, the
    larger the shift.
    """
    means = np.stack([public[group].mean(axis=0) for group in groups]) - space.centre
    means = means @ space.basis  # (c, d)
    rules = (texts - space.centre) @ space.basis
    of_texts = rules @ space.shape
    far = np.einsum("ki,ki->k", means, np.linalg.solve(space.shape, means.T).T)
    away = np.einsum("ki,ki->k", rules, of_texts)
    of_texts *= np.sqrt(far / np.maximum(away, 1e-12))[:, None]
    share = 1.0 / (1.0 + (clearness(public, texts, groups) / SENTENCES_HALF) ** 2)
    moved: FloatArray = share * (of_texts - means)[:, : space.dimension]
    return moved


def clearness(public: FloatArray, texts: FloatArray, groups: IntArray | None = None) -> float:
    """How clearly the sentences that represent labels prefer their own label, from 0.

    The mean margin to the next label, in standard deviations of a similarity. It is small if the
    corpus has no sentences about the labels. public: (n, d), texts: (c, d), groups: (c, k) the
    sentences, if they are computed already. 1 if there is one label only.
    """
    if len(texts) < 2:
        return 1.0
    similarity = public @ texts.T  # (n, c)
    margins = []
    groups = _sentences_of_labels(public, texts) if groups is None else groups
    for label, group in enumerate(groups):
        others = np.delete(similarity[group], label, axis=1).max(axis=1)
        margins.append((similarity[group, label] - others).mean() / similarity[:, label].std())
    return max(float(np.mean(margins)), 0.0)


def _centres(x: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """(J, r) centres of x (n, r): the mean, or the components of a small mixture."""
    if count == 1:
        mean: FloatArray = x.mean(axis=0, keepdims=True)
        return mean
    starts = x[rng.choice(len(x), size=(4, count))][:, None]  # (s, 1, J, r)
    mask = np.ones((1, len(x)), dtype=np.bool_)
    centres: FloatArray = fit(x[None], mask, starts, iterations=20, floor=1e-6).gaussians.mean[0]
    return centres

"""PUBLIC. How well clients with different encoders could share a replay, at no privacy cost.

Only public sentences and label texts are used: rows are dropped before anything is embedded, and
own rows are not even read. A pair of encoders is judged on held-out sentences, on which no map was
fitted. The second encoder's neighbours and nearest labels are the reference; they are compared with

    apart       those of the first encoder in its own space: how far the two agree without any map
    mapped      those of the first encoder's vectors after a ridge map
    relative    those in coordinates of similarities to m anchors
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.config import Config, with_settings
from cslr.data.own import read_public
from cslr.data.own.parse.labels import Known
from cslr.data.streams import Rows, Stream, load_stream
from cslr.errors import ConfigError, DataError
from cslr.protocol.translation import (
    PublicEmbeddings,
    check_same_corpus,
    corpus_digest,
    fit_map,
    missed,
    relative,
)
from cslr.research.theory.coverage import FAR, nearest_distance
from cslr.runs.embedded import SettledConfig, embed_stream, settle
from cslr.runs.own_data import MOST_PUBLIC
from cslr.seeding import Seeds
from cslr.text.spacing import spaced

__all__ = [
    "COUNTS",
    "Compared",
    "EncoderView",
    "Kept",
    "Pair",
    "Reach",
    "compare",
    "judge",
    "reach",
    "views",
]

COUNTS: Final = (50, 100, 200, 400)
"""Numbers of anchors that relative coordinates are tried with."""
NEIGHBOURS: Final = 10
HELD_OUT: Final = 5
"""One sentence in so many is held out: used for the comparison and not for fitting a map."""
MOST: Final = 2000  # held-out sentences that are used at most
FEWEST: Final = 20 * HELD_OUT
"""Fewest public sentences with which ten nearest neighbours are meaningful."""


@dataclass(frozen=True, eq=False)
class EncoderView:
    """PUBLIC. One encoder's embeddings of the public sentences and of the label texts."""

    public: PublicEmbeddings
    labels: FloatArray  # (c, d)


@dataclass(frozen=True)
class Kept:
    """How well one translation reproduces the target's view of held-out sentences."""

    way: str
    anchors: int | None
    error: float | None
    """Share of the variance of the target's coordinates that is missed; None: not comparable."""
    neighbours: float
    """Share of the target's ten nearest neighbours that are among the ten found."""
    labels: float
    """Share of sentences with the same nearest label text."""
    clear: float
    """The same among the quarter for which the target is most certain: most others are about no
    label at all, so their nearest label changes easily."""


@dataclass(frozen=True)
class Pair:
    """From one encoder to another."""

    source: str
    target: str
    ways: tuple[Kept, ...]


@dataclass(frozen=True)
class Reach:
    """Whether the public sentences cover the task; median distances to the nearest."""

    encoder: str
    public: float  # of held-out sentences
    labels: float  # of label texts
    outside: tuple[str, ...]
    """Labels that are farther away than 95 % (``FAR``) of the sentences."""


@dataclass(frozen=True)
class Compared:
    """All pairs of some encoders."""

    stream: str
    seed: int
    unit: str  # what is embedded: a sentence, or for tagging a word
    sentences: int
    held_out: int
    pairs: tuple[Pair, ...]
    reach: tuple[Reach, ...]

    @property
    def by_chance(self) -> float:
        """Neighbours found by guessing."""
        return min(1.0, NEIGHBOURS / max(self.held_out - 1, 1))


def compare(
    config: Config, encoders: Sequence[str], counts: Sequence[int] | None, progress: bool = False
) -> Compared:
    """Every pair of the encoders, in both directions, on the public part of a stream."""
    if len(set(encoders)) < 2 or len(set(encoders)) < len(encoders):
        raise ConfigError("--encoders must be two or more different encoders, e.g. minilm,mpnet")
    stream = _public_part(settle(config))
    if len(stream.public) < FEWEST:
        raise DataError(
            f"stream {stream.name!r} has {len(stream.public)} public sentences; comparing "
            f"encoders requires at least {FEWEST}"
        )
    seen = views(stream, config, encoders, progress)
    sentences = len(seen[0].public.z)
    fitted = int(np.sum(~_held(sentences)))
    if max(counts or [0]) > fitted:
        raise ConfigError(
            f"stream {stream.name!r} has {fitted} public sentences besides those held out, so "
            f"{max(counts or [0])} anchors cannot be drawn from them; use fewer with --sweep"
        )
    tried = sorted(set(counts or [count for count in COUNTS if count <= fitted]))
    seed, names = config.seeds[0], [label.name for label in stream.labels]
    unit = "word" if stream.family == "tagging" else "sentence"
    pairs = permutations(zip(encoders, seen, strict=True), 2)
    return Compared(
        stream.name,
        seed,
        unit,
        sentences,
        len(_judged(sentences)),
        tuple(
            Pair(one, other, judge(source, target, tried, Seeds(seed)))
            for (one, source), (other, target) in pairs
        ),
        tuple(reach(name, view, names) for name, view in zip(encoders, seen, strict=True)),
    )


def views(
    stream: Stream, config: Config, encoders: Sequence[str], progress: bool = False
) -> list[EncoderView]:
    """Each encoder's embeddings of the public sentences and label texts of a stream; no rows."""
    corpus, public = corpus_digest(stream.public), _without_rows(stream)
    embedded = [
        embed_stream(public, with_settings(config, {"encoder": name}), 0.0, progress)
        for name in encoders
    ]
    return [
        EncoderView(PublicEmbeddings(each.encoder, corpus, each.public), each.label_texts)
        for each in embedded
    ]


def judge(
    source: EncoderView, target: EncoderView, counts: Sequence[int], seeds: Seeds
) -> tuple[Kept, ...]:
    """How well each translation of the source reproduces the target."""
    check_same_corpus([source.public, target.public])
    n = len(target.public.z)
    held, chosen = _held(n), _judged(n)
    there = target.public.z[chosen]  # (h, d')
    neighbours, answers = _neighbours(there, there), _answers(there, target.labels)
    clear = _clear(there, target.labels)

    def kept(way: str, anchors: int | None, *seen: FloatArray) -> Kept:
        """seen: sentences of the source and of the target, and label texts, in one space."""
        queries, pool, labels = seen
        same = _answers(queries, labels) == answers
        return Kept(
            way,
            anchors,
            None if way == "apart" else missed(pool, queries),
            _shared(_neighbours(queries, pool), neighbours),
            float(same.mean()),
            float(same[clear].mean()),
        )

    here = source.public.z[chosen]
    into, _ = fit_map(source.public.z[~held], target.public.z[~held])
    checks = [
        kept("apart", None, here, here, source.labels),
        kept("mapped", None, into(here), there, target.labels),
    ]
    for count in counts:
        anchors = seeds.at("relative anchors").choice(int(np.sum(~held)), count, replace=False)
        one, other = (
            relative(replace(view.public, z=view.public.z[~held]), np.sort(anchors))
            for view in (source, target)
        )
        seen = one.common(here), other.common(there), other.common(target.labels)
        checks.append(kept("relative", count, *seen))
    return tuple(checks)


def reach(name: str, view: EncoderView, labels: Sequence[str]) -> Reach:
    """Distances of label texts to public sentences, and of public sentences to each other."""
    n = len(view.public.z)
    others = view.public.z[~_held(n)]
    among = nearest_distance(view.public.z[_judged(n)], others)
    among = among[among > 1e-6] if (among > 1e-6).any() else among  # copies say nothing
    away = nearest_distance(view.labels, others)
    far = away > np.quantile(among, FAR)
    return Reach(
        name,
        float(np.median(among)),
        float(np.median(away)),
        tuple(label for label, outside in zip(labels, far, strict=True) if outside),
    )


def _public_part(settled: SettledConfig) -> Stream:
    """A stream without its rows. Own rows are not read: their declaration suffices."""
    stream, declaration = settled.given.stream, settled.declaration
    if declaration is None or stream.public is None:
        return _without_rows(load_stream(stream.name, stream.data, stream.rows, stream.scenario))
    declared, sentences = Known.of(declaration), read_public(stream.public)[:MOST_PUBLIC]
    return Stream(
        name=declaration.name,
        labels=declared.labels,
        tasks=declared.tasks,
        train=_NOTHING,
        test=_NOTHING,
        public=tuple(map(spaced, sentences)) if declaration.family == "tagging" else sentences,
        scenarios=(declaration.scenario,),
        clients=declaration.clients,
        family=declaration.family,
        partition="given",
    )


_NOTHING: Final = Rows((), (), np.zeros(0, dtype=np.int64))


def _without_rows(stream: Stream) -> Stream:
    return replace(stream, train=_NOTHING, test=_NOTHING)


def _held(sentences: int) -> BoolArray:
    """(n,) whether a sentence is held out, so that no map is fitted on it."""
    held: BoolArray = np.arange(sentences) % HELD_OUT == 0
    return held


def _judged(sentences: int) -> IntArray:
    """(h,) the indices of held-out sentences that are used."""
    return np.flatnonzero(_held(sentences))[:MOST]


def _neighbours(queries: FloatArray, pool: FloatArray) -> IntArray:
    """(h, 10) the nearest in pool (h, p) to each of queries (h, p), without the sentence itself."""
    similarity = queries @ pool.T
    np.fill_diagonal(similarity, -np.inf)
    return np.argpartition(-similarity, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]


def _shared(retrieved: IntArray, wanted: IntArray) -> float:
    """The share of wanted neighbours (h, 10) that are among the retrieved ones (h, 10)."""
    return float(np.mean((wanted[:, :, None] == retrieved[:, None, :]).any(axis=2)))


def _answers(z: FloatArray, labels: FloatArray) -> IntArray:
    """(h,) the nearest label text."""
    answers: IntArray = (z @ labels.T).argmax(axis=1)
    return answers


def _clear(z: FloatArray, labels: FloatArray) -> IntArray:
    """(h / 4,) the sentences with the largest margin between the two nearest label texts."""
    if len(labels) < 2:
        return np.arange(len(z))
    similarity = np.sort(z @ labels.T, axis=1)
    order = np.argsort(similarity[:, -2] - similarity[:, -1], kind="stable")
    return order[: -(-len(z) // 4)]

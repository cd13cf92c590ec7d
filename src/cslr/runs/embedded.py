"""A stream with its texts embedded: what all seeds and methods of a run share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.data.streams import Label, Rows, Stream, load_stream
from cslr.data.streams.conll import tag_numbers
from cslr.data.streams.marked import tagged_example
from cslr.errors import ConfigError, DataError
from cslr.protocol.head import Family
from cslr.protocol.step3_match import MATCHERS
from cslr.protocol.translation import Translation
from cslr.runs.own_data import load_own_stream
from cslr.runs.settled import SettledConfig, settle
from cslr.text.cache import EmbeddingCache, default_directory
from cslr.text.encoders import Encoder, embed, load_encoder
from cslr.text.words import TokenEncoder, WordVectors, embed_words, load_token_encoder

__all__ = ["EmbeddedRows", "EmbeddedStream", "embed_stream", "load_embedded"]

PUBLIC_WORDS: Final = 40_000
"""Words of public sentences that a tagging stream's space is built from."""


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """Embedded examples of some rows: one per text, or for tagging one per word."""

    z: FloatArray  # (m, d)
    labels: IntArray  # (m,) the label each belongs to
    targets: FloatArray  # (m, outputs)
    tasks: IntArray  # (m,)
    rows: IntArray  # (m,) the row each belongs to
    starts: IntArray  # (n + 1,) row i has the examples from starts[i] to starts[i + 1]


@dataclass(frozen=True, eq=False)
class EmbeddedStream:
    """Embedded examples beside the rows they belong to."""

    stream: Stream
    family: Family
    encoder: str
    train: EmbeddedRows  # private
    test: EmbeddedRows
    public: FloatArray  # (n, d)
    label_texts: FloatArray  # (c, d)
    seconds: float
    """How long reading and embedding took."""
    notices: tuple[str, ...] = ()
    """What the holder of own rows should see; private, for a screen and no file."""
    topics: FloatArray | None = None  # (c, J, d) where labels declare several topics
    others: tuple[EmbeddedStream, ...] = ()
    """The same stream as seen by each encoder that clients run; none: all run this one."""
    encoders: int = 1
    """Encoders whose examples stand one after the other, in common coordinates."""
    translations: tuple[Translation, ...] = ()
    """Of the reference encoder and of those of clients, where these are common coordinates."""
    views: tuple[EmbeddedStream, ...] = ()
    """The same as ``others``, kept where these are common coordinates."""
    before: EmbeddedStream | None = None
    """The same stream as seen by the encoder that was in use before an upgrade."""


def load_embedded(given: Config | SettledConfig, progress: bool = False) -> EmbeddedStream:
    """Load and embed everything the configuration names; texts seen before come from the cache."""
    started = time.perf_counter()
    settled = given if isinstance(given, SettledConfig) else settle(given)
    config, chosen = settled.given, settled.given.stream
    if config.replay.matching not in MATCHERS:
        known = ", ".join(MATCHERS)
        raise ConfigError(f"unknown matcher {config.replay.matching!r}; known matchers: {known}")
    notices: tuple[str, ...] = ()
    if settled.declaration is not None:
        stream, notices = load_own_stream(chosen, settled.declaration)
    else:
        stream = load_stream(chosen.name, chosen.data, chosen.rows, chosen.scenario)
    stream.scenario(chosen.scenario)
    embedded = embed_stream(stream, config, started, progress)

    def seen_by(encoder: str) -> EmbeddedStream:
        other = config.model_copy(update={"encoder": encoder})
        return embed_stream(stream, other, started, progress)

    return replace(
        embedded,
        notices=notices,
        others=tuple(seen_by(name) for name in config.client_encoders),
        before=None if config.encoder_before is None else seen_by(config.encoder_before),
    )


def embed_stream(stream: Stream, config: Config, started: float, progress: bool) -> EmbeddedStream:
    """The stream's rows, its public sentences and its label texts as vectors.

    Public texts are embedded in a separate call with a separate cache, so that their vectors cannot
    depend on private rows, whatever an encoder does with the texts of one call.
    """
    family = Family(stream.family, len(stream.labels))
    if stream.family == "tagging":
        return _embed_words(stream, family, config, started, progress)
    encoder = load_encoder(config.encoder)
    public, label_texts, topics = _embed_apart(
        [
            stream.public,
            [label.description for label in stream.labels],
            [topic for label in stream.labels for topic in _topics(label, stream.labels)],
        ],
        encoder,
        EmbeddingCache(default_directory("public")),
        progress,
    )
    private = EmbeddingCache(default_directory("private"))
    rows = [stream.train.texts, stream.test.texts]
    train, test = _embed_apart(rows, encoder, private, progress)
    return EmbeddedStream(
        stream,
        family,
        encoder.id,
        _of_texts(train, stream.train, family),
        _of_texts(test, stream.test, family),
        public,
        label_texts,
        time.perf_counter() - started,
        topics=topics.reshape(len(label_texts), -1, topics.shape[1]) if len(topics) else None,
    )


def _embed_apart(
    groups: Sequence[Sequence[str]], encoder: Encoder, cache: EmbeddingCache, progress: bool
) -> list[FloatArray]:
    """(n, d) of each group of texts."""
    texts = [text for group in groups for text in group]
    vectors = embed(texts, encoder, cache, progress=progress)
    ends = np.cumsum([len(group) for group in groups])
    return np.split(vectors, ends[:-1])


def _topics(label: Label, labels: tuple[Label, ...]) -> list[str]:
    """As many texts about a label as any label declares topics: its own, then its description."""
    most = max(len(each.topics) for each in labels)
    return [*label.topics, *[label.description] * (most - len(label.topics))]


def _of_texts(z: FloatArray, rows: Rows, family: Family) -> EmbeddedRows:
    return EmbeddedRows(
        z,
        rows.labels,
        family.targets(rows.answers),
        rows.tasks,
        np.arange(len(rows)),
        np.arange(len(rows) + 1),
    )


def _embed_words(
    stream: Stream, family: Family, config: Config, started: float, progress: bool
) -> EmbeddedStream:
    encoder = load_token_encoder(config.encoder)
    sentences = _sentences_of(stream.public, PUBLIC_WORDS)
    open_cache = EmbeddingCache(default_directory("public"))
    public = embed_words(sentences, encoder, open_cache, progress=progress)
    label_texts = _marked_words(stream.labels, encoder, open_cache)
    cache = EmbeddingCache(default_directory("private"))
    train = embed_words(stream.train.texts, encoder, cache, progress=progress)
    test = embed_words(stream.test.texts, encoder, cache, progress=progress)
    return EmbeddedStream(
        stream,
        family,
        encoder.id,
        _of_words(train, stream.train, family),
        _of_words(test, stream.test, family),
        public.z,
        label_texts,
        time.perf_counter() - started,
    )


def _of_words(words: WordVectors, rows: Rows, family: Family) -> EmbeddedRows:
    tags = np.array([tag for answer in rows.answers for tag in answer], dtype=np.int64)
    lengths = np.diff(words.starts)
    return EmbeddedRows(
        words.z,
        family.label_of_output()[tags],
        family.targets([(tag,) for tag in tags.tolist()]),
        np.repeat(rows.tasks, lengths),
        np.repeat(np.arange(len(rows)), lengths),
        words.starts,
    )


def _sentences_of(sentences: Sequence[str], words: int) -> list[str]:
    """The first sentences that hold this many words together."""
    total = np.cumsum([len(sentence.split(" ")) for sentence in sentences])
    return list(sentences[: int(np.searchsorted(total, words)) + 1])


def _marked_words(
    labels: tuple[Label, ...], encoder: TokenEncoder, cache: EmbeddingCache
) -> FloatArray:
    """(c, d) the mean vector of each label's words in the sentences that declare the labels."""
    marked = [tagged_example(text) for label in labels for text in label.examples]
    vectors = embed_words([" ".join(words) for words, _ in marked], encoder, cache)
    names = [label.name for label in labels]
    tags = np.concatenate(
        [np.zeros(0, dtype=np.int64), *[tag_numbers(tags, names) for _, tags in marked]]
    )
    of_word = (tags + 1) // 2
    for number, name in enumerate(names):
        if not (of_word == number).any():
            raise DataError(
                f"label {name!r} is declared without example sentences; add some in which it "
                f"is marked like [Marie Holt|{name}]"
            )
    means = np.stack([vectors.z[of_word == number].mean(axis=0) for number in range(len(names))])
    unit: FloatArray = means / np.linalg.norm(means, axis=1, keepdims=True)
    return unit

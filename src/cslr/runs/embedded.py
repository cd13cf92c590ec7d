"""What all seeds and methods of a run share: the settled configuration and the embedded stream.

A configuration is settled once and then passed on: it combines the user's settings, the declaration
of own rows and the method's settings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config, StreamConfig
from cslr.data.own import Declaration
from cslr.data.own.reader.file_format import format_of
from cslr.data.streams import STREAMS, Label, Rows, Stream, load_stream
from cslr.data.streams.conll import tag_numbers
from cslr.data.streams.marked import tagged_example
from cslr.errors import ConfigError, DataError
from cslr.methods.method import Method
from cslr.methods.registry import method_named
from cslr.protocol.head import Family
from cslr.protocol.step3_match import MATCHERS
from cslr.protocol.translation import Translation
from cslr.runs.own_data import complete, declaration_of, load_own_stream
from cslr.text.cache import EmbeddingCache, default_directory
from cslr.text.encoders import Encoder, embed, load_encoder
from cslr.text.words import TokenEncoder, WordVectors, embed_words, load_token_encoder

__all__ = [
    "EmbeddedRows",
    "EmbeddedStream",
    "SettledConfig",
    "as_settled",
    "embed_stream",
    "is_own",
    "load_embedded",
    "settle",
]


@dataclass(frozen=True, eq=False)
class SettledConfig:
    """A method of a run and its complete settings."""

    given: Config
    """The configuration in the run directory: complete, and the same for all methods."""
    name: str
    """The name of the method: the run's own, or one that it is compared with."""
    method: Method
    config: Config
    """``given`` with the settings that the method fixes or prefers."""
    declaration: Declaration | None = None
    """The declaration of own rows; None without own rows."""

    @classmethod
    def of(
        cls, given: Config, declaration: Declaration | None = None, name: str | None = None
    ) -> Self:
        """Settle a complete configuration, for its own method or for the one with this name."""
        if declaration is None and is_own(given.stream):
            raise ValueError("declaration is required for own rows; use settle(config)")
        name = name or given.method
        method = method_named(name)
        return cls(given, name, method, method.settled(given), declaration)

    @property
    def is_compared(self) -> bool:
        """Whether it is a method that the run's own is compared with."""
        return self.name != self.given.method

    def compared_with(self, name: str) -> SettledConfig:
        """The same run for another method."""
        return SettledConfig.of(self.given, self.declaration, name)


def is_own(stream: StreamConfig) -> bool:
    """Whether ``data`` names a file of rows, existing or not, and not a directory of data sets."""
    if stream.data is None or stream.data.is_dir():
        return False
    if stream.data.is_file():
        return True
    try:
        format_of(stream.data)
    except DataError:
        return False
    return True


def as_settled(config: Config | SettledConfig) -> SettledConfig:
    """A complete configuration, settled for its own method; unchanged if it is settled already."""
    if isinstance(config, SettledConfig):
        return config
    own = is_own(config.stream)
    return SettledConfig.of(config, declaration_of(config.stream) if own else None)


def settle(config: Config) -> SettledConfig:
    """The configuration with the settings of the declaration of own rows and of the method.

    Settings that contradict the declaration are refused.
    """
    if not is_own(config.stream):
        _check_without_rows(config)
        return SettledConfig.of(config)
    declaration = declaration_of(config.stream)
    return SettledConfig.of(complete(config, declaration), declaration)


def _check_without_rows(config: Config) -> None:
    """Refuse settings that need own rows, or a ledger of them, where there are none."""
    stream, privacy = config.stream, config.privacy
    if stream.data is not None and "name" not in stream.model_fields_set:
        there = "a directory" if stream.data.is_dir() else "not a file of rows"
        raise ConfigError(
            f"--data {stream.data} is {there}; to read a data set of a directory, give "
            f"--stream with one of {', '.join(STREAMS)}"
        )
    given = {
        "--declaration": stream.declaration is not None,
        "--anchors": stream.public is not None,
        "--skip-bad-rows": stream.rows == "valid",
    }
    for flag, was_given in given.items():
        if was_given:
            raise ConfigError(f"{flag} requires your own data, --data FILE; remove it")
    if privacy.federation is not None and privacy.mode != "enforced":
        raise ConfigError(
            "--federation requires --privacy enforced: add that, or remove --federation; a "
            "simulation keeps its ledger in the run directory"
        )
    if privacy.mode == "enforced" and privacy.federation is None:
        raise ConfigError(
            "--privacy enforced requires --federation DIR (privacy.federation), the "
            "directory of the ledger that all runs on the same data share"
        )


# -- its stream, embedded --------------------------------------------------------------------------

PUBLIC_WORDS: Final = 40_000
"""Words of public sentences from which the space of a tagging stream is built."""


@dataclass(frozen=True, eq=False, repr=False)
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
    """Messages for the holder of own rows. Private: shown on the screen and never stored."""
    topics: FloatArray | None = None  # (c, J, d) where labels declare several topics
    others: tuple[EmbeddedStream, ...] = ()
    """The same stream embedded by each encoder that clients run; empty: all run this one."""
    encoders: int = 1
    """The number of encoders whose examples are concatenated, in common coordinates."""
    translations: tuple[Translation, ...] = ()
    """Of the reference encoder, then of clients' encoders; empty without common coordinates."""
    views: tuple[EmbeddedStream, ...] = ()
    """What ``others`` was before the examples were put in common coordinates."""
    before: EmbeddedStream | None = None
    """The same stream embedded by the encoder that was in use before an upgrade."""


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
    public, label_texts, topics = _embed_groups(
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
    train, test = _embed_groups(rows, encoder, private, progress)
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


def _embed_groups(
    groups: Sequence[Sequence[str]], encoder: Encoder, cache: EmbeddingCache, progress: bool
) -> list[FloatArray]:
    """The embeddings (n, d) of each group of texts, computed in one call."""
    texts = [text for group in groups for text in group]
    vectors = embed(texts, encoder, cache, progress=progress)
    ends = np.cumsum([len(group) for group in groups])
    return np.split(vectors, ends[:-1])


def _topics(label: Label, labels: tuple[Label, ...]) -> list[str]:
    """A label's topics, filled up with its description to the largest number of any label."""
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
    """The first sentences that together have this many words."""
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

"""Clients with different encoders: all examples in common coordinates.

The examples of all encoders are concatenated; a client holds those of its own encoder, and every
test row is scored once per encoder, so that a score is the mean over encoders. The rest of the
program does not depend on the number of encoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.data.streams import Rows
from cslr.errors import ConfigError
from cslr.protocol.translation import (
    PublicEmbeddings,
    Translation,
    corpus_digest,
    identity,
    mapped,
    relative,
    untranslated,
)
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.seeding import Seeds

__all__ = ["encoder_of", "in_common", "translation_arrays", "translations"]


def in_common(embedded: EmbeddedStream, config: Config, seeds: Seeds) -> EmbeddedStream:
    """The stream with all examples in common coordinates; unchanged if all run one encoder."""
    if not embedded.others and not config.translates:
        return embedded
    reference, *others = translations(embedded, config, seeds)
    views = embedded.others or (embedded,)
    of_clients = others or [reference]
    public = reference.common(embedded.public)
    topics = None if embedded.topics is None else reference.common(embedded.topics)
    kind = config.replay.coordinates.partition("-")[0]
    return replace(
        embedded,
        encoder="/".join([kind, *[each.encoder for each in (reference, *others)]]),
        stream=replace(embedded.stream, test=_repeated(embedded.stream.test, len(views))),
        train=_stacked([each.train for each in views], of_clients, len(embedded.stream.train), 0),
        test=_stacked([each.test for each in views], of_clients, *[len(embedded.stream.test)] * 2),
        public=public,
        label_texts=reference.common(embedded.label_texts),
        topics=topics,
        others=(),
        encoders=len(views),
        translations=(reference, *others),
        views=views,
    )


def translations(embedded: EmbeddedStream, config: Config, seeds: Seeds) -> list[Translation]:
    """The reference encoder's translation, then that of every encoder that clients run."""
    some = slice(config.replay.shared_sentences)
    corpus = corpus_digest(embedded.stream.public[some])
    views = [
        PublicEmbeddings(each.encoder, corpus, each.public[some])
        for each in (embedded, *embedded.others)
    ]
    kind = config.replay.coordinates.partition("-")[0]
    if kind == "projection":
        names = {view.encoder for view in views}
        if len(names) > 1:
            raise ConfigError(
                f"clients with different encoders ({', '.join(sorted(names))}) have no common "
                "coordinates; use --set replay.coordinates=mapped or relative"
            )
        return [identity(view) for view in views]
    if kind == "mapped":
        return [mapped(view, views[0]) for view in views]
    if kind == "raw":
        return [untranslated(view, views[0]) for view in views]
    rng = seeds.at("relative anchors")
    sentences = len(views[0].z)
    count = min(config.paper.m, sentences)
    anchors = np.sort(rng.choice(sentences, size=count, replace=False))
    return [relative(view, anchors) for view in views]


def translation_arrays(embedded: EmbeddedStream) -> dict[str, FloatArray]:
    """The arrays with which a client of any encoder uses a head in common coordinates."""
    return {
        f"{each.encoder} {part}": getattr(each.into, part)
        for each in embedded.translations
        if each.into is not None
        for part in ("matrix", "offset")
    }


def encoder_of(clients: int, encoders: int, seeds: Seeds, ids: IntArray | None = None) -> IntArray:
    """(N,) the encoder of each client, assigned evenly at random.

    ids: (N,) addresses, where clients' numbers depend on who has rows; each client then draws from
    its own stream.
    """
    if ids is not None:
        return np.array(
            [seeds.at("encoder", address).integers(encoders) for address in ids.tolist()]
        )
    dealt: IntArray = seeds.at("encoders").permutation(clients) % encoders
    return dealt


def _stacked(
    parts: Sequence[EmbeddedRows], translations: Sequence[Translation], rows: int, offset: int
) -> EmbeddedRows:
    """The examples of all encoders; row numbers grow by ``offset`` from one to the next."""
    z = [each.common(part.z) for part, each in zip(parts, translations, strict=True)]
    examples = len(parts[0].z)
    return EmbeddedRows(
        np.concatenate(z),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.tasks for part in parts]),
        np.concatenate([part.rows + offset * number for number, part in enumerate(parts)]),
        _starts([part.starts for part in parts], examples, rows),
    )


def _starts(starts: Sequence[IntArray], examples: int, rows: int) -> IntArray:
    """(E n + 1,) where each row begins."""
    begun = [each[:rows] + examples * number for number, each in enumerate(starts)]
    return np.concatenate([*begun, [examples * len(starts)]])


def _repeated(rows: Rows, times: int) -> Rows:
    def tiled(values: IntArray | None) -> IntArray | None:
        return None if values is None else np.tile(values, times)

    return Rows(
        rows.texts * times,
        rows.answers * times,
        np.tile(rows.tasks, times),
        tiled(rows.people),
        tiled(rows.clients),
        tiled(rows.kinds),
    )

"""A stream with its texts embedded: what all seeds and methods of a run share."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from cslr.bench.cache import EmbeddingCache
from cslr.bench.encoders import embed, load_encoder
from cslr.bench.methods import method_named
from cslr.bench.streams import Stream, load_stream
from cslr.config import Config
from cslr.types import FloatArray

__all__ = ["Study", "load_study"]


@dataclass(frozen=True, eq=False)
class Study:
    """Embeddings (n, d) beside the rows they belong to."""

    stream: Stream
    encoder: str
    train: FloatArray  # private
    test: FloatArray
    public: FloatArray
    label_texts: FloatArray  # (c, d)
    seconds: float
    """How long reading and embedding took."""


def load_study(config: Config, progress: bool = False) -> Study:
    """Load and embed everything the configuration names; texts seen before come from the cache."""
    started = time.perf_counter()
    method_named(config.method)
    stream = load_stream(config.stream.name, config.stream.data, config.stream.rows)
    stream.scenario(config.stream.scenario)
    encoder = load_encoder(config.encoder)
    descriptions = [label.description for label in stream.labels]
    groups = [stream.train.texts, stream.test.texts, stream.public, tuple(descriptions)]
    texts = [text for group in groups for text in group]
    vectors = embed(texts, encoder, EmbeddingCache(), progress=progress)
    ends = np.cumsum([len(group) for group in groups])
    train, test, public, label_texts = np.split(vectors, ends[:-1])
    seconds = time.perf_counter() - started
    return Study(stream, encoder.id, train, test, public, label_texts, seconds)

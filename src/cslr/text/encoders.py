"""Frozen text encoders: a text becomes a vector of unit norm, on the device that holds the text.

An encoder is public: its ``id`` identifies the weights, so that two runs, two clients or a cache
can check that they use the same embedding space. The model is loaded at the first ``encode``; a run
whose texts are all cached imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from cslr.arrays import FloatArray
from cslr.text.cache import EmbeddingCache, Recipe, are_independent, embed_rows, unit_rows
from cslr.text.fixed_shapes import filled_batches, rows_are_independent
from cslr.text.models import Source, find_model, load_model, model_id
from cslr.text.onnx_encoder import OnnxEncoder
from cslr.text.packed import PackedBert
from cslr.text.spacing import spaced
from cslr.text.stand_ins import Derived, derived
from cslr.text.words import TokenEncoder, load_token_encoder

__all__ = ["Encoder", "SentenceEncoder", "WordMeans", "embed", "load_encoder"]

TRIALS: Final = ("one two three", "The dose of the tablets was lowered by the doctor.")
"""Fixed texts for which packed vectors are compared with the model's own."""
CLOSE: Final = 1e-5
"""Largest difference of an entry that counts as rounding; vectors have length one."""
_LAYER: Final = re.compile(r"layer(-?\d+)")


class Encoder(Protocol):
    """The interface of an encoder of texts."""

    @property
    def id(self) -> str:
        """Identifies the weights; part of every cache key."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts.

        An encoder with an attribute ``rows_independent = True`` promises that a row depends on its
        text alone, bit for bit. Others get one text at a time, because no text may affect another's
        vector.
        """


def load_encoder(name: str = "minilm") -> Encoder:
    """An encoder by name, without loading its model yet.

    ``"minilm"`` is all-MiniLM-L6-v2 and ``"mpnet"`` all-mpnet-base-v2 from installed packages, an
    existing directory is a model in sentence-transformers' layout, and ``org/name`` is fetched from
    the hub at first use. ``minilm+rotated`` is a stand-in derived from MiniLM (``stand_ins``),
    ``minilm+layer-3`` the mean of a text's word vectors in the third layer from the end, and
    ``minilm+onnx`` MiniLM in ONNX Runtime (``onnx_encoder``).
    """
    base, plus, change = name.rpartition("+")
    if plus and not Path(name).expanduser().is_dir():
        layer = _LAYER.fullmatch(change)
        if layer is not None:
            return WordMeans(load_token_encoder(base, int(layer[1])))
        if change == "onnx":
            return OnnxEncoder(find_model(base))
        return derived(load_encoder(base), change)
    source = find_model(name)
    return SentenceEncoder(source, id=model_id(source))


class SentenceEncoder:
    """A sentence-transformers model, loaded when it is first needed.

    ``source`` is a directory or a hub name. A transformer's weights are read from safetensors
    only, and code that comes with a model is never run.
    """

    rows_independent = True

    def __init__(self, source: Source, id: str) -> None:
        self.source = source
        self.id = id

    @cached_property
    def dimension(self) -> int:
        """d, from the directory's configuration if it says so, else from the loaded model."""
        declared = _declared_dimension(self.source) if isinstance(self.source, Path) else None
        return declared or int(self._forward(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts.

        Guarantee: a row depends on its text alone, bit for bit, because texts are packed without
        padding (``cslr.text.packed``) or every forward pass has a fixed shape
        (``cslr.text.fixed_shapes``). In ordinary batches rounding would depend on the other texts,
        and the vectors of public sentences are published without noise.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        packed = self._packed
        if packed is not None:
            vectors = packed.vectors(self._tokens(texts))
        else:
            vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
            lengths = self._token_counts(texts)
            for batch, filled in filled_batches(texts, lengths, self._batched):
                vectors[batch] = self._forward(filled)[: len(batch)]
        return unit_rows(vectors, np.arange(len(texts) + 1), self.id)

    def _forward(self, texts: list[str]) -> FloatArray:
        """One pass through the model, (n, d), not yet checked."""
        vectors: FloatArray = self._model.encode(
            texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors

    def _token_counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens the model reads of each text."""
        return [len(row) for row in self._tokens(texts)] if self._batched else [0] * len(texts)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens that the model reads of each text."""
        prompt = self._model.prompts.get(self._model.default_prompt_name) or ""
        ids: list[list[int]] = self._model.tokenizer(
            [prompt + text for text in texts],
            truncation=self._model.max_seq_length is not None,
            max_length=self._model.max_seq_length,
        )["input_ids"]
        return ids

    @property
    def _has_tokens(self) -> bool:
        return hasattr(getattr(self._model, "tokenizer", None), "backend_tokenizer")

    @cached_property
    def _packed(self) -> PackedBert | None:
        """The model over packed texts; None unless it is a BERT that gives its own vectors then."""
        packed = PackedBert.of(self._model) if self._has_tokens else None
        if packed is None or (self._model.max_seq_length or packed.longest + 1) > packed.longest:
            return None
        own, found = self._forward(list(TRIALS)), packed.vectors(self._tokens(TRIALS))
        if own.shape != found.shape or np.abs(own - found).max() > CLOSE:
            return None
        return packed

    @cached_property
    def _batched(self) -> bool:
        """Whether texts are encoded in batches: rows of a batch do not affect each other."""
        return self._has_tokens and rows_are_independent(
            self._forward, "one two three", "three two one"
        )

    @cached_property
    def _model(self) -> Any:
        kind = "a sentence-transformers model with safetensors weights"
        return load_model(self.source, "sentence_transformers", kind, _load)


@dataclass(frozen=True)
class WordMeans:
    """A text as the mean of its word vectors in one hidden layer."""

    words: TokenEncoder

    @property
    def rows_independent(self) -> bool:
        """As the words are."""
        return are_independent(self.words)

    @property
    def id(self) -> str:
        """Identifies weights, layer and pooling."""
        return f"{self.words.id}:mean-of-words"

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""
        return self.words.dimension

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts."""
        words = self.words.encode([spaced(text) for text in texts])
        parts = np.split(words.z, words.starts[1:-1])
        sums = np.stack([z.sum(axis=0) for z in parts])
        return unit_rows(sums, np.arange(len(texts) + 1), self.id)


def embed(
    texts: Sequence[str],
    encoder: Encoder,
    cache: EmbeddingCache | None,
    progress: bool = False,
) -> FloatArray:
    """(n, d) float32 embeddings in the order of ``texts``; only what is not cached is encoded.

    Equal texts are encoded once. Long jobs are stored as they go, so that an interruption loses
    at most 4,096 texts' work.
    """
    if not texts:
        return np.empty((0, encoder.dimension), dtype=np.float32)
    if isinstance(encoder, Derived):
        return encoder.change(embed(texts, encoder.base, cache, progress))
    together = are_independent(encoder)
    recipe = Recipe(encoder.id, encoder.encode, lambda text: [text], together)
    return embed_rows(texts, recipe, cache, progress)[0]


def _load(library: Any, source: str, **settings: bool) -> Any:
    return library.SentenceTransformer(source, model_kwargs={"use_safetensors": True}, **settings)


def _declared_dimension(directory: Path) -> int | None:
    """d of a plain model (transformer, one pooling, perhaps normalisation); None for others."""
    try:
        modules = _json(directory / "modules.json")
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        pooling = _json(directory / modules[1]["path"] / "config.json")
        settings = directory / "config_sentence_transformers.json"
        cut = _json(settings).get("truncate_dim") if settings.is_file() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    modes = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value]
    one_mode = len(modes) == 1 or isinstance(pooling.get("pooling_mode"), str)
    width = pooling.get("embedding_dimension", pooling.get("word_embedding_dimension"))
    plain = kinds[:2] == ["Transformer", "Pooling"] and set(kinds[2:]) <= {"Normalize"}
    return width if plain and one_mode and cut is None and isinstance(width, int) else None


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))

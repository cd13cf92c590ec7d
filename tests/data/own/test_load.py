"""Own rows as a stream: the same from every format; public facts come from the declaration."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
import pytest

from cslr.data.own import load_own
from cslr.data.streams import Stream
from cslr.errors import ConfigError, DataError

PUBLIC = ("A public sentence.", "Another one.")


def content(stream: Stream) -> dict[str, Any]:
    """Everything in a stream, as plain values that can be compared."""
    parts = {
        name: (
            part.texts,
            part.answers,
            part.tasks.tolist(),
            None if part.people is None else part.people.tolist(),
            None if part.clients is None else part.clients.tolist(),
        )
        for name, part in (("train", stream.train), ("test", stream.test))
    }
    assert stream.client_ids is not None
    plain = {k: v for k, v in vars(stream).items() if k not in parts}
    return plain | parts | {"client_ids": stream.client_ids.tolist()}


TAGGED = [
    {
        "text": "Ida Holm met Jo",
        "label": ["B-PER", "I-PER", "O", "B-PER"],
        "client": "north",
        "task": "spring",
        "split": "train",
        "person": "d1",
    },
    {
        "text": "Køge is far",
        "label": ["B-LOC", "O", "O"],
        "client": "east",
        "task": "autumn",
        "split": "train",
        "person": "d2",
    },
    {
        "text": "Nothing here",
        "label": ["O", "O"],
        "client": "east",
        "task": "spring",
        "split": "test",
        "person": "d3",
    },
]


def test_a_file_becomes_a_stream_with_given_clients(write, rows, declare):
    own = load_own(write("csv", rows), declare(), PUBLIC, skip_bad_rows=False)
    stream = own.stream
    assert (stream.name, stream.family, stream.partition) == ("shops", "classification", "given")
    assert (stream.clients, stream.cap, stream.scenarios) == (4, None, ("class",))
    assert stream.public == PUBLIC
    assert [label.name for label in stream.labels] == ["praise", "blame", "order"]
    assert [(task.name, task.labels) for task in stream.tasks] == [
        ("spring", (0, 1)),
        ("autumn", (2,)),
    ]
    assert stream.train.texts == tuple(row["text"] for row in rows[:3])
    assert stream.train.answers == ((0,), (1,), (2,))
    assert stream.train.tasks.tolist() == [0, 0, 1]
    assert own.client_names == ("east", "north", "west")
    assert stream.train.clients.tolist() == [1, 0, 1]
    assert stream.train.people.tolist() == [0, 1, 0]
    assert stream.test.texts == ("Never again",)
    assert stream.test.clients.tolist() == [2]
    assert own.skipped == {}


def test_a_client_has_an_address_that_no_other_client_moves(write, rows, declare):
    def addresses(some):
        own = load_own(write("csv", some), declare(), PUBLIC)
        return dict(zip(own.client_names, own.stream.client_ids.tolist(), strict=True))

    every = addresses(rows)
    fewer = addresses([row for row in rows if row["client"] != "east"])
    assert len(set(every.values())) == 3
    assert fewer == {name: own for name, own in every.items() if name != "east"}


def test_two_ways_to_encode_a_name_are_one_client(write, rows, declare):
    names = ["Cafe\u0301", "Caf\xe9"]
    spelled = [row | {"client": name} for row, name in zip(rows, names, strict=False)]
    assert load_own(write("csv", spelled), declare(), PUBLIC).client_names == ("Caf\xe9",)


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_stream(write, rows, declare, ending):
    first = load_own(write("csv", rows), declare(), PUBLIC)
    other = load_own(write(ending, rows), declare(), PUBLIC)
    assert content(first.stream) == content(other.stream)
    assert first.client_names == other.client_names


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "conll.gz", "parquet"])
def test_every_format_gives_the_same_tagged_stream(write, declare, ending):
    first = load_own(write("conll", TAGGED), declare("tagging"), PUBLIC)
    other = load_own(write(ending, TAGGED), declare("tagging"), PUBLIC)
    assert content(first.stream) == content(other.stream)


def test_tags_are_numbered_from_the_declared_types(write, declare):
    stream = load_own(write("conll", TAGGED), declare("tagging"), PUBLIC).stream
    assert [label.name for label in stream.labels] == ["O", "PER", "LOC"]
    assert stream.labels[1].examples == ("[Ida Holm|PER] waits .",)
    assert stream.train.answers == ((1, 2, 0, 1), (3, 0, 0))
    assert stream.train.texts == ("Ida Holm met Jo", "Køge is far")
    assert [task.labels for task in stream.tasks] == [(0, 1, 2), (0, 2)]


def test_words_may_be_a_list(write, declare):
    listed = [row | {"text": row["text"].split()} for row in TAGGED]
    first = load_own(write("conll", TAGGED), declare("tagging"), PUBLIC)
    other = load_own(write("jsonl", listed), declare("tagging"), PUBLIC)
    assert content(first.stream) == content(other.stream)


def test_a_comment_of_a_conll_file_holds_until_it_is_changed(write, declare):
    lines = b"""# client = north
# task = spring
# split = train
# person = d1
Ida\tB-PER

Jo\tB-PER
#\tO

# client = east
# person = d2

# task = autumn
Rome\tB-LOC
"""
    own = load_own(write("conll", lines), declare("tagging"), PUBLIC)
    assert own.stream.train.texts == ("Ida", "Jo #", "Rome")
    assert [own.client_names[client] for client in own.stream.train.clients] == [
        "north",
        "north",
        "east",
    ]
    assert own.stream.train.tasks.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("ending", "cell"),
    [
        ("csv", "blame|praise|blame"),
        ("csv", '["blame", "praise"]'),
        ("csv", " blame | praise "),
        ("jsonl", ["blame", "praise"]),
        ("jsonl", "blame|praise"),
        ("parquet", ["blame", "praise"]),
    ],
)
def test_intents_have_several_labels_the_main_one_first(write, rows, declare, ending, cell):
    path = write(ending, [rows[0] | {"label": cell}])
    assert load_own(path, declare("intents"), PUBLIC).stream.train.answers == ((1, 0),)


def test_other_intents_than_the_main_one_may_be_of_another_task(write, rows, declare):
    path = write("csv", [rows[0] | {"label": "praise|order"}])
    assert load_own(path, declare("intents"), PUBLIC).stream.train.answers == ((0, 2),)
    path = write("csv", [rows[0] | {"label": "order|praise"}])
    with pytest.raises(DataError, match=r"line 2: label 'order' does not belong to task 'spring'"):
        load_own(path, declare("intents"), PUBLIC)


def test_whole_numbers_are_names_too(write, rows, declare):
    numbered = [row | {"client": 7 + place, "person": place} for place, row in enumerate(rows)]
    for ending in ("jsonl", "parquet"):
        own = load_own(write(ending, numbered), declare(), PUBLIC)
        assert own.client_names == ("10", "7", "8", "9")
        assert own.stream.train.clients.tolist() == [1, 2, 3]


def test_another_delimiter_and_a_byte_order_mark_are_read(write, rows, declare):
    flat = [row | {"text": "plain"} for row in rows]
    content_of = b"\xef\xbb\xbf" + write("csv", flat).read_bytes().replace(b",", b";")
    content_of = content_of.replace(b"\n", b"\r\n")
    own = load_own(write("csv", content_of), declare(delimiter=";"), PUBLIC)
    assert own.stream.train.texts == ("plain",) * 3


def test_a_single_task_needs_no_column(write, rows, declare):
    kept = [{k: v for k, v in row.items() if k != "task"} for row in rows]
    declaration = declare(
        tasks=[{"name": "all"}], columns={"split": "split", "person": "person"}, scenario="task"
    )
    stream = load_own(write("csv", kept), declaration, PUBLIC).stream
    assert stream.train.tasks.tolist() == [0, 0, 0]
    assert stream.tasks[0].labels == (0, 1, 2)


def test_without_people_a_stream_has_none(write, rows, declare):
    declaration = declare(columns={"task": "task", "split": "split"})
    assert load_own(write("csv", rows), declaration, PUBLIC).stream.train.people is None


def test_test_rows_need_no_client(write, rows, declare):
    rows[3]["client"] = ""
    own = load_own(write("csv", rows), declare(), PUBLIC)
    assert own.client_names == ("east", "north")
    assert own.stream.test.clients.tolist() == [-1]
    del rows[3]["client"]
    assert len(load_own(write("jsonl", rows), declare(), PUBLIC).stream.test) == 1


def test_registered_clients_may_be_more_than_those_with_rows_but_never_fewer(write, rows, declare):
    path = write("csv", rows)
    assert load_own(path, declare(clients=500), PUBLIC).stream.clients == 500
    assert load_own(path, declare(clients=3), PUBLIC).stream.clients == 3
    with pytest.raises(DataError, match=r"rows of 3 clients, but clients = 2.*nothing was spent"):
        load_own(path, declare(clients=2), PUBLIC)


def test_labels_and_tasks_without_rows_stay_declared(write, rows, declare):
    stream = load_own(write("csv", rows[:2]), declare(), PUBLIC).stream
    assert len(stream.labels) == 3
    assert [task.name for task in stream.tasks] == ["spring", "autumn"]
    assert len(stream.test) == 0


def test_a_file_without_train_rows_is_refused(write, rows, declare):
    for kept in (rows[3:], [rows[0] | {"split": "test"}]):
        with pytest.raises(DataError, match="contains no valid train row"):
            load_own(write("csv", kept), declare(), PUBLIC)


def test_a_draft_is_refused_before_the_file_is_opened(tmp_path, declare):
    nowhere = tmp_path / "nowhere.csv"
    with pytest.raises(ConfigError, match="is a draft: check it and set confirmed = true"):
        load_own(nowhere, declare(confirmed=False), PUBLIC)
    labels = [{"name": "praise", "description": " "}, {"name": "blame", "description": "x"}]
    with pytest.raises(ConfigError, match="add a description of label 'praise'"):
        load_own(nowhere, declare(labels=labels, tasks=[{"name": "spring"}]), PUBLIC)
    with pytest.raises(DataError, match="cannot be opened"):
        load_own(nowhere, declare(), PUBLIC)


def test_tagging_needs_sentences_in_which_every_type_is_marked(tmp_path, declare):
    per = {"name": "PER", "description": "A person."}
    loc = {"name": "LOC", "description": "A place."}
    tasks = [{"name": "spring"}]
    for labels, message in (
        ([per, loc], r"add examples of label 'PER', marked as \[words\|PER\]; add examples"),
        ([per | {"examples": ["[Ida|PER] waits"]}, loc], "draft: add examples of label 'LOC'"),
        ([per | {"examples": ["[Ida|PER]"]}], "draft: add examples with words outside brackets"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_own(tmp_path / "x", declare("tagging", labels=labels, tasks=tasks), PUBLIC)
    both = [per | {"examples": ["[Ida|PER] is in [Rome|LOC]"]}, loc]
    assert declare("tagging", labels=both, tasks=tasks).missing() == ()


def test_public_sentences_for_tagging_are_parted_into_words(write, declare):
    stream = load_own(write("conll", TAGGED), declare("tagging"), ("Is it (here)?",)).stream
    assert stream.public == ("Is it ( here ) ?",)


def many(count: int, person: bool = False) -> list[dict[str, str]]:
    return [
        {
            "text": f"message {number}",
            "label": "praise",
            "client": f"c{number % 3}",
            "task": "spring",
            "person": f"p{number % 3}-{number // 9}" if person else "p",
        }
        for number in range(count)
    ]


def test_a_share_of_each_client_is_test_by_the_hash_of_its_texts(write, declare):
    rows, columns = many(60), {"task": "task"}
    declaration = declare(columns=columns, test_share=0.26)
    stream = load_own(write("csv", rows), declaration, PUBLIC).stream
    for client in range(3):
        own = [f"message {number}" for number in range(client, 60, 3)]
        own.sort(key=lambda text: hashlib.sha256(f"cslr/own/test/1\0{text}".encode()).hexdigest())
        assert set(own[:5]) <= set(stream.test.texts)  # 0.26 of 20, rounded down
        assert set(own[5:]) <= set(stream.train.texts)
    assert (len(stream.train), len(stream.test)) == (45, 15)
    again = load_own(write("csv", rows[::-1]), declaration, PUBLIC).stream
    assert set(again.test.texts) == set(stream.test.texts)
    fewer = load_own(write("csv", rows[::3]), declaration, PUBLIC).stream
    assert set(fewer.test.texts) == {t for t in stream.test.texts if int(t.split()[1]) % 3 == 0}


def test_without_split_and_share_every_row_is_train(write, declare):
    stream = load_own(write("csv", many(9)), declare(columns={"task": "task"}), PUBLIC).stream
    assert (len(stream.train), len(stream.test)) == (9, 0)


def test_a_share_never_parts_a_person(write, declare):
    declaration = declare(columns={"task": "task", "person": "person"}, test_share=0.4)
    stream = load_own(write("csv", many(90, person=True)), declaration, PUBLIC).stream
    assert len(stream.test) == 3 * 4 * 3  # of each client 4 of 10 people, with 3 rows each
    assert not np.intersect1d(stream.train.people, stream.test.people).size


def test_parquet_without_pyarrow_says_what_to_install(write, declare, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r'pip install "cslr\[parquet\]"'):
        load_own(write("parquet", b"PAR1"), declare(), PUBLIC)


@pytest.mark.parametrize("name", ["shops.xlsx", "shops", "shops.gz", "shops.parquet.gz"])
def test_an_unknown_format_names_the_known_ones(tmp_path, declare, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"\.csv, \.tsv, \.jsonl, \.conll .*or \.parquet"):
        load_own(tmp_path / name, declare(), PUBLIC)


def test_a_directory_is_no_file(tmp_path, declare):
    (tmp_path / "shops.csv").mkdir()
    with pytest.raises(DataError, match="cannot be opened"):
        load_own(tmp_path / "shops.csv", declare(), PUBLIC)

"""Split-Amazon from a directory: five domains that share two labels."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cslr.data.streams import Rows, load_stream
from cslr.data.streams.amazon import DOMAINS, load_amazon
from cslr.data.streams.data_directory import Sizes
from cslr.errors import ConfigError, DataError

SIZES = Sizes(train=4, test=2, held_out_train=3, held_out_test=2, public=5)


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))


def review(part: str, domain: str, label: Any, number: int) -> str:
    text = f"{part} review {number} of {domain}, label {label}"
    return json.dumps({"text": text, "label": label, "domain": domain, "split": part})


def reviews(part: str, negative: int, positive: int) -> list[str]:
    """Equally many rows of each label for the five domains and for music, which is no task."""
    return [
        review(part, domain, label, number)
        for label, count in enumerate((negative, positive))
        for number in range(count)
        for domain in ("music", *reversed(DOMAINS))
    ]


def counts(rows: Rows) -> list[list[int]]:
    """Rows of each domain, negative and positive."""
    return [np.bincount(rows.labels[rows.tasks == task], minlength=2).tolist() for task in range(5)]


def texts_of(rows: Rows, task: int, label: int) -> list[str]:
    chosen = np.flatnonzero((rows.tasks == task) & (rows.labels == label))
    return [rows.texts[row] for row in chosen]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "amazon" / "train.jsonl.gz", reviews("train", 10, 12))
    write(tmp_path / "amazon" / "test.jsonl.gz", reviews("test", 3, 4))
    write(
        tmp_path / "anchors" / "wikipedia_sentences.txt.gz",
        [f"Public sentence {number}." for number in range(9)],
    )
    return tmp_path


def test_amazon_is_five_domains_that_share_two_labels(data: Path) -> None:
    stream = load_amazon(data, "subset", sizes=SIZES)
    assert stream.name == "amazon"
    assert [label.name for label in stream.labels] == ["negative", "positive"]
    assert [task.name for task in stream.tasks] == [
        "books",
        "dvd",
        "electronics",
        "kitchen_housewares",
        "toys_games",
    ]
    assert {task.labels for task in stream.tasks} == {(0, 1)}
    assert stream.scenarios == ("domain", "class", "task")
    assert (stream.family, stream.partition, stream.cap) == ("classification", "dirichlet", None)
    assert (stream.clients, stream.alpha) == (50, 0.3)
    assert stream.public == tuple(f"Public sentence {number}." for number in range(5))
    assert stream.scenario(None) == "domain"
    with pytest.raises(ConfigError, match="use --scenario domain, class, task"):
        stream.scenario("classes")


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_in_class_and_task_every_domain_has_two_labels_of_its_own(
    data: Path, scenario: str
) -> None:
    stream = load_stream("amazon", data, "all", scenario)
    assert [label.name for label in stream.labels] == [
        f"{domain}, {sentiment}" for domain in DOMAINS for sentiment in ("negative", "positive")
    ]
    assert len({label.description for label in stream.labels}) == 10
    assert [task.labels for task in stream.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert stream.scenario(scenario) == scenario
    for text, label, task in zip(
        stream.train.texts, stream.train.labels, stream.train.tasks, strict=True
    ):
        assert text.endswith(f"of {DOMAINS[task]}, label {label - 2 * task}")


@pytest.mark.parametrize("rows", ["subset", "held-out", "all"])
def test_the_rows_are_the_same_in_every_scenario(data: Path, rows: str) -> None:
    headline = load_amazon(data, rows, sizes=SIZES)
    shared = load_amazon(data, rows, "domain", SIZES)
    own = load_amazon(data, rows, "class", SIZES)
    for part in ("train", "test"):
        first, second, third = (getattr(one, part) for one in (headline, shared, own))
        assert first.texts == second.texts == third.texts
        assert first.answers == second.answers
        np.testing.assert_array_equal(third.labels, first.labels + 2 * first.tasks)


def test_all_rows_are_those_of_the_five_domains(data: Path) -> None:
    stream = load_stream("amazon", data, "all")
    assert counts(stream.train) == [[10, 12]] * 5
    assert counts(stream.test) == [[3, 4]] * 5
    for part in (stream.train, stream.test):
        for text, label, task in zip(part.texts, part.labels, part.tasks, strict=True):
            assert text.endswith(f"of {DOMAINS[task]}, label {label}")


def test_a_text_is_kept_as_it_is(data: Path) -> None:
    text = " a long review ,\twith spaces " * 500
    row = {"text": text, "label": 1, "domain": "dvd", "split": "train"}
    write(data / "amazon" / "train.jsonl.gz", [json.dumps(row)])
    assert load_stream("amazon", data, "all").train.texts == (text,)


def test_the_subset_takes_the_smallest_hashes_of_each_domain_and_label(data: Path) -> None:
    subset, everything = (
        load_amazon(data, "subset", sizes=SIZES),
        load_amazon(data, "all", sizes=SIZES),
    )
    assert counts(subset.train) == [[4, 4]] * 5
    assert counts(subset.test) == [[2, 2]] * 5
    for task in range(5):
        for label in range(2):
            own = sorted(
                texts_of(everything.train, task, label),
                key=lambda text: hashlib.sha256(f"cslr/amazon/1\0{text}".encode()).hexdigest(),
            )
            assert texts_of(subset.train, task, label) == own[:4]


def test_the_order_of_the_file_does_not_matter(data: Path) -> None:
    before = load_amazon(data, "subset", sizes=SIZES)
    write(data / "amazon" / "train.jsonl.gz", reviews("train", 10, 12)[::-1])
    after = load_amazon(data, "subset", sizes=SIZES)
    assert before.train.texts == after.train.texts
    np.testing.assert_array_equal(before.train.labels, after.train.labels)
    np.testing.assert_array_equal(before.train.tasks, after.train.tasks)


def test_where_rows_run_short_both_labels_are_taken_equally_often(data: Path) -> None:
    stream = load_stream("amazon", data)
    assert counts(stream.train) == [[10, 10]] * 5
    assert counts(stream.test) == [[3, 3]] * 5


def test_held_out_rows_are_train_rows_outside_the_subset_and_leave_the_test_file_shut(
    data: Path,
) -> None:
    write(data / "amazon" / "train.jsonl.gz", reviews("train", 8, 12))
    subset = load_amazon(data, "subset", sizes=SIZES)
    everything = set(load_amazon(data, "all", sizes=SIZES).train.texts)
    (data / "amazon" / "test.jsonl.gz").unlink()
    held_out = load_amazon(data, "held-out", sizes=SIZES)
    assert counts(held_out.train) == [[3, 3]] * 5
    assert counts(held_out.test) == [[1, 1]] * 5  # of 8 negative rows 7 are spoken for
    train, test = set(held_out.train.texts), set(held_out.test.texts)
    assert not train & test
    assert not (train | test) & set(subset.train.texts)
    assert train | test <= everything


def test_a_domain_without_rows_for_the_choice_is_told(data: Path) -> None:
    with pytest.raises(
        DataError, match=r"train.* has 10 rows of books, negative.* more than 500.*--rows all"
    ):
        load_stream("amazon", data, "held-out")
    write(data / "amazon" / "test.jsonl.gz", reviews("test", 3, 0))
    with pytest.raises(DataError, match=r"test.* has 0 rows of books, positive"):
        load_stream("amazon", data)


def test_unknown_rows_name_the_known_ones(data: Path) -> None:
    with pytest.raises(ConfigError, match="subset, held-out or all"):
        load_stream("amazon", data, "some")


def test_a_missing_directory_or_file_says_what_was_looked_for(data: Path) -> None:
    with pytest.raises(DataError, match=r"'amazon'.*--data DIR with amazon/train\.jsonl\.gz"):
        load_stream("amazon", None)
    with pytest.raises(
        DataError, match=r"nowhere does not exist; give --data DIR with amazon/train"
    ):
        load_stream("amazon", data / "nowhere")
    for name in ("anchors/wikipedia_sentences.txt.gz", "amazon/test.jsonl.gz"):
        (data / name).unlink()
        with pytest.raises(DataError, match=f"file .*{name} does not exist"):
            load_stream("amazon", data, "all")


GOOD = {"text": "a fine book", "label": 1, "domain": "books", "split": "train"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a fine bo', "not a row"),
        ("[1, 2]", "not a row"),
        ("3", "not a row"),
        ("", "not a row"),
        (json.dumps({"text": "a fine book", "label": 1}), "not a row.*KeyError: 'domain'"),
        (json.dumps({"text": "a fine book", "domain": "books"}), "not a row.*KeyError: 'label'"),
        (json.dumps(GOOD | {"domain": 3}), "must be strings"),
        (json.dumps(GOOD | {"text": None}), "must be strings"),
        (json.dumps(GOOD | {"text": "\ud800"}), "not a row"),
        (json.dumps(GOOD | {"label": 2}), "unknown label 2; expected 0 negative, 1 positive"),
        (json.dumps(GOOD | {"label": -1}), "unknown label -1"),
        (json.dumps(GOOD | {"label": True}), "unknown label True"),
        (json.dumps(GOOD | {"label": "1"}), "unknown label '1'"),
        (json.dumps(GOOD | {"text": " \t"}), "the text is empty"),
    ],
)
def test_a_damaged_line_is_named(data: Path, line: str, message: str) -> None:
    write(data / "amazon" / "train.jsonl.gz", [json.dumps(GOOD), line, json.dumps(GOOD)])
    with pytest.raises(DataError, match=rf"train\.jsonl\.gz, line 2: .*{message}"):
        load_stream("amazon", data, "all")


def test_a_file_cut_short_or_of_another_kind_is_named(data: Path) -> None:
    path = data / "amazon" / "test.jsonl.gz"
    whole = path.read_bytes()
    for content in (whole[:-20], b"no gzip", gzip.compress(b"\xff\xfe\n")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"test\.jsonl\.gz, after line \d+: cannot be read"):
            load_stream("amazon", data, "all")


def test_an_empty_public_corpus_is_refused(data: Path) -> None:
    write(data / "anchors" / "wikipedia_sentences.txt.gz", [])
    with pytest.raises(DataError, match="contains no sentence"):
        load_stream("amazon", data, "all")


def real_data() -> Path | None:
    """Where the data sets lie, if they are here."""
    given = os.environ.get("CSLR_DATA")
    return Path(given) if given and Path(given).is_dir() else None


@pytest.mark.skipif(real_data() is None, reason="no Amazon reviews: set CSLR_DATA")
def test_the_real_amazon_has_the_sizes_figures_are_reported_on() -> None:
    subset = load_stream("amazon", real_data())
    held_out = load_stream("amazon", real_data(), "held-out")
    everything = load_stream("amazon", real_data(), "all")
    assert counts(subset.train) == [[500, 500]] * 5
    assert counts(subset.test) == [[150, 150]] * 5
    assert counts(held_out.train) == [[200, 200]] * 5
    assert counts(held_out.test) == [[75, 75], [69, 69], [71, 71], [74, 74], [75, 75]]
    assert (len(everything.train), len(everything.test)) == (7_873, 1_995)
    assert len(set(subset.public)) == 10_000
    parts = (subset.train, subset.test, held_out.train, held_out.test)
    texts = [text for part in parts for text in part.texts]
    assert len(set(texts)) == len(texts)

"""NER-Domain from a directory: six domains that share O and four types of name."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from cslr.data.streams import Rows, load_stream
from cslr.data.streams.data_directory import Sizes
from cslr.data.streams.ner import DOMAINS, load_ner
from cslr.errors import ConfigError, DataError

SIZES = Sizes(train=5, test=2, held_out_train=3, held_out_test=2, public=5)
FOLDER = "ner_crossner/coarse"


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()))


def sentences(domain: str, part: str, count: int) -> list[str]:
    return [
        f"{part.title()}\tO\nAda\tB-PER\nHolt\tI-PER\nat\tO\n{domain}-{number}\tB-MISC\n"
        for number in range(count)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for domain in DOMAINS:
        for part, count in (("train", 12), ("test", 4)):
            path = tmp_path / FOLDER / f"{domain}.{part}.conll.gz"
            write(path, "\n".join(sentences(domain, part, count)))
    public = "".join(f"Public sentence {number}.\n" for number in range(9))
    write(tmp_path / "anchors" / "wikipedia_sentences.txt.gz", public)
    return tmp_path


def sizes_of(rows: Rows) -> list[int]:
    return [int(count) for count in np.bincount(rows.tasks, minlength=6)]


def texts_of(rows: Rows, task: int) -> list[str]:
    return [rows.texts[row] for row in np.flatnonzero(rows.tasks == task)]


def test_ner_is_six_domains_that_share_o_and_four_types(data: Path) -> None:
    stream = load_ner(data, sizes=SIZES)
    assert (stream.name, stream.family) == ("ner", "tagging")
    assert [label.name for label in stream.labels] == ["O", "PER", "ORG", "LOC", "MISC"]
    assert [task.name for task in stream.tasks] == list(DOMAINS)
    assert DOMAINS == ("politics", "science", "music", "literature", "ai", "wiki")
    assert {task.labels for task in stream.tasks} == {(0, 1, 2, 3, 4)}
    assert (stream.scenarios, stream.clients) == (("domain",), 30)
    assert (stream.partition, stream.cap) == ("task", 1)
    assert stream.public == tuple(f"Public sentence {number} ." for number in range(5))
    with pytest.raises(ConfigError, match="use --scenario domain"):
        stream.scenario("class")


def test_every_word_has_the_number_of_its_tag(data: Path) -> None:
    stream = load_stream("ner", data, "all")
    assert sizes_of(stream.train) == [12] * 6
    assert sizes_of(stream.test) == [4] * 6
    assert set(stream.train.answers) == {(0, 1, 2, 0, 7)}
    for text, task in zip(stream.train.texts, stream.train.tasks, strict=True):
        assert text.startswith(f"Train Ada Holt at {DOMAINS[task]}-")


def test_the_subset_takes_the_smallest_hashes_of_each_domain(data: Path) -> None:
    subset, everything = load_ner(data, sizes=SIZES), load_stream("ner", data, "all")
    assert sizes_of(subset.train) == [5] * 6
    assert sizes_of(subset.test) == [2] * 6
    for part, count in (("train", 5), ("test", 2)):
        for task in range(6):
            own = sorted(
                texts_of(getattr(everything, part), task),
                key=lambda text: hashlib.sha256(f"cslr/ner/1\0{text}".encode()).hexdigest(),
            )
            assert texts_of(getattr(subset, part), task) == own[:count]


def test_a_small_domain_leaves_two_fifths_to_hold_out(data: Path) -> None:
    stream, held_out = load_stream("ner", data), load_stream("ner", data, "held-out")
    assert sizes_of(stream.train) == [7] * 6  # three fifths of 12
    assert sizes_of(stream.test) == [4] * 6
    assert sizes_of(held_out.train) == [3] * 6  # three fifths of 5
    assert sizes_of(held_out.test) == [2] * 6


def test_held_out_sentences_are_train_ones_outside_the_subset_and_leave_the_test_files_shut(
    data: Path,
) -> None:
    subset = load_ner(data, sizes=SIZES)
    everything = set(load_stream("ner", data, "all").train.texts)
    for domain in DOMAINS:
        (data / FOLDER / f"{domain}.test.conll.gz").unlink()
    held_out = load_ner(data, "held-out", sizes=SIZES)
    train, test = set(held_out.train.texts), set(held_out.test.texts)
    assert sizes_of(held_out.train) == [3] * 6
    assert sizes_of(held_out.test) == [2] * 6
    assert not train & test
    assert not (train | test) & set(subset.train.texts)
    assert train | test <= everything


def test_a_text_that_occurs_twice_is_chosen_once_whatever_the_files_order(data: Path) -> None:
    path = data / FOLDER / "ai.train.conll.gz"
    twice = ["Same\tB-ORG\nwords\tO\n", "Same\tO\nwords\tB-PER\n", *sentences("ai", "train", 3)]
    many = Sizes(train=4, test=2, held_out_train=3, held_out_test=2)
    seen = []
    for lines in (twice, twice[::-1]):
        write(path, "\n".join(lines))
        parts = (load_ner(data, sizes=many), load_ner(data, "held-out", sizes=many))
        rows = [one for stream in parts for one in (stream.train, stream.test)]
        seen.append([(part.texts, part.answers) for part in rows])
        chosen = texts_of(parts[0].train, 4) + texts_of(parts[1].train, 4)
        chosen += texts_of(parts[1].test, 4)
        assert len(set(chosen)) == len(chosen)
        assert load_stream("ner", data, "all").train.texts.count("Same words") == 2
    assert seen[0] == seen[1]


def test_too_few_sentences_to_hold_out_are_told(data: Path) -> None:
    path = data / FOLDER / "music.train.conll.gz"
    write(path, "\n".join(sentences("music", "train", 2)))
    with pytest.raises(DataError, match=r"music.* has 2 distinct sentences.*--rows all"):
        load_stream("ner", data, "held-out")
    write(path, "\n")
    with pytest.raises(DataError, match=r"music\.train.* contains no sentence"):
        load_stream("ner", data)


def test_unknown_rows_name_the_known_ones(data: Path) -> None:
    with pytest.raises(ConfigError, match="subset, held-out or all"):
        load_stream("ner", data, "some")


def test_a_missing_directory_or_file_says_what_was_looked_for(data: Path) -> None:
    with pytest.raises(
        DataError, match=r"'ner'.*DIR with ner_crossner/coarse/DOMAIN\.train\.conll"
    ):
        load_stream("ner", None)
    for name in ("anchors/wikipedia_sentences.txt.gz", f"{FOLDER}/wiki.test.conll.gz"):
        (data / name).unlink()
        with pytest.raises(DataError, match=f"file .*{name} does not exist"):
            load_stream("ner", data)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Oslo\tB-GPE", "tag B-GPE has no declared type; expected O, .* PER, ORG, LOC, MISC"),
        ("Oslo\tI-LOC", "tag I-LOC after O"),
        ("Oslo", "1 columns"),
    ],
)
def test_a_damaged_line_is_named(data: Path, line: str, message: str) -> None:
    write(data / FOLDER / "science.train.conll.gz", f"In\tO\n{line}\n")
    with pytest.raises(DataError, match=rf"science\.train\.conll\.gz, line 2: {message}"):
        load_stream("ner", data, "all")


def real_data() -> Path | None:
    """Where the data sets lie, if they are here."""
    given = os.environ.get("CSLR_DATA")
    return Path(given) if given and Path(given).is_dir() else None


@pytest.mark.skipif(real_data() is None, reason="no CrossNER: set CSLR_DATA to its directory")
def test_the_real_domains_have_the_sizes_figures_are_reported_on() -> None:
    subset = load_stream("ner", real_data())
    held_out = load_stream("ner", real_data(), "held-out")
    everything = load_stream("ner", real_data(), "all")
    assert sizes_of(subset.train) == [400, 377, 270, 300, 268, 400]
    assert sizes_of(subset.test) == [250] * 6
    assert sizes_of(held_out.train) == [203, 151, 108, 120, 107, 240]
    assert sizes_of(held_out.test) == [136, 101, 72, 80, 72, 160]
    assert (len(everything.train), len(everything.test)) == (3_971, 3_011)
    for task in range(6):
        parts = (subset.train, subset.test, held_out.train, held_out.test)
        texts = [text for part in parts for text in texts_of(part, task)]
        assert len(set(texts)) == len(texts)
        for part in parts:
            rows = np.flatnonzero(part.tasks == task)
            tags = {tag for row in rows for tag in part.answers[row]}
            assert tags == set(range(9))

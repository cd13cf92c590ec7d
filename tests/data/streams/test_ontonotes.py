"""OntoNotes-Genre from a directory of the user's own, in the layout of CoNLL-2012."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from cslr.data.streams import Rows, load_stream
from cslr.data.streams.conll import read_conll2012
from cslr.data.streams.data_directory import Sizes
from cslr.data.streams.ontonotes import GENRES, load_ontonotes
from cslr.errors import ConfigError, DataError

SIZES = Sizes(train=5, test=3, held_out_train=3, held_out_test=2, public=5)


def row(document: str, place: int, word: str, name: str) -> str:
    start = [document, "0", str(place), word, "XX", "*", "-", "-", "-", "Speaker#1", name]
    return "   ".join([*start, *["*"] * place, "-"])


def document(name: str, sentences: int = 2) -> str:
    """A document of two parts; every sentence tells its place in it."""
    marks = ["(ORG*", "*)", "*", "(GPE)", "*"]
    texts = [["Sea", "Council", "meets", "Oslo", f"{name}#{number}"] for number in range(sentences)]
    blocks = [
        "".join(
            row(name, place, word, mark) + "\n"
            for place, (word, mark) in enumerate(zip(words, marks, strict=True))
        )
        for words in texts
    ]
    first, second = "\n".join(blocks[:1]), "\n".join(blocks[1:])
    return "\n".join(
        [
            f"#begin document ({name}); part 000",
            first,
            "#end document",
            f"#begin document ({name}); part 001",
            second,
            "#end document\n",
        ]
    )


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def release(directory: Path, part: str, genre: str, count: int) -> None:
    """Documents as the LDC's scripts lay them out, one a file."""
    for number in range(count):
        name = f"{genre}/source/00/{part}_{number:04}"
        below = directory / "v4/data" / part / "data/english/annotations"
        write(below / f"{name}.v4_gold_conll", document(name))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    public = "".join(f"Public sentence {number}.\n" for number in range(9))
    anchors = tmp_path / "anchors" / "wikipedia_sentences.txt.gz"
    anchors.parent.mkdir()
    anchors.write_bytes(gzip.compress(public.encode()))
    for genre in ("wb", "bc"):
        release(tmp_path, "train", genre, 10)
        release(tmp_path, "development", genre, 3)
        release(tmp_path, "test", genre, 3)
    return tmp_path


def documents(rows: Rows) -> set[str]:
    return {text.split(" ")[-1].split("#")[0] for text in rows.texts}


def sizes_of(rows: Rows) -> list[int]:
    return [int(count) for count in np.bincount(rows.tasks)]


def by_hash(names: list[str]) -> list[str]:
    return sorted(
        names, key=lambda name: hashlib.sha256(f"cslr/ontonotes/1\0{name}".encode()).hexdigest()
    )


def test_the_genres_that_occur_are_tasks_which_share_o_and_eighteen_types(data: Path) -> None:
    stream = load_ontonotes(data, sizes=SIZES)
    assert (stream.name, stream.family) == ("ontonotes", "tagging")
    assert len(stream.labels) == 19
    assert stream.labels[0].name == "O"
    assert [task.name for task in stream.tasks] == ["bc", "wb"]
    assert {task.labels for task in stream.tasks} == {tuple(range(19))}
    assert (stream.scenarios, stream.clients) == (("domain",), 30)
    assert (stream.partition, stream.cap) == ("task", 1)
    assert stream.public == tuple(f"Public sentence {number} ." for number in range(5))


def test_all_six_genres_stand_in_their_order(data: Path) -> None:
    for genre in ("nw", "tc", "mz", "bn"):
        release(data, "train", genre, 1)
        release(data, "test", genre, 1)
    assert [task.name for task in load_stream("ontonotes", data).tasks] == list(GENRES)


def test_words_and_brackets_become_texts_and_tags_of_the_document(data: Path) -> None:
    train = load_stream("ontonotes", data, "all").train
    assert sizes_of(train) == [20, 20]
    assert "Sea Council meets Oslo bc/source/00/train_0003#1" in train.texts
    names = [label.name for label in load_stream("ontonotes", data, "all").labels]
    organisation, place = names.index("ORG"), names.index("GPE")
    expected = (2 * organisation - 1, 2 * organisation, 0, 2 * place - 1, 0)
    assert set(train.answers) == {expected}
    assert train.people is not None
    own = [text.split(" ")[-1].split("#")[0] for text in train.texts]
    assert len(set(zip(own, train.people.tolist(), strict=True))) == len(set(own)) == 20


def test_the_parts_are_those_of_the_directories_and_development_stays_shut(data: Path) -> None:
    bad = data / "v4/data/development/data/english/annotations/bad_gold_conll"
    write(bad, "bad")
    stream = load_stream("ontonotes", data, "all")
    assert all("/train_" in name for name in documents(stream.train))
    assert all("/test_" in name for name in documents(stream.test))
    assert (sizes_of(stream.train), sizes_of(stream.test)) == ([20, 20], [6, 6])


def test_where_several_directories_name_a_part_the_last_one_does(data: Path) -> None:
    (data / "v4/data/test").rename(data / "kept")
    (data / "v4").rename(data / "train")
    (data / "kept").rename(data / "train/test")
    stream = load_stream("ontonotes", data, "all")
    assert (sizes_of(stream.train), sizes_of(stream.test)) == ([20, 20], [6, 6])


def test_other_languages_and_the_bible_are_passed_over(data: Path) -> None:
    write(data / "train/arabic/a.v4_gold_conll", document("nw/ann/00/ann_0001"))
    write(data / "train/chinese/a.v4_gold_conll", document("bc/cctv/00/cctv_0001"))
    write(data / "train/b.v4_gold_conll", document("pt/nt/40/nt_4001").replace("(GPE)", "-"))
    stream = load_stream("ontonotes", data, "all")
    assert [task.name for task in stream.tasks] == ["bc", "wb"]
    assert sizes_of(stream.train) == [20, 20]


def test_without_such_directories_a_hash_of_the_document_decides(data: Path) -> None:
    names = [f"nw/wire/00/wire_{number:04}" for number in range(60)]
    own = data / "own"
    write(own / "all.v4_gold_conll", "".join(document(name) for name in names))
    (data / "anchors").rename(own / "anchors")
    stream = load_stream("ontonotes", own, "all")

    def number(name: str) -> int:
        return int(hashlib.sha256(f"cslr/ontonotes/1/test\0{name}".encode()).hexdigest(), 16)

    test = {name for name in names if number(name) % 10 < 2}
    assert documents(stream.test) == test
    assert documents(stream.train) == set(names) - test
    assert 4 <= len(test) <= 20


def test_the_subset_takes_documents_in_hash_order_until_there_are_enough_sentences(
    data: Path,
) -> None:
    stream = load_ontonotes(data, sizes=SIZES)
    for part, count in ((stream.train, 5), (stream.test, 3)):
        assert sizes_of(part) == [count, count]
    for task, genre in enumerate(("bc", "wb")):
        order = by_hash([f"{genre}/source/00/train_{number:04}" for number in range(10)])
        texts = [stream.train.texts[place] for place in np.flatnonzero(stream.train.tasks == task)]
        expected = [(name, number) for name in order[:3] for number in range(2)][:5]
        assert texts == [f"Sea Council meets Oslo {name}#{number}" for name, number in expected]


def test_a_small_genre_leaves_two_fifths_of_its_documents_to_hold_out(data: Path) -> None:
    assert sizes_of(load_stream("ontonotes", data).train) == [12, 12]
    held_out = load_stream("ontonotes", data, "held-out")
    assert sizes_of(held_out.train) == [4, 4]
    assert sizes_of(held_out.test) == [4, 4]


@pytest.mark.parametrize("sizes", [SIZES, Sizes(1_000, 300, 400, 200)])
def test_held_out_documents_are_train_ones_outside_the_subset_and_leave_the_test_files_shut(
    data: Path, sizes: Sizes
) -> None:
    subset = load_ontonotes(data, sizes=sizes)
    for path in (data / "v4/data/test").rglob("*gold_conll"):
        path.write_text("damaged", encoding="utf-8")
    held_out = load_ontonotes(data, "held-out", sizes=sizes)
    parts = [documents(part) for part in (subset.train, held_out.train, held_out.test)]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)
    assert all("/train_" in name for part in parts for name in part)


def test_a_genre_without_documents_for_both_parts_is_told(data: Path) -> None:
    release(data, "train", "tc", 1)
    with pytest.raises(DataError, match=r"too few documents of genre tc .*remove tc"):
        load_stream("ontonotes", data)
    with pytest.raises(DataError, match="too few documents of genre tc"):
        load_stream("ontonotes", data, "held-out")


def test_a_document_in_two_files_or_two_parts_is_refused(data: Path) -> None:
    name = "bc/source/00/train_0001"
    copy = data / "v4/data/test/copy_gold_conll"
    write(copy, document(name))
    with pytest.raises(DataError, match=f"document {name} is in both train and test"):
        load_stream("ontonotes", data)
    copy.rename(data / "v4/data/train/copy_gold_conll")
    with pytest.raises(DataError, match=f"document {name} is also in another file"):
        load_stream("ontonotes", data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row("bc/a/00/a_1", 0, "word", "*)"), r"line 2: the brackets '\*\)'"),
        (row("bc/a/00/a_1", 0, "word", "(ORG*"), r"line 2: the sentence ends within \(ORG\*"),
        (row("bc/a/00/a_1", 0, "word", "(ANIMAL)"), "line 2: tag B-ANIMAL has no declared type"),
        ("bc/a/00/a_1 0 0 word", "line 2: 4 columns"),
        (row("xx/a/00/a_1", 0, "word", "*"), "document 'xx/a/00/a_1' has no genre"),
    ],
)
def test_a_damaged_file_is_named(data: Path, content: str, message: str) -> None:
    write(data / "train/bad.v4_gold_conll", f"#begin document (bc/a/00/a_1); part 000\n{content}\n")
    with pytest.raises(DataError, match=rf"bad\.v4_gold_conll.*{message}"):
        load_stream("ontonotes", data)


def test_a_directory_without_the_files_says_where_they_come_from(data: Path) -> None:
    with pytest.raises(DataError, match=r"'ontonotes'.*DIR with \*\*/\*gold_conll, anchors/"):
        load_stream("ontonotes", None)
    with pytest.raises(DataError, match=r"no train document of .* in its 0 files .*the LDC's"):
        load_stream("ontonotes", data / "anchors")
    with pytest.raises(ConfigError, match="subset, held-out or all"):
        load_stream("ontonotes", data, "some")


def sample() -> Path | None:
    """A few sentences in the layout, if they are here."""
    given = os.environ.get("CSLR_DATA")
    path = Path(given, "ontonotes_format", "sample.v4_gold_conll") if given else None
    return path if path and path.is_file() else None


@pytest.mark.skipif(sample() is None, reason="no sample of the layout: set CSLR_DATA")
def test_the_sample_of_the_layout_is_read() -> None:
    path = sample()
    assert path is not None
    found = list(read_conll2012(path, lambda document: True))
    assert [len(sentence.words) for sentence in found] == [9, 6, 4, 4]
    names = [[tag for tag in sentence.tags if tag != "O"] for sentence in found]
    assert names == [
        ["B-PERSON", "I-PERSON", "B-ORG", "I-ORG", "B-DATE", "I-DATE"],
        ["B-MONEY", "I-MONEY", "I-MONEY"],
        ["B-GPE"],
        ["B-PERSON"],
    ]
    assert [sentence.document[:2] for sentence in found] == ["nw", "nw", "bc", "bc"]
    with pytest.raises(DataError, match=r"no test document of"):
        load_stream("ontonotes", path.parent)

"""Data sets of the hub become the files that the loaders read; tried on invented local copies."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cslr.data.hub import SOURCES, fetch
from cslr.data.hub.ag_news import headline
from cslr.data.hub.public import sentences
from cslr.data.streams import load_stream
from cslr.data.streams.amazon import DOMAINS
from cslr.data.streams.data_directory import public_sentences
from cslr.errors import ConfigError, DataError

datasets = pytest.importorskip("datasets", reason="the extra cslr[hub] is not installed")

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's cache is read or filled, and nothing goes online."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that already has public sentences."""
    write(tmp_path / "copy of text" / "train.jsonl", [{"text": "A public sentence of some words."}])
    fetch("public", tmp_path / "data", str(tmp_path / "copy of text"))
    return tmp_path / "data"


def write(path: Path, rows: Rows) -> None:
    """As JSON lines or as Parquet, by the name of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
        return
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(path: Path) -> Rows:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


# AG News


def labelled(texts: list[str], labels: list[int]) -> Rows:
    return [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]


def write_ag_news(folder: Path, train: Rows, test: Rows) -> None:
    """As fancyzhx/ag_news: data/SPLIT-*.parquet with a class label."""
    names = ["World", "Sports", "Business", "Sci/Tech"]
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=names)
    )
    (folder / "data").mkdir(parents=True)
    for name, rows in (("train", train), ("test", test)):
        part = datasets.Dataset.from_list(rows, features=features)
        part.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")


def test_ag_news_is_read_by_its_loader(copy: Path, data: Path) -> None:
    train = labelled(
        [
            "Seas Rise Again (AFP) AFP - Sailors were warned. Boats stayed in.",
            "Cup won after long wait The keeper saved three shots.",
            "Shares fall on rate fears LONDON (Reuters) - Banks led the way down.",
            "Probe finds ice and sends pictures home",
        ],
        [0, 1, 2, 3],
    )
    write_ag_news(copy, train, labelled(["Talks end. Both sides leave."] * 2, [0, 0]))
    paths = fetch("ag-news", data, str(copy))
    assert paths == [data / "ag_news" / "train.jsonl.gz", data / "ag_news" / "test.jsonl.gz"]
    stream = load_stream("ag-news", data, "all")
    assert stream.train.texts == (
        "Seas Rise Again (AFP). AFP - Sailors were warned. Boats stayed in.",
        "Cup won after long wait. The keeper saved three shots.",
        "Shares fall on rate fears. LONDON (Reuters) - Banks led the way down.",
        "Probe finds ice and sends pictures home. ",
    )
    assert stream.train.labels.tolist() == [0, 1, 2, 3]
    assert stream.test.texts == ("Talks end. Both sides leave.",)


def test_titles_and_descriptions_are_taken_as_they_are(copy: Path, data: Path) -> None:
    """The form of sh0416/ag_news, whose labels count from 1."""
    rows = [
        {"label": label, "title": f"Title The {label}", "description": "A first. A second."}
        for label in (4, 1, 2)
    ]
    write(copy / "train.jsonl", rows[:2])
    write(copy / "test.jsonl", rows[2:])
    fetch("ag-news", data, str(copy))
    assert read(data / "ag_news" / "train.jsonl.gz") == [
        {"label": label, "title": title, "description": "A first. A second.", "label_name": name}
        for label, title, name in ((3, "Title The 4", "Sci/Tech"), (0, "Title The 1", "World"))
    ]
    assert load_stream("ag-news", data, "all").test.labels.tolist() == [1]


def test_a_text_of_the_test_split_is_not_trained_on(copy: Path, data: Path) -> None:
    both, other = "In both. And the same.", "In train only. Twice."
    write_ag_news(copy, labelled([other, both, other], [0, 1, 0]), labelled([both], [1]))
    fetch("ag-news", data, str(copy))
    stream = load_stream("ag-news", data, "all")
    assert (stream.train.texts, stream.test.texts) == ((other,), (both,))


def test_broken_html_is_mended(copy: Path, data: Path) -> None:
    text = (
        r"Firm #39;s  quot;big quot; day &lt;b&gt;is here&lt;/b&gt;. Up  #36;2\million at A amp;B."
    )
    write_ag_news(copy, labelled([text], [2]), labelled(["Quiet. Day."], [2]))
    fetch("ag-news", data, str(copy))
    assert load_stream("ag-news", data, "all").train.texts == (
        'Firm\'s "big" day is here. Up $2 million at A&B.',
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("One. Two. Three.", "One"),
        ("No boundary anywhere.", "No boundary anywhere"),
        ("St. Mary wins", "St"),
        ("Bank of X (XB) buys Y (AP) AP - Sale agreed.", "Bank of X (XB) buys Y (AP)"),
        ("Minister resigns over note ROME: He left.", "Minister resigns over note"),
        ("Plan for The Hague agreed at last It was late.", "Plan for The Hague agreed at last"),
    ],
)
def test_a_headline_ends_at_the_first_sign(text: str, title: str) -> None:
    found, description = headline(text)
    assert found == title
    words = f"{found} {description}".replace(".", "").split()
    assert words == text.replace(".", "").split()


def test_labels_that_are_not_the_four_are_refused(copy: Path, data: Path) -> None:
    write(copy / "train.jsonl", labelled(["One. Two."], [5]))
    write(copy / "test.jsonl", labelled(["Three. Four."], [0]))
    with pytest.raises(DataError, match=r"labels \['0', '5'\], expected 0 to 3 or 1 to 4"):
        fetch("ag-news", data, str(copy))


# Amazon

CATEGORIES = ("Books", "Movies_and_TV", "Electronics", "Home_and_Kitchen", "Toys_and_Games")


def review(text: str, rating: float) -> dict[str, Any]:
    """As a row of McAuley-Lab/Amazon-Reviews-2023."""
    return {
        "rating": rating,
        "title": "Title",
        "text": text,
        "images": [],
        "asin": "B0",
        "user_id": "A",
    }


def reviews(category: str, count: int) -> Rows:
    return [
        review(f"A review of {category}, number {number}, with {stars} stars.", float(stars))
        for number in range(count)
        for stars in range(1, 6)
    ]


@pytest.mark.parametrize("folder", [".", "raw/review_categories"])
def test_amazon_is_read_by_its_loader(copy: Path, data: Path, folder: str) -> None:
    for category in CATEGORIES:
        write(copy / folder / f"{category}.jsonl", reviews(category, 20))
    assert fetch("amazon", data, str(copy)) == [
        data / "amazon" / "train.jsonl.gz",
        data / "amazon" / "test.jsonl.gz",
    ]
    stream = load_stream("amazon", data, "all")
    assert len(stream.train) + len(stream.test) == 5 * 20 * 4  # three stars say nothing
    for part in (stream.train, stream.test):
        for text, label, task in zip(part.texts, part.labels, part.tasks, strict=True):
            assert f"of {CATEGORIES[task]}," in text
            assert int(text[-8]) in ((1, 2), (4, 5))[label]
    assert 0.1 < len(stream.test) / len(stream.train) < 0.5
    assert not set(stream.train.texts) & set(stream.test.texts)


def test_short_reviews_and_repeated_ones_are_passed_over(copy: Path, data: Path) -> None:
    for category in CATEGORIES:
        same = review("The same words<br />about&nbsp;everything\ud800.", 5.0)
        rows = [*reviews(category, 20), same, review("Great", 5.0), same | {"text": None}]
        write(copy / f"{category}.jsonl", rows)
    fetch("amazon", data, str(copy))
    rows = [row for part in ("train", "test") for row in read(data / f"amazon/{part}.jsonl.gz")]
    texts = Counter(row["text"] for row in rows)
    assert len(texts) == len(rows) == 5 * 20 * 4 + 1
    assert texts["The same words about everything."] == 1


def test_no_more_reviews_are_read_than_are_kept(
    copy: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cslr.data.hub.amazon._MOST", {"train": 6, "test": 2})
    for category in CATEGORIES:
        damage = review("A review that must never be reached.", 9.0)
        write(copy / f"{category}.jsonl", [*reviews(category, 40), damage])
    fetch("amazon", data, str(copy))
    stream = load_stream("amazon", data, "all")
    kinds = Counter(zip(stream.train.tasks.tolist(), stream.train.labels.tolist(), strict=True))
    assert kinds == {(task, label): 6 for task in range(5) for label in range(2)}
    assert len(stream.test) == 5 * 2 * 2


def test_a_data_set_with_domains_keeps_its_own_splits(copy: Path, data: Path) -> None:
    for part in ("train", "test"):
        rows = [
            {"text": f"The {part} text {label} of {domain}", "label": label, "domain": domain}
            for domain in ("music", *DOMAINS)
            for label in (0, 1)
        ]
        write(copy / f"{part}.parquet", rows)
    fetch("amazon", data, str(copy))
    stream = load_stream("amazon", data, "all")
    for part, rows in (("train", stream.train), ("test", stream.test)):
        expected = {
            f"The {part} text {label} of {domain}" for domain in DOMAINS for label in (0, 1)
        }
        assert set(rows.texts) == expected
        for text, label in zip(rows.texts, rows.labels, strict=True):
            assert f"text {label} of" in text


def test_kinds_of_product_are_known_by_their_other_names(copy: Path, data: Path) -> None:
    names = {"Books": 0, "Video DVD": 1, "Electronics": 2, "Kitchen": 3, "Toys & Games": 4}
    rows = [
        {
            "product_category": name,
            "star_rating": stars,
            "review_body": f"Review {number} with {stars} stars of {name}",
        }
        for name in (*names, "Grocery")
        for stars in (1, 3, 5)
        for number in range(20)
    ]
    write(copy / "train.jsonl", rows)
    fetch("amazon", data, str(copy))
    stream = load_stream("amazon", data, "all")
    for text, task in zip(stream.train.texts, stream.train.tasks, strict=True):
        assert names[text.partition(" of ")[2]] == task
    assert len(stream.train) + len(stream.test) == 5 * 2 * 20


def test_a_domain_without_reviews_is_told(copy: Path, data: Path) -> None:
    for category in CATEGORIES[:4]:
        write(copy / f"{category}.jsonl", reviews(category, 20))
    with pytest.raises(DataError, match="no negative train review of toys_games"):
        fetch("amazon", data, str(copy))
    assert not (data / "amazon").exists()


@pytest.mark.parametrize("rating", [0.0, 6.0, 2.5])
def test_a_rating_that_is_none_is_told(copy: Path, data: Path, rating: float) -> None:
    write(copy / "Books.jsonl", [*reviews("Books", 1), review("A review with odd stars.", rating)])
    with pytest.raises(DataError, match=rf"row 6: rating {rating}, expected one of"):
        fetch("amazon", data, str(copy))


@pytest.mark.parametrize(
    ("line", "message"), [('{"text": "cut', "not valid JSON"), ("[]", "not a review")]
)
def test_a_damaged_review_is_named(copy: Path, data: Path, line: str, message: str) -> None:
    write(copy / "Books.jsonl", reviews("Books", 1))
    with (copy / "Books.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(DataError, match=rf"Books\.jsonl, line 6: {message}"):
        fetch("amazon", data, str(copy))


def test_reviews_need_not_have_columns_of_one_type(copy: Path, data: Path) -> None:
    for category in CATEGORIES:
        rows = reviews(category, 20)
        write(copy / f"{category}.jsonl", [*rows[:-1], rows[-1] | {"images": [{"large": "url"}]}])
    fetch("amazon", data, str(copy))
    assert sum(len(read(data / f"amazon/{part}.jsonl.gz")) for part in ("train", "test")) == 400


# MultiWOZ


def turn(number: int, text: str, *acts: str) -> dict[str, Any]:
    """A turn with its acts; even ones are the user's."""
    return {"number": number, "text": text, "acts": acts}


def dialogues(part: str) -> dict[str, list[dict[str, Any]]]:
    """Invented dialogues, of which in train some speak of the police."""
    common = [
        turn(0, "Somewhere  cheap to sleep, please.", "Hotel-Inform"),
        turn(1, "Which part of town?", "Hotel-Request"),
        turn(
            2, "North. What does the train cost?", "general-greet", "Train-Request", "Hotel-Inform"
        ),
        turn(3, "Ten pounds.", "Train-Inform"),
        turn(4, "I see.", "Bus-Inform"),
        turn(5, "Anything else?", "general-reqmore"),
        turn(6, "No, thank you.", "general-thank"),
        turn(8, "Hm."),
    ]
    found = {f"{part.upper()}{number:04}.json": common for number in range(3)}
    if part == "train":
        police = [turn(0, "I was robbed.", "Police-Inform"), turn(1, "Where?"), turn(2, "  ")]
        found |= {f"SNG{number:04}.json": police for number in range(40)}
    return found


def hub_dialogue(name: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
    """As pfb30/multi_woz_v22 builds it from the official files."""
    return {
        "dialogue_id": name,
        "services": ["hotel"],
        "turns": [
            {
                "turn_id": str(turn["number"]),
                "speaker": turn["number"] % 2,
                "utterance": turn["text"],
                "frames": [],
                "dialogue_acts": {
                    "dialog_act": [
                        {"act_type": act, "act_slots": {"slot_name": [], "slot_value": []}}
                        for act in turn["acts"]
                    ],
                    "span_info": [],
                },
            }
            for turn in turns
        ],
    }


def as_columns(dialogue: dict[str, Any]) -> dict[str, Any]:
    """Lists of records as the library keeps them under a ``Sequence``: records of lists."""
    turns = dialogue["turns"]
    columns = {name: [turn[name] for turn in turns] for name in turns[0]}
    columns["frames"] = [{"service": []} for _ in turns]
    columns["dialogue_acts"] = [
        {
            "dialog_act": {
                name: [act[name] for act in acts["dialog_act"]]
                for name in ("act_type", "act_slots")
            },
            "span_info": {"act_type": []},
        }
        for acts in columns["dialogue_acts"]
    ]
    return dialogue | {"turns": columns}


def hub_features() -> Any:
    """The columns of that form."""
    text, sequence = datasets.Value("string"), datasets.Sequence
    act = {"act_type": text, "act_slots": sequence({"slot_name": text, "slot_value": text})}
    turns = {
        "turn_id": text,
        "speaker": datasets.ClassLabel(names=["USER", "SYSTEM"]),
        "utterance": text,
        "frames": sequence({"service": text}),
        "dialogue_acts": {"dialog_act": sequence(act), "span_info": sequence({"act_type": text})},
    }
    return datasets.Features(dialogue_id=text, services=sequence(text), turns=sequence(turns))


def write_branch(folder: Path) -> None:
    """As the branch refs/convert/parquet, with both of its configurations."""
    for config in ("v2.2", "v2.2_active_only"):
        for part, name in (("train", "train"), ("dev", "validation"), ("test", "test")):
            rows = [as_columns(hub_dialogue(*entry)) for entry in dialogues(part).items()]
            path = folder / config / name / "0000.parquet"
            path.parent.mkdir(parents=True)
            datasets.Dataset.from_list(rows, features=hub_features()).to_parquet(path)


def write_lists(folder: Path) -> None:
    """The same rows as plain JSON lines, where records stay records."""
    for part in ("train", "dev", "test"):
        write(folder / f"{part}.jsonl", [hub_dialogue(*entry) for entry in dialogues(part).items()])


def write_official(folder: Path) -> None:
    """The files of the official archive: dialogues in pieces, acts apart."""
    acts = {}
    for part in ("train", "dev", "test"):
        pieces: list[Rows] = [[], []]
        for place, (name, turns) in enumerate(dialogues(part).items()):
            speakers = ("USER", "SYSTEM")
            pieces[place % 2].append(
                {
                    "dialogue_id": name,
                    "services": ["hotel"],
                    "turns": [
                        {
                            "turn_id": str(turn["number"]),
                            "speaker": speakers[turn["number"] % 2],
                            "utterance": turn["text"],
                            "frames": [],
                        }
                        for turn in turns
                    ],
                }
            )
            acts[name] = {
                str(turn["number"]): {
                    "dialog_act": {act: [["none", "none"]] for act in turn["acts"]}
                }
                for turn in turns
                if turn["acts"]
            }
        (folder / part).mkdir(parents=True)
        for number, piece in enumerate(pieces, start=1):
            (folder / part / f"dialogues_{number:03}.json").write_text(json.dumps(piece))
    (folder / "dialog_acts.json").write_text(json.dumps(acts))


FORMS = pytest.mark.parametrize("write_copy", [write_branch, write_lists, write_official])


@FORMS
def test_multiwoz_has_the_lines_of_the_layout(copy: Path, data: Path, write_copy: Any) -> None:
    write_copy(copy)
    paths = fetch("multiwoz", data, str(copy))
    assert paths == [data / "multiwoz" / f"{part}.jsonl.gz" for part in ("train", "dev", "test")]
    rows = read(data / "multiwoz" / "dev.jsonl.gz")
    assert {row["dialogue_id"] for row in rows} == {"DEV0000", "DEV0001", "DEV0002"}
    own = [row for row in rows if row["dialogue_id"] == "DEV0001"]
    base = {"dialogue_id": "DEV0001", "split": "dev", "fold": "dev"}
    assert own == [
        {"text": text, "domain": domain, "intent": acts[0], "intents": acts, **base, "turn": number}
        for text, domain, acts, number in (
            ("Somewhere cheap to sleep, please.", "hotel", ["Hotel-Inform"], 0),
            (
                "North. What does the train cost?",
                "train",
                ["Train-Request", "Hotel-Inform", "general-greet"],
                2,
            ),
            ("I see.", "none", ["NONE"], 4),
            ("No, thank you.", "general", ["general-thank"], 6),
            ("Hm.", "none", ["NONE"], 8),
        )
    ]


@FORMS
def test_a_quarter_of_the_dialogues_with_the_police_is_tested_on(
    copy: Path, data: Path, write_copy: Any
) -> None:
    write_copy(copy)
    fetch("multiwoz", data, str(copy))
    rows = read(data / "multiwoz" / "train.jsonl.gz")
    folds = {row["dialogue_id"]: row["fold"] for row in rows}
    assert len(folds) == 43
    for name, fold in folds.items():
        divides = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 4 == 0
        assert fold == ("test" if divides and name.startswith("SNG") else "train")
    assert 4 <= list(folds.values()).count("test") <= 16
    assert {row["split"] for row in rows} == {"train"}


def test_a_dialogue_of_two_splits_is_kept_in_test(copy: Path, data: Path) -> None:
    write_lists(copy)
    rows = [hub_dialogue(*entry) for entry in dialogues("test").items()]
    write(copy / "dev.jsonl", [*rows, hub_dialogue("X", [turn(0, "Hello.", "general-greet")])])
    fetch("multiwoz", data, str(copy))
    assert [row["dialogue_id"] for row in read(data / "multiwoz" / "dev.jsonl.gz")] == ["X"]


def test_multiwoz_is_read_by_its_loader(copy: Path, data: Path) -> None:
    pytest.importorskip("cslr.data.streams.multiwoz", reason="no loader of MultiWOZ")
    write_branch(copy)
    fetch("multiwoz", data, str(copy))
    stream = load_stream("multiwoz", data, "all")
    assert "I was robbed." in stream.train.texts
    assert "I was robbed." in stream.test.texts  # by fold
    assert "North. What does the train cost?" in stream.test.texts


def test_damaged_official_files_are_named(copy: Path, data: Path) -> None:
    write_official(copy)
    (copy / "dev" / "dialogues_002.json").write_text('[{"dialogue_id": "DEV')
    with pytest.raises(DataError, match=r"dialogues_002\.json: cannot be read"):
        fetch("multiwoz", data, str(copy))
    (copy / "dev" / "dialogues_002.json").write_text('[{"dialogue_id": "DEV"}]')
    with pytest.raises(DataError, match=r"dialogues_002\.json: no column turns, only dialogue_id"):
        fetch("multiwoz", data, str(copy))
    (copy / "dev" / "dialogues_001.json").unlink()
    (copy / "dev" / "dialogues_002.json").unlink()
    with pytest.raises(DataError, match="no user turn with a dialogue act in dev"):
        fetch("multiwoz", data, str(copy))


def test_acts_of_other_dialogues_are_noticed(copy: Path, data: Path) -> None:
    write_official(copy)
    (copy / "dialog_acts.json").write_text("{}")
    with pytest.raises(DataError, match="no user turn with a dialogue act in test"):
        fetch("multiwoz", data, str(copy))


def test_a_turn_without_a_number_is_named(copy: Path, data: Path) -> None:
    write_lists(copy)
    path = copy / "train.jsonl"
    path.write_text(path.read_text().replace('"turn_id": "2"', '"turn_id": "two"', 1))
    with pytest.raises(DataError, match=r"train: dialogue TRAIN0000\.json has a turn 'two'"):
        fetch("multiwoz", data, str(copy))


# Public sentences

PARAGRAPH = (
    " In 1 @,@ 912 the north @-@ east wing ( built by Mr. Low ) cost $ 2 @.@ 5 million . He said "
    "it was n't the town 's \" finest hour \" . Too short . \n"
)


def test_wikitext_becomes_sentences() -> None:
    assert list(sentences(PARAGRAPH)) == [
        "In 1,912 the north-east wing (built by Mr. Low) cost $2.5 million.",
        "He said it wasn't the town's \"finest hour\".",
    ]
    assert list(sentences(" = A heading that is long enough . = \n")) == []
    assert list(sentences("")) == []
    assert list(sentences("a piece of a sentence that is long enough .")) == []
    assert list(sentences(f"A {'very ' * 60}long sentence .")) == []


def test_plain_text_becomes_sentences() -> None:
    assert list(sentences("Dr. Low built the mill in 1912. It burned down in the war! Gone.")) == [
        "Dr. Low built the mill in 1912.",
        "It burned down in the war!",
    ]


def test_public_sentences_are_in_hash_order(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [f"The sentence with the number {number} stands here." for number in range(60)]
    rows = [{"text": text} for text in ["", *wanted, *reversed(wanted)]]
    write(copy / "train.parquet", rows)
    ordered = sorted(
        wanted, key=lambda text: hashlib.sha256(f"cslr/public/1\0{text}".encode()).digest()
    )
    paths = fetch("public", tmp_path / "data", str(copy))
    assert paths == [tmp_path / "data" / "anchors" / "wikipedia_sentences.txt.gz"]
    assert public_sentences(tmp_path / "data", 100) == tuple(ordered)
    monkeypatch.setattr("cslr.data.hub.public._COUNT", 25)
    fetch("public", tmp_path / "data", str(copy))
    assert public_sentences(tmp_path / "data", 100) == tuple(ordered[:25])


def test_a_corpus_without_a_sentence_is_refused(copy: Path, data: Path) -> None:
    write(copy / "train.jsonl", [{"text": "Short."}])
    with pytest.raises(DataError, match="no sentence of 20 to 300 characters"):
        fetch("public", data, str(copy))


# All of them


def test_the_same_rows_give_the_same_bytes(copy: Path, tmp_path: Path) -> None:
    write_official(copy)
    first, second = (
        [path.read_bytes() for path in fetch("multiwoz", tmp_path / name, str(copy))]
        for name in ("one", "two")
    )
    assert first == second


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("ag-news", {"text": "One. Two."}, "no column label, only text"),
        ("ag-news", {"label": 1, "body": "One. Two."}, "no column text, only label, body"),
        ("amazon", {"text": "A text.", "domain": "books"}, "no column rating or .* or label"),
        ("amazon", {"body": "A text.", "label": 1}, "no column text or review_body"),
        ("amazon", {"text": "A text.", "label": 1}, "no column domain or product_category"),
        ("multiwoz", {"dialogue_id": "A", "log": []}, "no column turns, only dialogue_id, log"),
        ("multiwoz", {"dialogue_id": "A", "turns": [{"text": "Hi"}]}, "no column dialogue_acts"),
        ("public", {"sentence": "A text."}, "no column text, only sentence"),
    ],
)
def test_a_missing_column_is_named(
    copy: Path, data: Path, name: str, row: dict[str, Any], message: str
) -> None:
    for part in ("train", "dev", "test"):
        write(copy / f"{part}.jsonl", [row])
    with pytest.raises(DataError, match=rf"copy.*{message}.*--source"):
        fetch(name, data, str(copy))


@pytest.mark.parametrize(("name", "missing"), [("ag-news", "test"), ("multiwoz", "test")])
def test_a_missing_split_is_named(copy: Path, data: Path, name: str, missing: str) -> None:
    write(copy / "train.jsonl", labelled(["One. Two."], [0]))
    with pytest.raises(DataError, match=f"no split {missing}, only train"):
        fetch(name, data, str(copy))


@pytest.mark.parametrize("name", SOURCES)
def test_offline_says_what_to_do(data: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"cannot be downloaded .*--source DIR"):
        fetch(name, data)


@pytest.mark.parametrize("name", SOURCES)
def test_a_directory_without_data_is_told(copy: Path, data: Path, name: str) -> None:
    copy.mkdir()
    with pytest.raises(DataError, match="copy: cannot be read as a data set"):
        fetch(name, data, str(copy))
    with pytest.raises(DataError, match=r"nowhere/at/all' cannot be downloaded .*--source DIR"):
        fetch(name, data, "nowhere/at/all")


def test_a_damaged_file_is_told(copy: Path, data: Path) -> None:
    write(copy / "train.jsonl", labelled(["One. Two."], [0]))
    (copy / "test.jsonl").write_text('{"text": "cut sho')
    with pytest.raises(DataError, match="copy: cannot be read as a data set"):
        fetch("ag-news", data, str(copy))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known data sets: ag-news, amazon, multiwoz, public"):
        fetch("imdb", tmp_path)


def test_without_the_library_the_extra_is_named(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_official(copy)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r'pip install "cslr\[hub\]"'):
        fetch("ag-news", tmp_path)
    assert len(fetch("multiwoz", tmp_path, str(copy))) == 3  # plain files need none


@pytest.fixture
def _bars_shown() -> Iterator[None]:
    datasets.enable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.mark.usefixtures("_bars_shown")
@pytest.mark.parametrize("progress", [False, True])
def test_bars_are_shown_only_if_wanted(
    copy: Path, data: Path, capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    write_branch(copy)
    capsys.readouterr()
    fetch("multiwoz", data, str(copy), progress=progress)
    shown = capsys.readouterr()
    assert ("Generating" in shown.err) == progress
    assert not shown.out
    assert not datasets.are_progress_bars_disabled()


def real_data() -> Path:
    """Where the data sets lie; without them there is nothing to compare with."""
    given = os.environ.get("CSLR_DATA")
    if not given or not Path(given).is_dir():
        pytest.skip("no data sets to compare with: set CSLR_DATA")
    return Path(given)


@pytest.mark.slow
def test_real_dialogues_in_the_form_of_the_hub_give_the_real_lines(copy: Path, data: Path) -> None:
    for part in ("train", "dev", "test"):
        found: dict[str, list[dict[str, Any]]] = {}
        for row in read(real_data() / "multiwoz" / f"{part}.jsonl.gz"):
            acts = [act for act in row["intents"] if act != "NONE"]
            found.setdefault(row["dialogue_id"], []).append(turn(row["turn"], row["text"], *acts))
        write(copy / f"{part}.jsonl", [hub_dialogue(*entry) for entry in found.items()])
    fetch("multiwoz", data, str(copy))
    for part in ("train", "dev", "test"):
        ours = read(data / "multiwoz" / f"{part}.jsonl.gz")
        theirs = read(real_data() / "multiwoz" / f"{part}.jsonl.gz")
        assert len(ours) == len(theirs)
        for own, row in zip(ours, theirs, strict=True):
            row.pop("active_intent", None)
            if not row["intent"].startswith("general-"):  # we put a domain before thanks
                assert own == row


def test_real_headlines_are_found_again() -> None:
    rows = [row for row in read(real_data() / "ag_news" / "test.jsonl.gz") if row["description"]]
    right, wrong, unmarked = 0, 0, 0
    for row in rows:
        text = f"{row['title']} {row['description']}"
        title, description = headline(text)
        if f"{title}. {description}".strip().removesuffix(".") == text.removesuffix("."):
            unmarked += 1
        elif title == row["title"]:
            right += 1
        else:
            wrong += 1
    assert right + wrong > 0.4 * len(rows)
    assert right > 0.95 * (right + wrong)
    assert unmarked < 0.6 * len(rows)

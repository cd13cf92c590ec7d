"""MultiWOZ-Intent from a directory: seven services, two labels each, several a turn."""

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

from cslr.data.stream import Row
from cslr.data.streams import Stream, load_stream
from cslr.data.streams.data_directory import Sizes
from cslr.data.streams.multiwoz import SERVICES, load_multiwoz, multiwoz_rows
from cslr.errors import ConfigError, DataError

SIZES = Sizes(train=3, test=2, held_out_train=2, held_out_test=2, public=5)
LABELS = [f"{name.capitalize()}-{act}" for name in SERVICES for act in ("Inform", "Request")]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))


def turn(dialogue: str, number: int, fold: str, *intents: str, **changes: Any) -> str:
    fields = {
        "text": f"{dialogue} turn {number}",
        "intent": intents[0],
        "intents": list(intents),
        "dialogue_id": dialogue,
        "turn": number,
        "fold": fold,
        "split": "train",
    }
    return json.dumps(fields | changes)


def talks(fold: str, services: tuple[str, ...], count: int) -> list[str]:
    """Dialogues of one service each, which end in thanks; every third asks for a train too."""
    lines = []
    for service in services:
        for number in range(count):
            name, word = f"{fold}-{service}-{number}", service.capitalize()
            lines += [
                turn(name, 4, fold, f"{word}-Request"),
                turn(name, 0, fold, f"{word}-Inform"),
                turn(name, 6, fold, "general-thank"),
            ]
            if number % 3 == 0:
                lines.append(turn(name, 2, fold, "Train-Inform"))
    return lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    moved = talks("test", ("hospital", "police"), 3)
    others = tuple(name for name in SERVICES if name not in ("hospital", "police"))
    write(tmp_path / "multiwoz" / "train.jsonl.gz", talks("train", SERVICES, 10) + moved)
    write(tmp_path / "multiwoz" / "test.jsonl.gz", talks("test", others, 3))
    write(
        tmp_path / "anchors" / "wikipedia_sentences.txt.gz",
        [f"Public sentence {number}." for number in range(9)],
    )
    return tmp_path


def chosen(data: Path, rows: str) -> tuple[list[Row], list[Row]]:
    return multiwoz_rows(data / "multiwoz", rows, SIZES)


def dialogues(rows: list[Row], service: str) -> set[str]:
    return {row.person for row in rows if row.task == SERVICES.index(service)}


def test_multiwoz_is_seven_services_of_two_labels_each(data: Path) -> None:
    stream = load_multiwoz(data, sizes=SIZES)
    assert (stream.name, stream.family) == ("multiwoz", "intents")
    assert [label.name for label in stream.labels] == LABELS
    assert len({label.description for label in stream.labels}) == 14
    assert [task.name for task in stream.tasks] == list(SERVICES) == sorted(SERVICES)
    assert [task.labels for task in stream.tasks] == [(2 * n, 2 * n + 1) for n in range(7)]
    assert (stream.scenarios, stream.clients, stream.alpha) == (("class", "task"), 40, 0.5)
    assert (stream.partition, stream.cap) == ("dirichlet", None)
    assert stream.public == tuple(f"Public sentence {number}." for number in range(5))


def test_train_and_test_are_told_apart_by_the_fold_and_thanks_are_left_out(data: Path) -> None:
    stream = load_stream("multiwoz", data, "all")
    assert len(stream.train) == 7 * (10 * 2 + 4)
    assert len(stream.test) == 7 * (3 * 2 + 1)
    for part, fold in ((stream.train, "train"), (stream.test, "test")):
        assert all(text.startswith(f"{fold}-") for text in part.texts)
        assert not any(text.endswith("turn 6") for text in part.texts)
        assert set(part.tasks.tolist()) == set(range(7))


def test_a_dialogue_is_one_person_and_its_turns_stand_in_their_order(data: Path) -> None:
    train = load_stream("multiwoz", data, "all").train
    assert train.people is not None
    names = [text.split(" ")[0] for text in train.texts]
    pairs = set(zip(names, train.people.tolist(), strict=True))
    assert len(pairs) == len(set(names)) == len(set(train.people.tolist())) == 70
    turns = [text for text in train.texts if text.startswith("train-taxi-3 ")]
    assert turns == ["train-taxi-3 turn 0", "train-taxi-3 turn 2", "train-taxi-3 turn 4"]


def test_the_main_intent_comes_first_and_unknown_others_are_dropped(data: Path) -> None:
    line = turn(
        "several",
        0,
        "train",
        *("Taxi-Inform", "Bus-Inform", "Hotel-Request", "general-thank", "Hotel-Request"),
        intent="Hotel-Inform",
    )
    alone = turn("alone", 0, "train", "Train-Request", intents=["Train-Request"])
    write(data / "multiwoz" / "train.jsonl.gz", [line, alone])
    train = load_stream("multiwoz", data, "all").train
    expected = {"several turn 0": (4, 10, 5), "alone turn 0": (13,)}
    assert dict(zip(train.texts, train.answers, strict=True)) == expected
    tasks = dict(zip(train.texts, train.tasks.tolist(), strict=True))
    assert tasks == {"several turn 0": 2, "alone turn 0": 6}


def test_the_subset_takes_whole_dialogues_with_the_smallest_hashes_of_each_service(
    data: Path,
) -> None:
    (whole, whole_test), (train, test) = chosen(data, "all"), chosen(data, "subset")

    def first(rows: list[Row], count: int) -> set[str]:
        names: set[str] = set()
        for service in SERVICES:
            own = sorted(
                dialogues(rows, service),
                key=lambda name: hashlib.sha256(f"cslr/multiwoz/1\0{name}".encode()).hexdigest(),
            )
            names.update(own[:count])
        return names

    assert {row.person for row in train} == first(whole, 3)
    assert {row.person for row in test} == first(whole_test, 2)
    taken = {row.person for row in train}
    assert Counter(train) == Counter(row for row in whole if row.person in taken)


def test_the_order_of_the_lines_does_not_matter(data: Path) -> None:
    before = load_multiwoz(data, sizes=SIZES)
    for name in ("train", "test"):
        path = data / "multiwoz" / f"{name}.jsonl.gz"
        write(path, gzip.decompress(path.read_bytes()).decode().splitlines()[::-1])
    after = load_multiwoz(data, sizes=SIZES)
    for part in ("train", "test"):
        first, second = getattr(before, part), getattr(after, part)
        assert (first.texts, first.answers) == (second.texts, second.answers)
        np.testing.assert_array_equal(first.people, second.people)


def test_a_rare_service_leaves_two_fifths_of_its_dialogues_to_hold_out(data: Path) -> None:
    lines = talks("train", SERVICES[:-1], 10) + talks("train", ("train",), 10)
    kept = [line for line in lines if "police-" not in line] + talks("train", ("police",), 5)
    write(data / "multiwoz" / "train.jsonl.gz", kept + talks("test", ("hospital", "police"), 3))
    many = Sizes(train=8, test=2, held_out_train=8, held_out_test=8)
    subset, _ = multiwoz_rows(data / "multiwoz", "subset", many)
    held_out = multiwoz_rows(data / "multiwoz", "held-out", many)
    assert len(dialogues(subset, "police")) == 3
    assert [len(dialogues(rows, "police")) for rows in held_out] == [1, 1]
    assert len(dialogues(subset, "taxi")) == 6


def test_held_out_dialogues_are_of_train_outside_the_subset_and_leave_the_test_fold_shut(
    data: Path,
) -> None:
    everything, _ = chosen(data, "all")
    subset, _ = chosen(data, "subset")
    (data / "multiwoz" / "test.jsonl.gz").unlink()
    train, test = chosen(data, "held-out")
    people = [{row.person for row in rows} for rows in (subset, train, test)]
    assert len(set.union(*people)) == sum(len(part) for part in people)
    for rows in (train, test):
        assert all(row.person.startswith("train-") for row in rows)
        assert {row.task for row in rows} == set(range(7))
        assert set(rows) <= set(everything)


def test_too_few_dialogues_for_the_choice_are_told(data: Path) -> None:
    write(data / "multiwoz" / "train.jsonl.gz", talks("train", SERVICES, 1))
    with pytest.raises(DataError, match=r"too few dialogues with attraction.*--rows all"):
        load_stream("multiwoz", data, "held-out")
    with pytest.raises(DataError, match="too few dialogues with hospital"):
        load_stream("multiwoz", data)


def test_a_dialogue_in_both_folds_is_refused(data: Path) -> None:
    torn = turn("train-taxi-1", 8, "test", "Taxi-Inform")
    write(data / "multiwoz" / "test.jsonl.gz", [torn])
    with pytest.raises(DataError, match="dialogue train-taxi-1 has turns in both folds"):
        load_stream("multiwoz", data, "all")


def test_unknown_rows_name_the_known_ones(data: Path) -> None:
    with pytest.raises(ConfigError, match="subset, held-out or all"):
        load_stream("multiwoz", data, "some")


def test_a_missing_directory_or_file_says_what_was_looked_for(data: Path) -> None:
    with pytest.raises(DataError, match=r"'multiwoz'.*DIR with multiwoz/train\.jsonl\.gz"):
        load_stream("multiwoz", None)
    for name in ("anchors/wikipedia_sentences.txt.gz", "multiwoz/test.jsonl.gz"):
        (data / name).unlink()
        with pytest.raises(DataError, match=f"file .*{name} does not exist"):
            load_stream("multiwoz", data, "all")


GOOD = json.loads(turn("one", 0, "train", "Taxi-Inform"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a ta', "not a turn"),
        ("[1, 2]", "not a turn"),
        ("", "not a turn"),
        (json.dumps({"text": "a taxi please"}), "not a turn.*KeyError: 'intent'"),
        (json.dumps(GOOD | {"text": 3}), "must be strings"),
        (json.dumps(GOOD | {"intents": ["Taxi-Inform", 3]}), "must be strings"),
        (json.dumps(GOOD | {"intents": "Taxi-Inform"}), "intents a list"),
        (json.dumps(GOOD | {"intents": None}), "not a turn"),
        (json.dumps(GOOD | {"turn": "2"}), "turn must be a number"),
        (json.dumps(GOOD | {"turn": True}), "turn must be a number"),
        (json.dumps(GOOD | {"text": "\ud800"}), "not a turn"),
        (json.dumps(GOOD | {"fold": "dev"}), "fold 'dev', expected train or test"),
        (json.dumps(GOOD | {"intent": "Bus-Inform"}), "unknown intent 'Bus-Inform'; expected Attr"),
        (json.dumps(GOOD | {"text": " \t"}), "is empty"),
        (json.dumps(GOOD | {"dialogue_id": ""}), "is empty"),
    ],
)
def test_a_damaged_line_is_named(data: Path, line: str, message: str) -> None:
    write(data / "multiwoz" / "train.jsonl.gz", [json.dumps(GOOD), line, json.dumps(GOOD)])
    with pytest.raises(DataError, match=rf"train\.jsonl\.gz, line 2: .*{message}"):
        load_stream("multiwoz", data, "all")


def test_the_test_file_may_hold_no_train_dialogues(data: Path) -> None:
    write(data / "multiwoz" / "test.jsonl.gz", talks("train", ("taxi",), 1))
    with pytest.raises(DataError, match=r"test\.jsonl\.gz, line 1: fold 'train', expected test"):
        load_stream("multiwoz", data, "all")


def real_data() -> Path | None:
    """Where the data sets lie, if they are here."""
    given = os.environ.get("CSLR_DATA")
    return Path(given) if given and Path(given).is_dir() else None


def spread(stream: Stream) -> list[list[int]]:
    """Rows of each main label, in train and in test."""
    parts = (stream.train, stream.test)
    return [np.bincount(part.labels, minlength=14).tolist() for part in parts]


@pytest.mark.skipif(real_data() is None, reason="no MultiWOZ: set CSLR_DATA to its directory")
def test_the_real_multiwoz_has_the_sizes_figures_are_reported_on() -> None:
    subset = load_stream("multiwoz", real_data())
    held_out = load_stream("multiwoz", real_data(), "held-out")
    everything = load_stream("multiwoz", real_data(), "all")
    assert spread(subset) == [
        [439, 272, 148, 110, 1074, 127, 110, 85, 894, 139, 370, 26, 684, 98],
        [139, 84, 79, 66, 265, 40, 69, 57, 239, 24, 122, 9, 240, 27],
    ]
    assert spread(held_out) == [
        [260, 142, 60, 52, 599, 82, 45, 29, 493, 89, 160, 13, 353, 48],
        [109, 57, 47, 36, 299, 50, 30, 22, 200, 37, 96, 8, 184, 33],
    ]
    assert (len(everything.train), len(everything.test)) == (45_638, 5_919)
    assert {len(answer) for answer in subset.train.answers} == {1}
    assert {len(answer) for answer in subset.test.answers} == {1, 2, 3}
    assert len(set(subset.public)) == 10_000


@pytest.mark.skipif(real_data() is None, reason="no MultiWOZ: set CSLR_DATA to its directory")
def test_no_real_dialogue_is_in_two_parts() -> None:
    data = real_data()
    assert data is not None
    sizes = Sizes(220, 70, held_out_train=100, held_out_test=50)
    parts = [
        {row.person for row in rows}
        for choice in ("subset", "held-out")
        for rows in multiwoz_rows(data / "multiwoz", choice, sizes)
    ]
    assert [len(part) for part in parts] == [908, 339, 460, 267]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)

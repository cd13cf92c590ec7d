"""The embedded streams desk and ward: their rows, and the split into train and test."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from cslr.data.streams import Rows, Stream, load_clinic, load_desk, load_ward
from cslr.data.streams.marked import tagged_example
from cslr.errors import ConfigError, DataError

LOADERS = (load_clinic, load_desk, load_ward)
SERVICES = ("Library", "Waste", "Parking")


def packaged(name: str) -> str:
    """A file as an installed program reads it."""
    return files("cslr.data.streams").joinpath(name).read_text(encoding="utf-8")


def messages() -> list[dict[str, Any]]:
    return [json.loads(line) for line in packaged("desk/messages.jsonl").splitlines()]


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def parts(stream: Stream) -> tuple[Rows, Rows]:
    return stream.train, stream.test


def letters(text: str) -> str:
    """A text without white space, punctuation and capitals."""
    return "".join(re.findall(r"\w", text.lower()))


def names(tags: tuple[int, ...]) -> list[tuple[int, int]]:
    """The names of a sentence as (type, words); every I- must be inside its own type."""
    found: list[tuple[int, int]] = []
    before = 0
    for tag in tags:
        if tag % 2:
            found.append(((tag + 1) // 2, 1))
        elif tag:
            assert before in (tag - 1, tag), f"tag {tag} after {before} does not continue"
            kind, words = found.pop()
            found.append((kind, words + 1))
        before = tag
    return found


# --- all of them ---------------------------------------------------------------------------


@pytest.mark.parametrize("load", LOADERS)
def test_nothing_is_said_twice(load: Callable[..., Stream]) -> None:
    stream = load()
    texts = [letters(text) for text in (*stream.train.texts, *stream.test.texts, *stream.public)]
    assert [text for text, times in Counter(texts).items() if times > 1] == []


@pytest.mark.parametrize("load", LOADERS)
def test_rows_are_everything_and_none_is_held_out(load: Callable[..., Stream]) -> None:
    subset, everything = load(), load(None, "all")
    assert subset.train.texts == everything.train.texts
    assert subset.test.answers == everything.test.answers
    with pytest.raises(
        ConfigError, match=rf"'{subset.name}' has no --rows held-out.*--rows subset"
    ):
        load(None, "held-out")


@pytest.mark.parametrize("load", [load_desk, load_ward])
def test_no_two_texts_are_made_by_one_template(load: Callable[..., Stream]) -> None:
    stream = load()
    texts = (*stream.train.texts, *stream.test.texts)
    bags = [frozenset(re.findall(r"\w+", text.lower())) for text in texts]
    alike = max(len(one & two) / len(one | two) for one, two in combinations(bags, 2))
    assert alike <= 0.5


@pytest.mark.parametrize(("load", "folder"), [(load_desk, "desk"), (load_ward, "ward")])
def test_the_public_sentences_are_the_clinics_and_some_of_its_own(
    load: Callable[..., Stream], folder: str
) -> None:
    own = packaged(f"{folder}/public.txt").splitlines()
    assert len(own) == 150
    written = [*load_clinic().public, *own]
    assert [letters(text) for text in load().public] == [letters(text) for text in written]


# --- desk ----------------------------------------------------------------------------------


def test_the_desk_is_three_services_of_two_intents() -> None:
    desk = load_desk()
    assert (desk.name, desk.family, desk.partition) == ("desk", "intents", "dirichlet")
    assert [label.name for label in desk.labels] == [
        f"{service}-{kind}" for service in SERVICES for kind in ("Inform", "Request")
    ]
    assert [(task.name, task.labels) for task in desk.tasks] == [
        ("library", (0, 1)),
        ("waste", (2, 3)),
        ("parking", (4, 5)),
    ]
    assert (desk.scenarios, desk.clients, desk.alpha) == (("class", "task"), 24, 1.0)
    assert all(label.description.endswith(".") for label in desk.labels)


def test_a_service_has_about_a_hundred_messages_and_some_have_two_intents() -> None:
    desk = load_desk()
    assert (len(desk.train), len(desk.test)) == (212, 87)
    sizes = np.bincount(desk.train.tasks) + np.bincount(desk.test.tasks)
    assert sizes.tolist() == [100, 100, 99]
    answers = (*desk.train.answers, *desk.test.answers)
    assert {len(answer) for answer in answers} == {1, 2}
    assert 0.12 <= sum(len(answer) == 2 for answer in answers) / len(answers) <= 0.15


def test_both_parts_have_every_intent_and_messages_of_two_intents() -> None:
    desk = load_desk()
    for part in parts(desk):
        for number, task in enumerate(desk.tasks):
            main = part.labels[part.tasks == number]
            assert np.bincount(main, minlength=6)[list(task.labels)].min() >= 10
        two = [answer for answer in part.answers if len(answer) == 2]
        assert any(one // 2 == other // 2 for one, other in two)
        assert any(one // 2 != other // 2 for one, other in two)


def test_a_message_keeps_its_intents_in_order_and_its_person() -> None:
    desk = load_desk()
    written = {message["text"]: message for message in messages()}
    assert len(written) == len(desk.train) + len(desk.test)
    for part in parts(desk):
        assert part.people is not None
        for text, answer in zip(part.texts, part.answers, strict=True):
            assert [desk.labels[label].name for label in answer] == written[text]["labels"]
            assert len(set(answer)) == len(answer)
        people = [written[text]["person"] for text in part.texts]
        pairs = set(zip(people, part.people.tolist(), strict=True))
        assert len(pairs) == len(set(people)) == len(set(part.people.tolist()))


def test_conversations_are_short_and_some_are_about_two_services() -> None:
    spoken = Counter(message["person"] for message in messages())
    assert set(spoken.values()) == {2, 3, 4}
    services: dict[str, set[str]] = {}
    for message in messages():
        main = message["labels"][0].split("-")[0]
        services.setdefault(message["person"], set()).add(main)
    assert {len(own) for own in services.values()} == {1, 2}


def test_the_desks_split_is_fixed_by_the_hash_of_the_person() -> None:
    desk = load_desk()
    person = {message["text"]: message["person"] for message in messages()}
    train, test = ({person[text] for text in part.texts} for part in parts(desk))
    assert not train & test
    assert max(map(digest, train)) < min(map(digest, test))
    assert len(train) == round(0.7 * (len(train) + len(test)))


# --- ward ----------------------------------------------------------------------------------


def test_the_ward_is_three_departments_that_share_three_types() -> None:
    ward = load_ward()
    assert (ward.name, ward.family, ward.partition, ward.cap) == ("ward", "tagging", "task", 1)
    assert [label.name for label in ward.labels] == ["O", "DRUG", "PERSON", "PLACE"]
    assert [task.name for task in ward.tasks] == ["surgery", "paediatrics", "pharmacy"]
    assert {task.labels for task in ward.tasks} == {(0, 1, 2, 3)}
    assert (ward.scenarios, ward.clients) == (("domain",), 24)
    assert np.bincount(ward.train.tasks).tolist() == [77] * 3
    assert np.bincount(ward.test.tasks).tolist() == [33] * 3


def test_the_wards_split_is_fixed_by_the_hash_of_the_text() -> None:
    ward = load_ward()
    for task in range(3):
        train, test = (
            [digest(part.texts[row]) for row in np.flatnonzero(part.tasks == task)]
            for part in parts(ward)
        )
        assert max(train) < min(test)


def test_sentences_are_short_and_have_a_tag_for_every_word() -> None:
    for part in parts(load_ward()):
        for text, tags in zip(part.texts, part.answers, strict=True):
            assert 6 <= len(text.split(" ")) <= 18
            assert len(tags) == len(text.split())
            assert re.search(r"\w[.,:;?!](\s|$)", text) is None, "a mark is a word of its own"


def test_both_parts_of_every_department_have_every_tag() -> None:
    for part in parts(load_ward()):
        for task in range(3):
            own = [tags for tags, of in zip(part.answers, part.tasks, strict=True) if of == task]
            assert {tag for tags in own for tag in tags} == set(range(7))


def test_names_are_whole_and_often_of_several_words() -> None:
    ward = load_ward()
    found = [names(tags) for part in parts(ward) for tags in part.answers]
    counts = Counter(len(of_sentence) for of_sentence in found)
    assert set(counts) == {0, 1, 2, 3}
    assert 0.15 <= counts[0] / len(found) <= 0.3
    for kind in (1, 2, 3):
        words = [long for of_sentence in found for of, long in of_sentence if of == kind]
        assert len(words) >= 100
        assert sum(long > 1 for long in words) / len(words) >= 0.4


def test_a_tagged_file_is_read_word_by_word() -> None:
    ward = load_ward()
    tags = dict(zip(ward.train.texts, ward.train.answers, strict=True))
    tags |= dict(zip(ward.test.texts, ward.test.answers, strict=True))
    number = {"O": 0}
    for place, label in enumerate(ward.labels[1:], start=1):
        number |= {f"B-{label.name}": 2 * place - 1, f"I-{label.name}": 2 * place}
    for task in ward.tasks:
        for block in packaged(f"ward/{task.name}.conll").strip().split("\n\n"):
            lines = [line.split("\t") for line in block.split("\n")]
            text = " ".join(word for word, _ in lines)
            assert tags.pop(text) == tuple(number[tag] for _, tag in lines)
    assert tags == {}


def test_public_sentences_are_words_with_one_space_between() -> None:
    public = load_ward().public
    assert all(text == " ".join(text.split()) for text in public)
    assert [text for text in public if re.search(r"\w[.,:;?!](\s|$)", text)] == []
    assert "The X-ray room is shielded with lead ." in public
    assert "A surgeon's mask hides a yawn ." in public


def test_every_type_has_marked_examples_of_its_own() -> None:
    ward = load_ward()
    kinds = {f"{part}-{label.name}" for label in ward.labels[1:] for part in "BI"}
    corpus = {letters(text) for part in parts(ward) for text in part.texts}
    assert ward.labels[0].examples == ()
    for label in ward.labels[1:]:
        assert len(label.examples) == 8
        for example in label.examples:
            words, tags = tagged_example(example)
            assert f"B-{label.name}" in tags
            assert set(tags) <= kinds | {"O"}
            assert letters("".join(words)) not in corpus


def test_damage_of_a_tagged_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cslr.data.streams._lines", lambda name: ["Bed\tO", "four\tI-PLACE"])
    with pytest.raises(DataError, match=r"ward/surgery\.conll, line 2: .*does not continue"):
        load_ward()

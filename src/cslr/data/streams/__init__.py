"""Streams of text tasks by name: the embedded ones, and those read from a data directory.

The embedded streams, one for each task family, were written for CSLR and come with it:

    clinic   classification   letters of patients to four clinics
    desk     intents          messages to three services of a town, in small conversations
    ward     tagging          notes of three hospital departments, with drugs, people and places

Every sentence is invented, so the default run needs no download and no licence.
They demonstrate the program; they are small, and scores on them are not results.

The default unit of privacy is an invented person: in clinic a patient with two to four letters to
one clinic, in desk a customer, in ward the person a note is about.

The split into train and test is fixed by the SHA-256 of the text or, in desk, of the person's id,
so it does not depend on labels or results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from cslr.data.stream import SCENARIOS, Label, Row, Rows, Stream, Task, as_rows, declared_labels
from cslr.data.streams.ag_news import load_ag_news, load_ag_news_small
from cslr.data.streams.ag_news_pairs import load_ag_news_pairs, load_ag_news_pairs_small
from cslr.data.streams.amazon import load_amazon
from cslr.data.streams.conll import BadLine, TaggedSentence, conll_sentences, tag_numbers
from cslr.data.streams.grouped import load_amazon_products, load_multiwoz_services
from cslr.data.streams.multiwoz import load_multiwoz
from cslr.data.streams.ner import load_ner
from cslr.data.streams.ontonotes import load_ontonotes
from cslr.errors import ConfigError, DataError
from cslr.text.spacing import spaced

__all__ = ["EMBEDDED", "SCENARIOS", "STREAMS", "Label", "Rows", "Stream", "Task", "load_stream"]

# -- the embedded streams --------------------------------------------------------------------------

_TOPICS = ("heart", "skin", "joints", "mind")
_SERVICES = ("library", "waste", "parking")
_DEPARTMENTS = ("surgery", "paediatrics", "pharmacy")
_FEWEST_LETTERS = 2
_TRAIN_SHARE = 0.7  # 140 of a topic's 200 sentences


def load_clinic(
    data: Path | None = None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """Four topics, one label each, 40 clients, Dirichlet 1.

    ``data`` and ``scenario`` are ignored. ``rows`` may be ``"subset"`` or ``"all"``, which are the
    same here.
    """
    _check_rows("clinic", rows)
    parts = [_split(_sentences(f"clinic/{topic}.txt")) for topic in _TOPICS]
    return Stream(
        name="clinic",
        labels=declared_labels("clinic/labels.toml"),
        tasks=tuple(Task(topic, (number,)) for number, topic in enumerate(_TOPICS)),
        train=as_rows([row for n, (train, _) in enumerate(parts) for row in _letters(n, train)]),
        test=as_rows([row for n, (_, test) in enumerate(parts) for row in _letters(n, test)]),
        public=_sentences("clinic/public.txt"),
        scenarios=("class",),
        clients=40,
        alpha=1.0,
        rows_per_person=3,
        person="patient",
        unit="person",
    )


def load_desk(
    data: Path | None = None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """Three services, two intents each, 24 clients, Dirichlet 1.

    A message belongs to the service of its main intent; its further intents and the person's other
    messages may be about another service. Arguments are as for ``load_clinic``.
    """
    _check_rows("desk", rows)
    labels = declared_labels("desk/labels.toml")
    messages = _messages(labels)
    people, _ = _split(tuple(dict.fromkeys(message.person for message in messages)))
    return Stream(
        name="desk",
        labels=labels,
        tasks=tuple(
            Task(name, tuple(n for n, label in enumerate(labels) if _service(label) == task))
            for task, name in enumerate(_SERVICES)
        ),
        train=as_rows([message for message in messages if message.person in people]),
        test=as_rows([message for message in messages if message.person not in people]),
        public=_public("desk"),
        scenarios=("class", "task"),
        clients=24,
        alpha=1.0,
        family="intents",
        rows_per_person=2,
        person="customer",
        unit="person",
    )


def load_ward(
    data: Path | None = None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """Three departments that share O, DRUG, PERSON and PLACE; 24 clients, each within one.

    Arguments are as for ``load_clinic``. Words are separated by one space, also in the public
    sentences, and punctuation marks are words.
    """
    _check_rows("ward", rows)
    labels = declared_labels("ward/labels.toml")
    train: list[Row] = []
    test: list[Row] = []
    for task in range(len(_DEPARTMENTS)):
        notes = _notes(task, labels)
        for part, texts in zip((train, test), _split(tuple(notes)), strict=True):
            part += [notes[text] for text in texts]
    return Stream(
        name="ward",
        labels=labels,
        tasks=tuple(Task(name, tuple(range(len(labels)))) for name in _DEPARTMENTS),
        train=as_rows(train),
        test=as_rows(test),
        public=tuple(spaced(sentence) for sentence in _public("ward")),
        scenarios=("domain",),
        clients=24,
        family="tagging",
        partition="task",
        cap=1,
        person="note",
        unit="person",
    )


def _letters(topic: int, texts: tuple[str, ...]) -> list[Row]:
    """The letters to one clinic: its patients wrote two, three, four, two, ... of them."""
    rows: list[Row] = []
    patient, left = 0, _FEWEST_LETTERS
    for index, text in enumerate(texts):
        if left <= 0 and index + 1 < len(texts):  # no patient has the last letter alone
            patient += 1
            left = _FEWEST_LETTERS + patient % 3
        rows.append(Row(text, topic, topic, (), f"{_TOPICS[topic]} {patient:03}"))
        left -= 1
    return rows


def _check_rows(stream: str, rows: str) -> None:
    if rows not in ("subset", "all"):
        raise ConfigError(
            f"stream {stream!r} has no --rows {rows}: it is too small for a held-out part; "
            "use --rows subset, or tune on another stream"
        )


def _lines(name: str) -> list[str]:
    return files("cslr.data.streams").joinpath(name).read_text(encoding="utf-8").splitlines()


def _sentences(name: str) -> tuple[str, ...]:
    """The distinct lines of one file, in their order."""
    lines = (line.strip() for line in _lines(name))
    return tuple(dict.fromkeys(line for line in lines if line))


def _public(stream: str) -> tuple[str, ...]:
    """The clinic's public sentences, then the stream's own."""
    return tuple(
        dict.fromkeys((*_sentences("clinic/public.txt"), *_sentences(f"{stream}/public.txt")))
    )


def _split(keys: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Train and test, texts or people, by SHA-256."""
    mixed = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    cut = round(_TRAIN_SHARE * len(mixed))
    return tuple(mixed[:cut]), tuple(mixed[cut:])


def _messages(labels: tuple[Label, ...]) -> list[Row]:
    """The desk's messages: {"text", "labels": the main one first, "person"} a line."""
    numbers = {label.name: number for number, label in enumerate(labels)}
    messages = []
    for line in _lines("desk/messages.jsonl"):
        fields = json.loads(line)
        main, *others = (numbers[name] for name in fields["labels"])
        task = _service(labels[main])
        messages.append(Row(fields["text"], main, task, tuple(others), fields["person"]))
    return messages


def _service(label: Label) -> int:
    """The service an intent is about, by the first part of its name."""
    return _SERVICES.index(label.name.split("-")[0].lower())


def _notes(task: int, labels: tuple[Label, ...]) -> dict[str, Row]:
    """A department's sentences by their texts: a word, a tab and a BIO tag a line."""
    name = f"ward/{_DEPARTMENTS[task]}.conll"
    types = [label.name for label in labels]
    notes = {}
    for parsed in conll_sentences(enumerate(_lines(name), start=1)):
        sentence = _sound(parsed, name)
        first, *others = tag_numbers(sentence.tags, types)
        notes[sentence.text] = Row(sentence.text, first, task, tuple(others))
    return notes


def _sound(sentence: TaggedSentence | BadLine, name: str) -> TaggedSentence:
    if isinstance(sentence, BadLine):
        raise DataError(f"{name}, line {sentence.line}: {sentence.message}; reinstall cslr")
    return sentence


# -- by name ---------------------------------------------------------------------------------------

STREAMS: dict[str, Callable[[Path | None, str, str | None], Stream]] = {
    "clinic": load_clinic,
    "desk": load_desk,
    "ward": load_ward,
    "ag-news": load_ag_news,
    "ag-news-pairs": load_ag_news_pairs,
    "ag-news-small": load_ag_news_small,
    "ag-news-pairs-small": load_ag_news_pairs_small,
    "amazon": load_amazon,
    "amazon-products": load_amazon_products,
    "multiwoz": load_multiwoz,
    "multiwoz-services": load_multiwoz_services,
    "ner": load_ner,
    "ontonotes": load_ontonotes,
}

EMBEDDED = ("clinic", "desk", "ward")
"""Streams that come with the program."""


def load_stream(
    name: str, data: Path | None, rows: str = "subset", scenario: str | None = None
) -> Stream:
    """The stream called ``name``, read from the directory ``data`` unless it is embedded.

    ``rows``: ``"subset"`` is what scores are reported on, ``"all"`` is everything, and
    ``"held-out"`` is train rows outside the subset, on which settings may be chosen. ``scenario``
    may determine the labels; None: the stream's default.
    """
    if name not in STREAMS:
        raise ConfigError(f"unknown stream {name!r}; known streams: {', '.join(STREAMS)}")
    return STREAMS[name](data, rows, scenario)

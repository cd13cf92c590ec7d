"""Streams with two modes per label: the rows of another stream under broader labels."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from cslr.data.streams import load_stream
from cslr.data.streams.amazon import DOMAINS
from cslr.data.streams.multiwoz import SERVICES


@pytest.fixture
def data(tmp_path):
    """A data directory with a few reviews and turns."""

    def write(path, lines):
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    for part in ("train", "test"):
        reviews = [
            {"text": f"{part} {domain} {mood} {n}", "label": mood, "domain": domain, "split": part}
            for domain in DOMAINS
            for mood in (0, 1)
            for n in range(4)
        ]
        turns = [
            {
                "text": f"{part} {service} {act} {n}",
                "intent": (intent := f"{service.capitalize()}-{act}"),
                "intents": [intent],
                "dialogue_id": f"{part} {service} {n}",
                "turn": number,
                "fold": part,
            }
            for service in SERVICES
            for n in range(5)
            for number, act in enumerate(("Inform", "Request"))
        ]
        write(tmp_path / "amazon" / f"{part}.jsonl.gz", map(json.dumps, reviews))
        write(tmp_path / "multiwoz" / f"{part}.jsonl.gz", map(json.dumps, turns))
    sentences = [f"Public sentence number {n}." for n in range(200)]
    write(tmp_path / "anchors" / "wikipedia_sentences.txt.gz", sentences)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "source", "scenario", "labels"),
    [
        ("multiwoz-services", "multiwoz", None, SERVICES),
        ("amazon-products", "amazon", "class", DOMAINS),
    ],
)
def test_the_rows_are_those_of_the_other_stream_under_broader_labels(
    data, name, source, scenario, labels
):
    grouped, plain = load_stream(name, data), load_stream(source, data, "subset", scenario)
    assert tuple(label.name for label in grouped.labels) == labels
    assert grouped.train.texts == plain.train.texts
    np.testing.assert_array_equal(grouped.train.kinds, plain.train.labels)
    np.testing.assert_array_equal(grouped.train.labels, plain.train.labels // 2)
    np.testing.assert_array_equal(grouped.train.tasks, grouped.train.labels)
    assert grouped.scenarios == ("class",)
    assert grouped.family == "classification"
    assert grouped.registered_people == plain.registered_people


def test_the_two_things_of_a_label_are_its_topics(data):
    grouped = load_stream("multiwoz-services", data)
    texts = [label.description for label in load_stream("multiwoz", data).labels]
    assert [topic for label in grouped.labels for topic in label.topics] == texts
    assert grouped.labels[2].description == f"{texts[4]} {texts[5]}"

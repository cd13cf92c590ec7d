"""Asking a finished run: the same answers the run was measured by, and a message where it cannot.

All tests here share finished runs, so they run in one worker.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.streams import Stream, load_stream
from cslr.errors import ConfigError, CslrError, EncoderError, RunDirectoryError
from cslr.methods.registry import METHODS
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import load_embedded
from cslr.runs.learn import run
from cslr.runs.predict import (
    KEEP_NO_HEAD,
    Answer,
    Choice,
    Entity,
    ModelFacts,
    Predictor,
    load_predictor,
)

pytestmark = pytest.mark.xdist_group("predict")

Finished = Callable[..., Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache) -> Finished:
    """A finished run of an embedded stream, made once: ``finished(stream, method, **settings)``."""
    home = tmp_path_factory.mktemp("predict")
    runs: dict[str, Path] = {}

    def make(stream: str, method: str = "cslr", **more: object) -> Path:
        given = {"stream.name": stream, "method": method, "yardsticks": False, **more}
        config = load_config(None, {**given, "paper.n_r": 100})
        name = config.digest()
        if name not in runs:
            path = home / name
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CSLR_CACHE_DIR", str(cache))
                embedded = load_embedded(config)
            run(config, embedded, RunDirectory(path, config), lambda what, done, total: None)
            runs[name] = path
        return runs[name]

    return make


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    """A finished run of the clinic, to be damaged."""
    return Path(shutil.copytree(finished("clinic"), tmp_path / "copy"))


def answers_of(run_dir: Path, stream: Stream) -> list[Answer]:
    return list(load_predictor(run_dir).answers(stream.test.texts))


def last_row(run_dir: Path, stream: Stream) -> dict[str, Any]:
    """What the run noted about its last head."""
    lines = [json.loads(line) for line in (run_dir / "trace.jsonl").read_text().splitlines()]
    tasks = len(stream.tasks)
    return next(x for x in lines if x.get("method") == "cslr" and x.get("after") == tasks)


def test_labels_are_those_the_run_was_measured_by(finished):
    stream = load_stream("clinic", None)
    answers = answers_of(finished("clinic"), stream)
    names = [stream.labels[label].name for label in stream.test.labels]
    right = np.array([a.choices[0].label == n for a, n in zip(answers, names, strict=True)])
    noted = last_row(finished("clinic"), stream)["scores"]
    assert [right[stream.test.tasks == task].mean() for task in range(4)] == pytest.approx(noted)
    assert all(len(a.choices) == 1 and 0.25 <= a.choices[0].probability <= 1 for a in answers)


def test_intents_are_those_the_run_was_measured_by(finished):
    stream = load_stream("desk", None)
    answers = answers_of(finished("desk"), stream)
    wanted = [{stream.labels[n].name for n in answer} for answer in stream.test.answers]
    exact = [
        {c.label for c in a.choices} == w and a.choices[0].label in w
        for a, w in zip(answers, wanted, strict=True)
    ]
    assert np.mean(exact) == pytest.approx(
        last_row(finished("desk"), stream)["more"]["exact_match"]
    )
    for answer in answers:
        likely = [choice.probability for choice in answer.choices]
        assert likely == sorted(likely, reverse=True)
        assert len(likely) == 1 or min(likely) > 0.5


def test_a_second_intent_must_be_likelier_than_not(finished, monkeypatch):
    """At a probability of one half, the probability that a score of zero means, it is left out."""
    predictor = load_predictor(finished("desk"))
    scores = np.full((1, len(predictor.model.labels)), -1.0)
    scores[0, :3] = 2.0, 0.0, 0.5
    monkeypatch.setattr(Predictor, "embedded", lambda self, texts: texts)
    monkeypatch.setattr(Predictor, "scores", lambda self, z: scores)
    (answer,) = predictor.answers(["one text"])
    assert [choice.label for choice in answer.choices] == [
        predictor.model.labels[n] for n in (0, 2)
    ]


def test_entities_are_those_the_run_was_measured_by(finished):
    stream = load_stream("ward", None)
    answers = answers_of(finished("ward"), stream)
    found = {(n, e.type, e.first, e.last) for n, a in enumerate(answers) for e in a.entities}
    wanted = set()
    for n, tags in enumerate(stream.test.answers):
        for first in (place for place, tag in enumerate(tags) if tag % 2):
            last = first
            while last + 1 < len(tags) and tags[last + 1] == tags[first] + 1:
                last += 1
            wanted.add((n, stream.labels[(tags[first] + 1) // 2].name, first, last))
    f1 = 2 * len(found & wanted) / (len(found) + len(wanted))
    assert f1 > 0.1
    assert f1 == pytest.approx(last_row(finished("ward"), stream)["more"]["micro_f1"])
    for text, answer in zip(stream.test.texts, answers, strict=True):
        assert " ".join(answer.words) == text
        for entity in answer.entities:
            assert entity.text == " ".join(answer.words[entity.first : entity.last + 1])


def test_running_text_is_cut_into_words_before_it_is_tagged(finished):
    text = "Dr. Lindqvist gave (again) 5 mg, on Ward 3."
    answer = next(load_predictor(finished("ward")).answers([text]))
    assert answer.text == text
    assert " ".join(answer.words) == "Dr . Lindqvist gave ( again ) 5 mg , on Ward 3 ."


def test_a_task_narrows_the_answers(finished):
    predictor = load_predictor(finished("clinic"))
    text = ["My knee is swollen and stiff every morning."]
    assert next(predictor.answers(text)).choices[0].label == "joints"
    assert next(predictor.answers(text, task="skin")).choices == (Choice("skin", 1.0),)
    with pytest.raises(ConfigError, match=r"unknown task 'teeth'; .*heart, skin, joints, mind"):
        next(predictor.answers(text, task="teeth"))


def test_many_texts_are_answered_a_few_at_a_time_and_in_order(finished, monkeypatch):
    monkeypatch.setattr("cslr.runs.predict._AT_ONCE", 2)
    texts = [f"Message number {n} about my knee." for n in range(5)]
    asked = iter(texts)
    answers = load_predictor(finished("clinic")).answers(asked)
    first = next(answers)
    assert next(asked) == texts[2]  # no more than a batch was read
    assert [first.text, *[answer.text for answer in answers]] == [*texts[:2], *texts[3:]]


def test_nothing_asked_is_stored(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path / "cache"))
    before = sorted(finished("clinic").rglob("*"))
    list(load_predictor(finished("clinic")).answers(["My knee hurts."]))
    assert sorted(finished("clinic").rglob("*")) == before
    assert not list(tmp_path.iterdir())


def test_the_model_beside_the_heads_is_public(finished):
    plain = json.loads((finished("ward") / "model.json").read_text())
    assert set(plain) == {
        *("method", "family", "scenario", "labels", "tasks"),
        *("encoder", "encoder_id", "others", "layer", "seeds", "digest"),
    }
    assert plain["labels"] == ["O", "DRUG", "PERSON", "PLACE"]
    assert (plain["family"], plain["scenario"]) == ("tagging", "domain")
    assert ModelFacts.load(finished("ward")).tasks["surgery"] == (0, 1, 2, 3)


def test_an_answer_is_a_line_or_plain_values():
    label = Answer("classification", "Hm.", (Choice("mind", 0.71239),))
    assert label.as_line() == "mind (0.71)  Hm."
    assert label.as_json() == {"text": "Hm.", "label": "mind", "probability": 0.7124}
    intents = Answer("intents", "Hm.", (Choice("Ask", 0.9), Choice("Tell", 0.6)))
    assert intents.as_line() == "Ask (0.90), Tell (0.60)  Hm."
    assert [c["label"] for c in intents.as_json()["labels"]] == ["Ask", "Tell"]
    words = ("In", "New", "York", "Ida", "waits")
    entities = (Entity("LOC", "New York", 1, 2), Entity("PER", "Ida", 3, 3))
    tags = Answer("tagging", "In New York Ida waits", words=words, entities=entities)
    assert tags.as_line() == "In [New York|LOC] [Ida|PER] waits"
    assert tags.as_json()["entities"][1] == {"type": "PER", "text": "Ida", "first": 3, "last": 3}


def refused(path: Path, kind: type[CslrError], match: str, **more: Any) -> None:
    with pytest.raises(kind, match=match):
        next(load_predictor(path, **more).answers(["My knee hurts."]))


def test_what_is_no_run_cannot_be_asked(tmp_path):
    refused(tmp_path, RunDirectoryError, "is not a run directory; give one written by `cslr run`")
    refused(tmp_path / "nowhere", RunDirectoryError, "is not a run directory")


def test_an_unfinished_run_cannot_be_asked(copy):
    (copy / "model.json").unlink()
    refused(copy, RunDirectoryError, "not finished; repeat its command with --run-dir")


def test_a_method_without_a_head_cannot_be_asked(finished):
    refused(finished("clinic", "zero-shot"), RunDirectoryError, "a run of zero-shot, .* no head")


def test_a_seed_that_was_not_run_is_told_with_those_that_were(copy):
    refused(copy, ConfigError, "no seed 17; its seeds: 13", seed=17)


def test_another_encoder_is_refused(copy):
    model = ModelFacts.load(copy)
    replace(model, encoder_id=model.encoder_id.replace("sha256:", "sha256:00")).save(copy)
    refused(copy, EncoderError, "trained with sha256:00.*works with no other")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"labels": 3}'])
def test_a_damaged_model_file_is_named(copy, content):
    (copy / "model.json").write_text(content)
    refused(copy, RunDirectoryError, "model.json is missing or damaged")


def test_a_damaged_or_foreign_head_is_named(copy, finished):
    head = copy / "seed-13" / "head.safetensors"
    shutil.copy(finished("desk") / "seed-13" / "head.safetensors", head)
    refused(copy, RunDirectoryError, "head.safetensors is missing or damaged")
    head.write_bytes(head.read_bytes()[:100])
    refused(copy, RunDirectoryError, "head.safetensors is missing or damaged")
    head.unlink()
    refused(copy, RunDirectoryError, "head.safetensors is missing or damaged")


def test_every_clients_encoder_is_answered_by_its_own_head_or_by_the_common_one(finished, tmp_path):
    """A noted score is the mean over encoders, so asking with each must give that mean."""
    stream, others = load_stream("clinic", None), ["minilm", "minilm+cut-64"]
    mixed = {"encoders": others, "replay.coordinates": "relative", "paper.m": 60}
    place = Path(shutil.copytree(finished("clinic", **mixed), tmp_path / "mixed"))
    names = np.array([stream.labels[label].name for label in stream.test.labels])

    def by_task() -> list[np.floating]:
        right = []
        for encoder in others:
            answers = load_predictor(place, encoder=encoder).answers(stream.test.texts)
            right.append(names == [answer.choices[0].label for answer in answers])
        return [np.mean([each[stream.test.tasks == task] for each in right]) for task in range(4)]

    noted = last_row(place, stream)
    assert np.mean(by_task()) == pytest.approx(noted["more"]["own_heads"])
    for number in range(2):
        (place / "seed-13" / f"head-{number}.safetensors").unlink()  # as in an older run
    assert by_task() == pytest.approx(noted["scores"])
    refused(place, ConfigError, "no client ran 'mpnet'", encoder="mpnet")


def test_a_damaged_head_of_an_encoder_is_named(finished, tmp_path):
    mixed = {"encoders": ["minilm", "minilm+rotated"], "replay.coordinates": "mapped"}
    place = Path(shutil.copytree(finished("clinic", **mixed), tmp_path / "mixed"))
    shutil.copy(
        place / "seed-13" / "translations.safetensors", place / "seed-13" / "head-1.safetensors"
    )
    refused(
        place,
        RunDirectoryError,
        "head-1.safetensors is missing or damaged",
        encoder="minilm+rotated",
    )


def test_the_methods_that_keep_no_head_are_those_that_say_so():
    assert set(KEEP_NO_HEAD) == {name for name, each in METHODS.items() if not each.keeps_head}

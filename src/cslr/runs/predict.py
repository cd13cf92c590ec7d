"""Predictions for new texts with the heads of a finished run.

A head depends on released values only, so predictions cost no ε; texts are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from scipy.special import expit, softmax

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import ConfigError, EncoderError, RunDirectoryError
from cslr.files import open_arrays, open_line, seal_line, write_atomic
from cslr.protocol.head import Family, FamilyName, Head
from cslr.protocol.tags import decode
from cslr.protocol.translation import Affine, translation_from
from cslr.text.encoders import Encoder, embed, load_encoder
from cslr.text.spacing import spaced
from cslr.text.words import TokenEncoder, embed_words, load_token_encoder

__all__ = [
    "KEEP_NO_HEAD",
    "Answer",
    "Choice",
    "Entity",
    "ModelFacts",
    "Predictor",
    "load_predictor",
]

_FILE: Final = "model.json"
_AT_ONCE: Final = 256  # texts that are held and embedded together
KEEP_NO_HEAD: Final = ("fedta", "majority", "zero-shot")
"""Methods whose runs store no head for new texts. It repeats ``Method.keeps_head``, because methods
are not imported here."""


@dataclass(frozen=True)
class ModelFacts:
    """What is needed to use a run's heads. All of it is public."""

    method: str
    family: FamilyName
    scenario: str
    labels: tuple[str, ...]
    tasks: dict[str, tuple[int, ...]]
    """The labels of each task; the tasks are in the order in which they were learnt."""
    encoder: str
    encoder_id: str
    seeds: tuple[int, ...]
    others: dict[str, str] = field(default_factory=dict)
    """Name and id of each encoder of clients, where not all run the reference."""
    layer: int | None = None
    """Hidden layer of word vectors, in older runs; later it is part of the encoder's name."""

    def encoder_named(self, name: str | None) -> tuple[str, str]:
        """Name and id of the encoder to use: by default the reference, or one that clients run."""
        ids = {self.encoder: self.encoder_id, **self.others}
        if name is not None and name not in ids:
            raise ConfigError(f"no client ran {name!r}; encoders of this run: {', '.join(ids)}")
        chosen = name or self.encoder
        return chosen, ids[chosen]

    def save(self, run: Path) -> None:
        """Write it next to the heads; the file exists only in finished runs."""
        write_atomic(run / _FILE, seal_line(asdict(self), indent=2).encode() + b"\n")

    @classmethod
    def load(cls, run: Path) -> Self:
        """The facts of the run in a directory."""
        if not (run / "config.json").is_file():
            raise RunDirectoryError(f"{run} is not a run directory; give one written by `cslr run`")
        path = run / _FILE
        if not path.is_file():
            raise RunDirectoryError(
                f"the run in {run} is not finished; repeat its command with --run-dir {run}"
            )
        try:
            return cls.from_bytes(path.read_bytes())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _damaged(path) from None

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The facts in the bytes of such a file."""
        plain = open_line(content)
        tasks = {name: tuple(labels) for name, labels in plain.pop("tasks").items()}
        labels, seeds = tuple(plain.pop("labels")), tuple(plain.pop("seeds"))
        return cls(labels=labels, tasks=tasks, seeds=seeds, **plain)

    def allowed(self, task: str | None) -> BoolArray:
        """(c,) the labels an answer may have: those of a task, or of all that were learnt."""
        if task is not None and task not in self.tasks:
            raise ConfigError(f"unknown task {task!r}; tasks of this run: {', '.join(self.tasks)}")
        tasks = self.tasks if task is None else (task,)
        allowed = np.zeros(len(self.labels), dtype=np.bool_)
        for name in tasks:
            allowed[list(self.tasks[name])] = True
        return allowed


@dataclass(frozen=True)
class Choice:
    """A label and its probability according to the head."""

    label: str
    probability: float

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.2f})"


@dataclass(frozen=True)
class Entity:
    """Words ``first`` to ``last``, both counted from 0 and both part of it."""

    type: str
    text: str
    first: int
    last: int


@dataclass(frozen=True)
class Answer:
    """The prediction for one text: labels, or entities among its words."""

    family: FamilyName
    text: str
    choices: tuple[Choice, ...] = ()
    words: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        if self.family == "tagging":
            return {
                "text": self.text,
                "words": list(self.words),
                "entities": [asdict(entity) for entity in self.entities],
            }
        choices = [
            {"label": choice.label, "probability": round(choice.probability, 4)}
            for choice in self.choices
        ]
        if self.family == "intents":
            return {"text": self.text, "labels": choices}
        return {"text": self.text, **choices[0]}

    def as_line(self) -> str:
        """For a person: labels before the text, or entities marked [words|TYPE] within it."""
        if self.family != "tagging":
            return f"{', '.join(map(str, self.choices))}  {self.text}"
        words = list(self.words)
        for entity in self.entities:
            words[entity.first] = f"[{words[entity.first]}"
            words[entity.last] = f"{words[entity.last]}|{entity.type}]"
        return " ".join(words)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained head and its encoder."""

    model: ModelFacts
    head: Head
    encoder: str
    encoder_id: str
    into: Affine | None = None
    """From the encoder's coordinates to those of the head; None: they are the same."""

    def answers(self, texts: Iterable[str], task: str | None = None) -> Iterator[Answer]:
        """One answer for each text, in order. task: the task of the texts, if it is known."""
        allowed = self.model.allowed(task)
        waiting = iter(texts)
        answer = self._tagged if self.model.family == "tagging" else self._labelled
        while some := list(islice(waiting, _AT_ONCE)):
            yield from answer(some, allowed)

    def _labelled(self, texts: list[str], allowed: BoolArray) -> Iterator[Answer]:
        scores = self.scores(self.embedded(texts))
        scores = np.where(allowed, scores, -np.inf)
        several = self.model.family == "intents"
        probability = expit(scores) if several else softmax(scores, axis=1)
        for text, row in zip(texts, probability, strict=True):
            order = np.argsort(-row, kind="stable")
            chosen = [n for n in order if several and row[n] > 0.5] or [order[0]]
            choices = [Choice(self.model.labels[n], float(row[n])) for n in chosen]
            yield Answer(self.model.family, text, tuple(choices))

    def _tagged(self, texts: list[str], allowed: BoolArray) -> Iterator[Answer]:
        sentences = [spaced(text) for text in texts]
        vectors = embed_words(sentences, self._token_encoder, None)
        of_output = Family("tagging", len(self.model.labels)).label_of_output()
        scores = np.where(allowed[of_output], self.scores(vectors.z), -np.inf)
        tags = decode(scores, vectors.starts)
        for number, text in enumerate(texts):
            text_tags = tags[vectors.starts[number] : vectors.starts[number + 1]]
            words = tuple(sentences[number].split(" "))
            entities = tuple(_entities(text_tags, words, self.model.labels))
            yield Answer("tagging", text, words=words, entities=entities)

    def embedded(self, texts: Sequence[str]) -> FloatArray:
        """The embeddings (n, d) of n texts by the encoder of the head."""
        return embed(texts, self._encoder, None)

    @property
    def width(self) -> int:
        """d of the embeddings that ``scores`` takes."""
        return len(self.head.weights1 if self.into is None else self.into.matrix)

    def scores(self, z: FloatArray) -> FloatArray:
        """The head's outputs (n, outputs) for embeddings (n, d)."""
        return self.head.scores(z if self.into is None else self.into(z))

    @cached_property
    def _encoder(self) -> Encoder:
        encoder = load_encoder(self.encoder)
        self._check_encoder(encoder.id)
        return encoder

    @cached_property
    def _token_encoder(self) -> TokenEncoder:
        encoder = load_token_encoder(self.encoder, self.model.layer)
        self._check_encoder(encoder.id)
        return encoder

    def _check_encoder(self, installed: str) -> None:
        if installed != self.encoder_id:
            raise EncoderError(
                f"encoder {self.encoder!r} is {installed} here, but the run was trained with "
                f"{self.encoder_id}, and its head works with no other; install that version"
            )


def load_predictor(run: Path, seed: int | None = None, encoder: str | None = None) -> Predictor:
    """A head of a finished run, by default of its first seed and for its reference encoder.

    For an encoder that clients ran it is that encoder's own head, if there is one, and otherwise
    the common head with the encoder's translation into common coordinates.
    """
    model = ModelFacts.load(run)
    if seed is not None and seed not in model.seeds:
        seeds = ", ".join(map(str, model.seeds))
        raise ConfigError(f"the run in {run} has no seed {seed}; its seeds: {seeds}")
    name, encoder_id = model.encoder_named(encoder)
    directory = run / f"seed-{model.seeds[0] if seed is None else seed}"
    encoder_heads = [
        directory / f"head-{number}.safetensors"
        for number, client_encoder in enumerate(model.others)
        if client_encoder == encoder
    ]
    path = next(filter(Path.is_file, encoder_heads), directory / "head.safetensors")
    ways = directory / "translations.safetensors"
    if model.method in KEEP_NO_HEAD:
        raise RunDirectoryError(
            f"{run} is a run of {model.method}, which stores no head; use a run of cslr"
        )
    try:
        head = Head(**open_arrays(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise _damaged(path) from None
    if path in encoder_heads:
        return Predictor(model, _checked(head, model, path), name, encoder_id)
    try:
        arrays = open_arrays(ways.read_bytes()) if ways.exists() else {}
    except (OSError, ValueError):
        raise _damaged(ways) from None
    into = translation_from(arrays, encoder_id)
    return Predictor(model, _checked(head, model, path), name, encoder_id, into)


def _checked(head: Head, model: ModelFacts, path: Path) -> Head:
    if head.bias2.shape != (Family(model.family, len(model.labels)).outputs,):
        raise _damaged(path)
    return head


def _entities(tags: IntArray, words: tuple[str, ...], labels: Sequence[str]) -> Iterator[Entity]:
    """The entities: a tag B-i and the tags I-i that follow it."""
    starts = [index for index, tag in enumerate(tags) if tag % 2 == 1]
    for first in starts:
        last = first
        while last + 1 < len(tags) and tags[last + 1] == tags[first] + 1:
            last += 1
        yield Entity(labels[(tags[first] + 1) // 2], " ".join(words[first : last + 1]), first, last)


def _damaged(path: Path) -> RunDirectoryError:
    return RunDirectoryError(f"{path} is missing or damaged; repeat the run in a new directory")

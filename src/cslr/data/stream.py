"""A stream: a sequence of tasks with their rows, and a public corpus.

Everything but the rows is declared before any run and public. ``train`` is the clients' data and
private; ``test`` is for evaluation, and what is measured on it is not private either.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from cslr.arrays import IntArray
from cslr.errors import ConfigError, DataError
from cslr.privacy.plan import Unit
from cslr.protocol.head import FamilyName

__all__ = ["SCENARIOS", "Label", "Rows", "Stream", "Task", "labels_from_toml"]

SCENARIOS: Final = ("class", "domain", "task")


@dataclass(frozen=True)
class Label:
    """A class, an intent or a type of entity, with its description. Public."""

    name: str
    description: str
    examples: tuple[str, ...] = ()
    """Sentences written for the declaration; for tagging with the entity in [brackets]."""
    topics: tuple[str, ...] = ()
    """Texts about the several things a label stands for: each gets a mode of its own."""


@dataclass(frozen=True)
class Task:
    """One task of a stream and the labels (indices into ``Stream.labels``) it is about. Public."""

    name: str
    labels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """n texts with their labels. Private if they are train rows."""

    texts: tuple[str, ...]
    """For tagging: the words of a sentence with one space between them."""
    answers: tuple[tuple[int, ...], ...]
    """classification: the label; intents: all labels, the main one first; tagging: a tag a word."""
    tasks: IntArray  # (n,)
    people: IntArray | None = None
    """(n,) rows of the same person (a dialogue, a document) are never parted among clients."""
    clients: IntArray | None = None
    """(n,) the client of each row, if it is known and not simulated; −1: none."""
    kinds: IntArray | None = None
    """(n,) what rows of one label differ in, where that is known: to measure, never to learn."""

    def __post_init__(self) -> None:
        shape = (len(self.texts),)
        for name in ("tasks", "people", "clients", "kinds"):
            values = getattr(self, name)
            if values is not None and values.shape != shape:
                raise ValueError(
                    f"{name} must have shape {shape}, one per text, not {values.shape}"
                )
        if len(self.answers) != len(self.texts):
            raise ValueError(f"{len(self.answers)} answers for {len(self.texts)} texts")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def labels(self) -> IntArray:
        """(n,) the main label of each text; for tagging the first word's tag."""
        return np.array([answer[0] for answer in self.answers], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Stream:
    """A sequence of text tasks with train and test rows, checked when it is made.

    ``scenarios`` are those in which a figure on this stream means something, the headline first;
    ``clients``, ``partition`` and ``alpha`` say how the stream is reported: rows shared out by
    Dirichlet shares, every client within one task, or each row with its own client. In tagging the
    first label is O, the word that names nothing, and label i > 0 has the tags 2i − 1 (its
    beginning, B-) and 2i (inside, I-).
    """

    name: str
    labels: tuple[Label, ...]
    tasks: tuple[Task, ...]
    train: Rows
    test: Rows
    public: tuple[str, ...]
    scenarios: tuple[str, ...]
    clients: int
    alpha: float = 1.0
    family: FamilyName = "classification"
    partition: Literal["dirichlet", "task", "given"] = "dirichlet"
    cap: int | None = None
    """The most tasks a client can have rows of, where the partition says so."""
    client_ids: IntArray | None = None
    """Of the clients with rows, by their numbers: addresses that no other client's rows change."""
    people: int | None = None
    """Registered people of all clients, as declared; None: those of the train rows of a benchmark,
    where each row without a known person counts as a person of its own."""
    rows_per_person: int = 1
    """Rows that a person is expected to have of one task. Declared, so public."""
    clients_per_person: int = 1
    """The most clients that hold rows of one person."""
    person_ids: IntArray | None = None
    """Of the people with rows, by their numbers: addresses from the names of client and person."""
    person: str = "row"
    """What one person is, where a person is the unit of privacy: a row if nothing else is known."""
    unit: Unit = "client"
    """Whom a run hides unless it is told otherwise."""

    def __post_init__(self) -> None:
        self._check_declarations()
        self._check_rows("train", self.train)
        self._check_rows("test", self.test)
        _check_texts(f"{self.name} public", self.public)

    @property
    def registered_people(self) -> int:
        """As declared, or of a benchmark those with train rows."""
        if self.people is not None:
            return self.people
        return len(self.train) if self.train.people is None else len(np.unique(self.train.people))

    def scenario(self, chosen: str | None) -> str:
        """The wanted scenario, or the headline one; an error if the stream does not offer it."""
        scenario = chosen or self.scenarios[0]
        if scenario in self.scenarios:
            return scenario
        offered = ", ".join(self.scenarios)
        why = ""
        if scenario == "task" and any(len(task.labels) == 1 for task in self.tasks):
            why = " because a task with one label leaves nothing to predict"
        raise ConfigError(
            f"stream {self.name!r} has no scenario {scenario!r}{why}; use --scenario {offered}"
        )

    def _check_declarations(self) -> None:
        for task in self.tasks:
            if not task.labels:
                raise DataError(f"{self.name}: task {task.name!r} declares no label")
            for label in task.labels:
                if not 0 <= label < len(self.labels):
                    raise DataError(
                        f"{self.name}: task {task.name!r} has label {label}, but only "
                        f"0..{len(self.labels) - 1} are declared"
                    )
        if not self.tasks or not self.scenarios or not set(self.scenarios) <= set(SCENARIOS):
            raise DataError(
                f"{self.name}: at least one task and one scenario of {', '.join(SCENARIOS)} "
                f"must be declared"
            )
        if self.clients < 1 or not (math.isfinite(self.alpha) and self.alpha > 0):
            raise DataError(
                f"{self.name}: clients must be at least 1 and alpha positive, not "
                f"{self.clients} and {self.alpha}"
            )

    def _check_rows(self, part: str, rows: Rows) -> None:
        """Every row has a text, a declared task, and answers that belong to its task."""
        where = f"{self.name} {part}"
        _check_texts(where, rows.texts)
        outside = np.flatnonzero((rows.tasks < 0) | (rows.tasks >= len(self.tasks)))
        if len(outside):
            row = int(outside[0])
            raise DataError(
                f"{where}, row {row}: task {rows.tasks[row]} is not one of the declared "
                f"0..{len(self.tasks) - 1}"
            )
        for row, (text, answer) in enumerate(zip(rows.texts, rows.answers, strict=True)):
            wrong = self._wrong(text, answer, self.tasks[rows.tasks[row]])
            if wrong:
                raise DataError(f"{where}, row {row}: {wrong}")

    def _wrong(self, text: str, answer: tuple[int, ...], task: Task) -> str | None:
        """What is wrong with a row's answer, if anything."""
        tagging = self.family == "tagging"
        size = 2 * len(self.labels) - 1 if tagging else len(self.labels)
        name = "tag" if tagging else "label"
        for value in answer:
            if not 0 <= value < size:
                return f"{name} {value} is not one of the declared 0..{size - 1}"
        if tagging:
            words = len(text.split(" "))
            return f"{len(answer)} tags for {words} words" if len(answer) != words else None
        if not answer or (self.family == "classification" and len(answer) > 1):
            return f"{len(answer)} labels; a row of this family has {_MANY[self.family]}"
        if answer[0] not in task.labels:
            return (
                f"label {answer[0]} does not belong to task {task.name!r}; declare it there or "
                f"move the row"
            )
        return None


_MANY: Final = {"classification": "one", "intents": "one or more"}


def labels_from_toml(content: str, source: str) -> tuple[Label, ...]:
    """The labels of a file of ``[[labels]]``: ``name``, ``description``, perhaps more."""
    try:
        entries: list[dict[str, Any]] = tomllib.loads(content)["labels"]
        lists = [(tuple(e.get("examples", ())), tuple(e.get("topics", ()))) for e in entries]
        fields = [
            (entry["name"], entry["description"], *examples, *topics)
            for entry, (examples, topics) in zip(entries, lists, strict=True)
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{source} is not a list of [[labels]] with name and description: {error}"
        ) from error
    if not all(isinstance(text, str) and text.strip() for texts in fields for text in texts):
        raise DataError(f"{source}: every label needs a name and a description")
    return tuple(
        Label(name, description, examples, topics)
        for (name, description, *_), (examples, topics) in zip(fields, lists, strict=True)
    )


def _check_texts(where: str, texts: tuple[str, ...]) -> None:
    for row, text in enumerate(texts):
        if not text.strip():
            raise DataError(f"{where}, row {row}: the text is empty; remove the row or fill it in")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}, row {row}: the text is not valid Unicode; correct it"
            ) from error

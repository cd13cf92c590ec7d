"""Converts the arguments of ``learn`` to an embedded stream, the input of a run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from cslr.api.array_likes import (
    TextsOrVectors,
    names_of,
    outcomes_of,
    texts_or_vectors,
    unit_names_of,
)
from cslr.api.declared import (
    DeclaredLabels,
    LabelTexts,
    TaskLabels,
    declared_labels,
    declared_tasks,
    registered_clients,
)
from cslr.api.persons import DeclaredPeople, people_of_rows
from cslr.arrays import FloatArray, IntArray
from cslr.data.own import few_public, overlapping
from cslr.data.own.load import client_address
from cslr.data.own.public_text import FEWEST
from cslr.data.stream import Label, Rows, Stream, Task
from cslr.errors import ConfigError, DataError
from cslr.protocol.head import Family, FamilyName
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.text.cache import EmbeddingCache, default_directory
from cslr.text.encoders import Encoder, embed, load_encoder

__all__ = ["GIVEN", "Arguments", "encoder_name", "streamed", "warn_of_few"]

GIVEN: Final = "given embeddings"
"""The name of the encoder if embeddings are given instead of texts."""


@dataclass(frozen=True, eq=False, repr=False)
class Arguments:
    """The arguments of ``learn`` about rows and their declaration."""

    X: TextsOrVectors  # private
    y: Any  # private
    clients: Any  # private
    tasks: Any  # private
    label_texts: LabelTexts
    public: TextsOrVectors
    task_labels: TaskLabels | None
    registered: int | None
    family: FamilyName
    name: str
    simulate: bool
    people: Any = None  # private
    declared: DeclaredPeople = field(default_factory=DeclaredPeople)


def encoder_name(X: TextsOrVectors, encoder: str | None) -> str:
    """The encoder to use: the one given, or for texts the default."""
    return encoder or ("minilm" if isinstance(texts_or_vectors(X, "X"), tuple) else GIVEN)


def streamed(given: Arguments, encoder: str) -> EmbeddedStream:
    """Validate the arguments, embed texts, and build the stream."""
    if given.family not in ("classification", "intents"):
        raise ConfigError(
            f"family must be 'classification' or 'intents', not {given.family!r}; tagging is "
            f"learnt from a file: cslr run --data FILE"
        )
    stream, z, public, labels = _stream(given)
    loaded = None if encoder == GIVEN else load_encoder(encoder)
    open_cache = EmbeddingCache(default_directory("public"))
    embedded = _vectors(public, "public", loaded, open_cache)
    descriptions = np.zeros((len(labels.names), embedded.shape[1]), dtype=np.float32)
    if labels.texts is not None:
        descriptions = _vectors(labels.texts, "label_texts", loaded, open_cache)
    rows = _vectors(z, "X", loaded, EmbeddingCache(default_directory("private")))
    _check_widths(rows, embedded, descriptions)
    family = Family(given.family, len(labels.names))
    return EmbeddedStream(
        stream,
        family,
        GIVEN if loaded is None else loaded.id,
        _examples(rows, stream.train, family),
        _examples(rows[:0], stream.test, family),
        embedded,
        descriptions,
        seconds=0.0,
    )


def warn_of_few(public: FloatArray, directions: int) -> None:
    """Warn if public rows (n, d) are few for the number of directions to be released."""
    few = few_public(Path("public"), len(public), min(directions, public.shape[1]), "texts")
    if few is not None:
        warnings.warn(few.removeprefix("warning: "), stacklevel=3)


def _stream(
    given: Arguments,
) -> tuple[Stream, Sequence[str] | FloatArray, Sequence[str] | FloatArray, DeclaredLabels]:
    """The stream, texts or embeddings of its rows and of the public corpus, and its labels."""
    rows, labels = texts_or_vectors(given.X, "X"), declared_labels(given.label_texts)
    public = _public(texts_or_vectors(given.public, "public"))
    outcomes = outcomes_of(given.y, given.family, labels.names, len(rows))
    of_rows = None if given.tasks is None else names_of(given.tasks, "tasks", len(rows))
    tasks = declared_tasks(given.task_labels, labels.names, of_rows, outcomes, given.simulate)
    numbers = _task_numbers(of_rows, tasks, outcomes, labels.names)
    clients = unit_names_of(given.clients, "clients", len(rows))
    holders = sorted(set(clients))
    places = {name: index for index, name in enumerate(holders)}
    texts = rows if isinstance(rows, tuple) else tuple(f"row {n}" for n in range(len(rows)))
    described = labels.names if not isinstance(labels.texts, tuple) else labels.texts
    sentences = public if isinstance(public, tuple) else ()
    if isinstance(rows, tuple) and overlapping(sentences, rows):
        warnings.warn(
            "public: some sentences also occur in X. Public sentences are used without noise: "
            "remove those that are rows of a client",
            stacklevel=4,
        )
    stream = Stream(
        name=given.name,
        labels=tuple(map(Label, labels.names, described)),
        tasks=tasks,
        train=Rows(texts, outcomes, numbers, clients=np.array([places[name] for name in clients])),
        test=Rows((), (), np.zeros(0, dtype=np.int64)),
        public=sentences,
        scenarios=(_scenario(tasks),),
        clients=registered_clients(given.registered, len(holders), given.simulate),
        family=given.family,
        partition="given",
        client_ids=np.array([client_address(name) for name in holders], dtype=np.int64),
    )
    return _with_people(stream, clients, given), rows, public, labels


def _with_people(stream: Stream, clients: Sequence[str], given: Arguments) -> Stream:
    """The stream with its people, if they are the units of privacy."""
    if given.declared.unit == "client":
        return stream
    if given.declared.tasks_per_person > len(stream.tasks):
        raise ConfigError(
            f"tasks_per_person={given.declared.tasks_per_person} is more than the "
            f"{len(stream.tasks)} tasks there are; a person cannot have rows of more"
        )
    people = people_of_rows(given.people, clients, given.declared, given.simulate)
    return replace(
        stream,
        train=replace(stream.train, people=people.units),
        people=people.registered,
        rows_per_person=given.declared.rows_per_person,
        clients_per_person=given.declared.clients_per_person,
        tasks_per_person=given.declared.tasks_per_person,
        person_ids=people.ids,
        unit="person",
        person="person",
    )


def _public(public: tuple[str, ...] | FloatArray) -> tuple[str, ...] | FloatArray:
    """Each public sentence once; too few are refused."""
    distinct = tuple(dict.fromkeys(public)) if isinstance(public, tuple) else public
    if len(distinct) < FEWEST:
        raise DataError(
            f"public holds {len(distinct)} distinct texts or embeddings; give at least {FEWEST} "
            f"and preferably thousands that are not rows of any client"
        )
    return distinct


def _task_numbers(
    names: list[str] | None,
    tasks: tuple[Task, ...],
    outcomes: Sequence[tuple[int, ...]],
    labels: tuple[str, ...],
) -> IntArray:
    """(n,) the task of each row, which must be declared and contain the row's main label."""
    if not outcomes:
        raise DataError("X has no rows; give at least one")
    if names is None and len(tasks) > 1:
        raise DataError("tasks is missing: task_labels declares several; give each row its task")
    places = {task.name: index for index, task in enumerate(tasks)}
    task_names = [tasks[0].name] * len(outcomes) if names is None else names
    for row, (name, outcome) in enumerate(zip(task_names, outcomes, strict=True)):
        if name not in places:
            raise DataError(
                f"tasks, row {row}: task {name!r} is not declared in task_labels; tasks: "
                f"{', '.join(places)}"
            )
        if outcome[0] not in tasks[places[name]].labels:
            raise DataError(
                f"y, row {row}: label {labels[outcome[0]]!r} is not a label of task {name!r}; "
                f"declare it in task_labels or move the row"
            )
    return np.array([places[name] for name in task_names], dtype=np.int64)


def _scenario(tasks: tuple[Task, ...]) -> Literal["class", "domain"]:
    """Whether all tasks have the same labels (domain) or not (class)."""
    return "domain" if len({task.labels for task in tasks}) == 1 else "class"


def _vectors(
    values: Sequence[str] | FloatArray,
    argument: str,
    encoder: Encoder | None,
    cache: EmbeddingCache,
) -> FloatArray:
    """(n, d) the embeddings given, or those of texts, embedded one at a time."""
    if isinstance(values, np.ndarray):
        return values
    if encoder is None:
        raise ConfigError(
            f"{argument} holds texts and X holds embeddings: name the encoder that made them "
            f"(encoder='minilm'), or give embeddings for {argument} too"
        )
    return embed(list(values), encoder, cache)


def _check_widths(rows: FloatArray, public: FloatArray, label_texts: FloatArray) -> None:
    for argument, other in (("public", public), ("label_texts", label_texts)):
        if other.shape[1] != rows.shape[1]:
            raise DataError(
                f"{argument} has embeddings of {other.shape[1]} numbers, X of {rows.shape[1]}; "
                f"embed both with the same encoder"
            )


def _examples(z: FloatArray, rows: Rows, family: Family) -> EmbeddedRows:
    places = np.arange(len(rows))
    labels = np.array([answer[0] for answer in rows.answers], dtype=np.int64)
    targets = family.targets(rows.answers)
    return EmbeddedRows(z, labels, targets, rows.tasks, places, np.arange(len(rows) + 1))

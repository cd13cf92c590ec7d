"""What is declared about rows, and what is public, as one file that all parties have.

Everything here is PUBLIC: labels, tasks, columns, public sentences, the encoder's name.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cslr.arrays import IntArray
from cslr.config import Config, HeadConfig, PrivacyConfig, StreamConfig, mistakes
from cslr.data.own import Declaration, load_declaration, read_public
from cslr.data.own.parse.labels import Known
from cslr.data.stream import Rows, Stream
from cslr.data.streams import EMBEDDED, load_stream
from cslr.errors import ConfigError
from cslr.privacy.plan import Unit
from cslr.runs.own_data import MOST_PUBLIC
from cslr.text.spacing import spaced

__all__ = [
    "Promised",
    "Source",
    "refuse_contradictions",
    "source_of_declaration",
    "source_of_stream",
]


class Promised(Protocol):
    """The promises that a founder wants to make, or that a charter makes."""

    @property
    def unit(self) -> Unit:
        """Whom ε hides."""

    @property
    def epsilon(self) -> float:
        """ε of a unit."""

    @property
    def delta(self) -> float:
        """δ of a unit."""

    @property
    def members(self) -> int:
        """n: the most nodes."""

    @property
    def rounds(self) -> int:
        """Gradients that are asked for of each task; 0: its statistics, once."""


class Source(BaseModel):
    """Where rows come from: an embedded stream, shared out among nodes, or rows of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream: str = ""
    declaration: str = ""
    """The text of the declaration, where nodes have rows of their own."""
    public: tuple[str, ...] = ()
    """The public sentences for these rows."""
    tasks: int | None = Field(None, ge=1)
    """Only the first tasks of an embedded stream; None: all."""
    encoder: str = "minilm"
    seed: int = Field(13, ge=0)

    @property
    def digest(self) -> str:
        """SHA-256 of everything here."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def declared(self) -> Declaration | None:
        """What is declared about own rows; None: the stream is embedded."""
        if not self.declaration:
            return None
        try:
            return Declaration.model_validate(tomllib.loads(self.declaration))
        except (ValueError, ValidationError) as error:
            why = mistakes(error, Declaration) if isinstance(error, ValidationError) else str(error)
            raise ConfigError(f"the declaration of the federation is not valid: {why}") from None

    def config(self, promised: Promised) -> Config:
        """The configuration of everything that is computed from this."""
        name = self.stream or self._declared().name
        clients = promised.members if self.stream else None
        try:
            privacy = PrivacyConfig(
                epsilon=promised.epsilon,
                delta=promised.delta,
                unit=promised.unit,
                mode="enforced",
                federation=Path("federation"),
            )
            stream = StreamConfig(name=name, clients=clients)
        except ValidationError as error:
            raise ConfigError(mistakes(error, PrivacyConfig)) from None
        rounds = promised.rounds
        head = HeadConfig(kind="rounds", rounds=rounds) if rounds else HeadConfig(kind="released")
        return Config(
            seeds=(self.seed,),
            encoder=self.encoder,
            stream=stream,
            privacy=privacy,
            head=head,
        )

    def without_rows(self) -> Stream:
        """The stream as the server knows it: everything public, and not one row."""
        if self.stream:
            stream = self.with_rows()
            people = stream.registered_people
            return replace(stream, train=_none(), test=_none(), people=people)
        declaration = self._declared()
        known = Known.of(declaration)
        tagging = declaration.family == "tagging"
        return Stream(
            name=declaration.name,
            labels=known.labels,
            tasks=known.tasks,
            train=_none(),
            test=_none(),
            public=tuple(map(spaced, self.public)) if tagging else self.public,
            scenarios=(declaration.scenario,),
            clients=declaration.clients,
            family=declaration.family,
            partition="given",
            people=declaration.people,
            rows_per_person=declaration.rows_per_person,
            tasks_per_person=declaration.tasks_per_person,
            clients_per_person=declaration.clients_per_person,
        )

    def with_rows(self) -> Stream:
        """The embedded stream with all its rows, which are invented."""
        stream = load_stream(self.stream, None)
        if self.tasks is None:
            return stream
        if self.tasks > len(stream.tasks):
            raise ConfigError(f"{self.stream!r} has {len(stream.tasks)} tasks, not {self.tasks}")
        train, test = (_of_tasks(rows, self.tasks) for rows in (stream.train, stream.test))
        return replace(stream, tasks=stream.tasks[: self.tasks], train=train, test=test)

    def _declared(self) -> Declaration:
        declaration = self.declared()
        if declaration is None:
            raise ConfigError("the federation has neither an embedded stream nor a declaration")
        return declaration


def source_of_stream(name: str, tasks: int | None, encoder: str, seed: int) -> Source:
    """The source of a stream that comes with the program."""
    if name not in EMBEDDED:
        raise ConfigError(
            f"--stream {name}: only {', '.join(EMBEDDED)} can be shared out among nodes; for rows "
            "of your own use `cslr federation init FOLDER --declaration FILE`"
        )
    return _source(stream=name, tasks=tasks, encoder=encoder, seed=seed)


def source_of_declaration(path: Path, encoder: str, seed: int) -> Source:
    """The source of rows that nodes hold, as declared in a file."""
    declaration = load_declaration(path)
    declaration.require_confirmed(path)
    if declaration.public is None:
        raise ConfigError(f"{path} names no public sentences; add public = FILE to it")
    public = read_public(declaration.public)[:MOST_PUBLIC]
    text = path.read_text(encoding="utf-8")
    return _source(declaration=text, public=public, encoder=encoder, seed=seed)


def refuse_contradictions(path: Path, declared: Declaration, options: Mapping[str, object]) -> None:
    """Refuse options that differ from the declaration in ``path``; None: an option not given."""
    privacy, unit = declared.privacy, options.get("unit")
    if unit not in (None, privacy.unit):
        raise ConfigError(
            f"--unit {unit}: {path} promises to hide one {privacy.unit}, unit = {privacy.unit!r} "
            "in [privacy]; leave --unit out, or change the declaration"
        )
    if (stream := options.get("stream")) is not None:
        raise ConfigError(
            f"--stream {stream} and --declaration {path} are two sources of rows; give one of them"
        )
    values = {
        "epsilon": (privacy.epsilon, f"epsilon = {privacy.epsilon}"),
        "delta": (privacy.delta, f"delta = {privacy.delta}"),
        "nodes": (declared.clients, f"clients = {declared.clients}"),
        "tasks": (len(declared.tasks), f"{len(declared.tasks)} tasks"),
    }
    for name, (value, said) in values.items():
        if options.get(name) not in (None, value):
            raise ConfigError(
                f"--{name} {options[name]} contradicts {path}, which declares {said}; leave "
                f"--{name} out, or change the declaration"
            )


def _source(**values: Any) -> Source:
    """A source of these values, some of which a user gave."""
    try:
        return Source(**values)
    except ValidationError as error:
        raise ConfigError(mistakes(error, Source)) from None


def _none() -> Rows:
    return Rows((), (), np.zeros(0, dtype=np.int64))


def _of_tasks(rows: Rows, tasks: int) -> Rows:
    """The rows of the first tasks."""
    kept = np.flatnonzero(rows.tasks < tasks)

    def part(values: IntArray | None) -> IntArray | None:
        return None if values is None else values[kept]

    return Rows(
        tuple(rows.texts[i] for i in kept),
        tuple(rows.answers[i] for i in kept),
        rows.tasks[kept],
        part(rows.people),
        part(rows.clients),
        part(rows.kinds),
    )

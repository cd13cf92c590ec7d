"""The public declaration of a data file: a TOML file next to it.

Labels, tasks and the number of clients are taken from the declaration and never from the rows:
anything derived from private rows would be published without a privacy charge.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
    model_validator,
)

from cslr.config import mistakes
from cslr.data.own.reader.file_format import stem_of
from cslr.data.streams.marked import tagged_example
from cslr.errors import ConfigError, DataError
from cslr.privacy.plan import Unit
from cslr.protocol.head import FamilyName

__all__ = [
    "OF_PEOPLE",
    "Columns",
    "Declaration",
    "DeclaredLabel",
    "DeclaredTask",
    "TotalBudget",
    "declaration_path",
    "load_declaration",
]

_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(_Section):
    """The names of the columns."""

    text: _Name = "text"
    label: _Name = "label"
    client: _Name = "client"
    task: _Name | None = None
    """May be left out where only one task is declared."""
    split: _Name | None = None
    """Holds train or test; None: all rows are train, or ``test_share`` decides."""
    person: _Name | None = None
    """The person (or document, dialogue) a row belongs to, if a client holds rows of several."""

    def roles(self) -> dict[str, str]:
        """The required columns, by role."""
        return {role: name for role, name in self.model_dump().items() if name is not None}


OF_PEOPLE: Final = frozenset(
    {"people", "clients_per_person", "rows_per_person", "tasks_per_person"}
)
"""Settings that are declared only if a person is the unit."""


class DeclaredLabel(_Section):
    """A class, an intent or a type of entity."""

    name: _Name
    description: str
    examples: tuple[_Name, ...] = ()


class DeclaredTask(_Section):
    """A task and its labels; None: all labels."""

    name: _Name
    labels: tuple[_Name, ...] | None = Field(None, min_length=1)


class TotalBudget(_Section):
    """The total budget per unit of privacy for all releases on these rows, over all runs."""

    epsilon: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(1e-5, gt=0, lt=1)
    adversary: Literal["roster", "public"] = "roster"
    """The adversary: roster knows which clients participated, public does not."""
    unit: Unit = "client"
    """The unit of privacy: a client with all its rows, or one person inside a client."""


class Declaration(_Section):
    """A data set as declared by its holder."""

    confirmed: StrictBool = False
    """Must be true before the declaration is used."""
    name: _Slug
    family: FamilyName
    scenario: Literal["class", "domain", "task"]
    clients: int = Field(ge=1)
    """N: registered clients, with rows or without."""
    people: int | None = Field(None, ge=1)
    """Registered people of all clients, with rows or without, where a person is the unit."""
    clients_per_person: int = Field(1, ge=1)
    """The most clients that hold rows of one person."""
    rows_per_person: int = Field(1, ge=1)
    """Rows that a person is expected to have of one task."""
    tasks_per_person: int = Field(1, ge=1)
    """The most tasks that a person contributes to."""
    separator: str = Field("|", min_length=1)
    """Separates several labels, or the tags of a sentence, in one cell."""
    delimiter: Literal[",", ";", "\t", "|"] = ","
    """Separates the cells of a CSV file."""
    test_share: float | None = Field(None, gt=0, lt=1)
    test_rows: Literal["clients", "public"] = "clients"
    """Whether rows of split test belong to clients, or to none, so that scores are public."""
    public_rows: StrictBool = False
    """Whether the rows themselves are public, so that they may be studied in a simulation."""
    public: Path | None = None
    """A file of the holder's own public sentences."""
    columns: Columns = Columns()
    labels: tuple[DeclaredLabel, ...] = Field(min_length=1)
    tasks: tuple[DeclaredTask, ...] = Field(min_length=1)
    privacy: TotalBudget

    @model_validator(mode="before")
    @classmethod
    def _public_rows(cls, values: Any) -> Any:
        """``public = true`` means the rows are public; ``public = "FILE"``, public sentences."""
        if isinstance(values, dict) and isinstance(values.get("public"), bool):
            others = {name: value for name, value in values.items() if name != "public"}
            return {**others, "public_rows": values["public"]}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_distinct("[columns]", self.columns.roles().values())
        _check_distinct("[[labels]]", [label.name for label in self.labels])
        _check_distinct("[[tasks]]", [task.name for task in self.tasks])
        self._check_tasks()
        self._check_unit()
        if self.columns.task is None and len(self.tasks) > 1:
            raise ValueError(
                "columns.task must name the column of tasks, because several tasks are declared"
            )
        if self.columns.split is not None and self.test_share is not None:
            raise ValueError("columns.split and test_share cannot be combined; keep one")
        if self.test_rows == "public" and self.columns.split is None:
            raise ValueError(
                "test_rows = 'public' requires columns.split: rows selected by test_share "
                "belong to clients and are private"
            )
        if self.family == "tagging":
            self._check_types()
        elif self.family == "classification" and len(self.labels) < 2:
            raise ValueError("[[labels]]: classification requires at least two labels")
        if self.family == "intents":
            for label in self.labels:
                if self.separator in label.name:
                    raise ValueError(
                        f"label {label.name!r} contains the separator {self.separator!r}; set "
                        f"another separator"
                    )
        return self

    @property
    def units(self) -> int:
        """How many units of privacy are registered."""
        return self.people if self.people is not None else self.clients

    def _check_unit(self) -> None:
        """The unit can be a person only with a person column and a declared number of people."""
        given = self.model_fields_set & OF_PEOPLE
        if self.privacy.unit == "client":
            if given:
                raise ValueError(
                    f"{min(given)} is for people as units; set unit = 'person' in [privacy], or "
                    f"remove it"
                )
            return
        if self.columns.person is None:
            raise ValueError(
                "unit = 'person' in [privacy] needs columns.person, the column that says whose row "
                "it is; where a row has no person use unit = 'client'"
            )
        if self.people is None:
            raise ValueError(
                "unit = 'person' in [privacy] needs people, the number of all registered people, "
                "with rows or without"
            )
        if self.clients_per_person > self.clients:
            raise ValueError(
                f"clients_per_person = {self.clients_per_person} is more than clients = "
                f"{self.clients}; a person cannot be with more clients than there are"
            )
        if self.tasks_per_person > len(self.tasks):
            raise ValueError(
                f"tasks_per_person = {self.tasks_per_person} is more than the {len(self.tasks)} "
                "declared tasks; a person cannot have rows of more"
            )

    def _check_tasks(self) -> None:
        declared = {label.name for label in self.labels}
        for task in self.tasks:
            _check_distinct(f"task {task.name!r}, labels", task.labels or ())
            for name in task.labels or ():
                if name not in declared:
                    raise ValueError(
                        f"task {task.name!r} has label {name!r}, which is not in [[labels]]"
                    )
            alone = len(task.labels or self.labels) == 1 and self.family != "tagging"
            if self.scenario == "task" and alone:
                raise ValueError(
                    f"scenario 'task': task {task.name!r} has one label only, so there is "
                    "nothing to predict; use another scenario or add labels"
                )
        used = {name for task in self.tasks for name in task.labels or declared}
        for label in self.labels:
            if label.name not in used:
                raise ValueError(f"label {label.name!r} is in no task; add it to one")

    def _check_types(self) -> None:
        for label in self.labels:
            if label.name == "O" or label.name.startswith(("B-", "I-")):
                raise ValueError(
                    f"label {label.name!r}: declare the entity type only, such as PER; O, B- "
                    "and I- tags are added automatically"
                )
            if len(label.name.split()) > 1:
                raise ValueError(f"label {label.name!r}: an entity type must be one word")
        declared = {label.name for label in self.labels}
        for label in self.labels:
            for example in label.examples:
                marked = _types(example) - {"O"}
                if not marked <= declared or label.name not in marked:
                    raise ValueError(
                        f"label {label.name!r}, example {example!r}: mark every entity as "
                        "[words|TYPE] with declared types, including at least one "
                        f"{label.name}"
                    )

    def missing(self) -> tuple[str, ...]:
        """What is missing before the declaration can be used."""
        empty = [label.name for label in self.labels if not label.description.strip()]
        wanting = [f"add a description of label {name!r}" for name in empty]
        if self.family == "tagging":
            wanting += self._unmarked()
        if not self.confirmed:
            wanting.append("check it and set confirmed = true")
        return tuple(wanting)

    def _unmarked(self) -> list[str]:
        """Entity types are learnt from marked sentences only, so every type needs some."""
        marked = {name for label in self.labels for text in label.examples for name in _types(text)}
        wanting = [
            f"add examples of label {label.name!r}, marked as [words|{label.name}]"
            for label in self.labels
            if label.name not in marked
        ]
        return wanting if wanting or "O" in marked else ["add examples with words outside brackets"]

    def require_confirmed(self, path: Path | None = None) -> None:
        """Raise an error for a draft: the holder must confirm a declaration before it is used."""
        if missing := self.missing():
            where = path or f"the declaration of {self.name!r}"
            raise ConfigError(f"{where} is a draft: {'; '.join(missing)}")


def declaration_path(data: Path, explicit: Path | None = None) -> Path:
    """``explicit``, or the TOML beside the data: reviews.csv.gz -> reviews.cslr.toml."""
    if explicit is None and not data.name:
        raise ConfigError(f"{data} is a directory; give a file of rows")
    return explicit or data.with_name(f"{stem_of(data)}.cslr.toml")


def load_declaration(path: Path) -> Declaration:
    """The declaration in ``path``; paths in it are relative to the folder of the file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"declaration {path} does not exist; draft one with `cslr data init FILE`, or "
            "give another with --declaration"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    _require_filled(path, values)
    try:
        declaration = Declaration.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {mistakes(error, Declaration)}") from None
    if declaration.public is None:
        return declaration
    return declaration.model_copy(update={"public": path.parent / declaration.public})


_MEANT = {
    "text": "the text to classify or tag",
    "label": "the label, labels or tags of a row",
    "client": "the client that holds a row",
}


def _require_filled(path: Path, values: dict[str, Any]) -> None:
    """Raise an error that lists what a draft still lacks, before its values are validated."""
    columns = values.get("columns")
    named = columns if isinstance(columns, dict) else {}
    lacking = [
        f"name the column of {meant} ({role} in [columns])"
        for role, meant in _MEANT.items()
        if named.get(role) == ""
    ]
    if "labels" not in values and "columns" in values:
        lacking.append("declare each label as [[labels]] with a name and a description")
    if lacking:
        raise ConfigError(
            f"{path} is a draft and not filled in: {'; '.join(lacking)}. Or repeat `cslr data "
            "init` with the column: --text, --label or --client"
        )


def _types(example: str) -> set[str]:
    """What an example sentence for tagging contains: entity types, and O for other words."""
    try:
        _, tags = tagged_example(example)
    except DataError as error:
        raise ValueError(str(error)) from None
    return {tag.partition("-")[2] or "O" for tag in tags}


def _check_distinct(where: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{where}: {', '.join(map(repr, twice))} is duplicated")

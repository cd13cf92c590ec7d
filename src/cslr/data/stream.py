"""A stream: a sequence of tasks with their rows and a public corpus, and which client holds a row.

Everything but the rows is declared before any run and public. ``train`` is the clients' data and
private; ``test`` is for evaluation, and scores on it are not protected either.

Rows are assigned to simulated clients by Dirichlet shares (label skew, as in the paper; a person's
rows stay together), or so that every client has rows of one task, or as the rows themselves say.
If every client has rows of one task and more clients are requested than the stream's own number,
each draws its rows with replacement: this studies the number of clients and adds no data. All of
this is for simulations: in a deployment clients have their own rows, whose number is private.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

import numpy as np

from cslr.arrays import IntArray
from cslr.config import StreamConfig
from cslr.errors import ConfigError, DataError
from cslr.privacy.plan import Unit
from cslr.protocol.head import FamilyName

__all__ = [
    "SCENARIOS",
    "Holding",
    "Label",
    "Row",
    "Rows",
    "Stream",
    "Task",
    "as_rows",
    "assign_clients",
    "declared_labels",
    "describe_partition",
    "dirichlet_partition",
    "labels_from_toml",
]

SCENARIOS: Final = ("class", "domain", "task")


@dataclass(frozen=True)
class Label:
    """A class, an intent or a type of entity, with its description. Public."""

    name: str
    description: str
    examples: tuple[str, ...] = ()
    """Sentences written for the declaration; for tagging with the entity in [brackets]."""
    topics: tuple[str, ...] = ()
    """Descriptions of the several topics that a label covers: each gets a mode of its own."""


@dataclass(frozen=True)
class Task:
    """One task of a stream and the labels (indices into ``Stream.labels``) it is about. Public."""

    name: str
    labels: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """n texts with their labels. Private if they are train rows."""

    texts: tuple[str, ...]
    """For tagging: the words of a sentence with one space between them."""
    answers: tuple[tuple[int, ...], ...]
    """classification: the label; intents: all labels, the main one first; tagging: a tag a word."""
    tasks: IntArray  # (n,)
    people: IntArray | None = None
    """(n,) the person (or dialogue, document) of each row; partitions keep its rows together."""
    clients: IntArray | None = None
    """(n,) the client of each row, if it is known and not simulated; −1: none."""
    kinds: IntArray | None = None
    """(n,) the true mode of each row, if known: used to measure matching, never to train."""

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


@dataclass(frozen=True, repr=False)
class Row:
    """One text with its label, its task and, if it has them, further labels and a person.

    For tagging ``label`` is the first word's tag and ``others`` are those of the other words.
    """

    text: str
    label: int
    task: int
    others: tuple[int, ...] = ()
    person: str = ""


def as_rows(rows: list[Row]) -> Rows:
    """Convert single rows to the arrays of a stream."""
    _, people = np.unique([row.person for row in rows], return_inverse=True)
    return Rows(
        tuple(row.text for row in rows),
        tuple((row.label, *row.others) for row in rows),
        np.array([row.task for row in rows], dtype=np.int64),
        people if any(row.person for row in rows) else None,
    )


@dataclass(frozen=True, eq=False)
class Stream:
    """A sequence of text tasks with train and test rows, checked when it is made.

    ``scenarios`` are those in which the stream can be evaluated, the default first. ``clients``,
    ``partition`` and ``alpha`` are the defaults of reported scores: rows are assigned by Dirichlet
    shares, every client has rows of one task, or each row names its client. In tagging the first
    label is O (outside any entity), and label i > 0 has the tags 2i − 1 (B-) and 2i (I-).
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
    """The most tasks a client can have rows of, if the partition limits them."""
    client_ids: IntArray | None = None
    """The addresses of the clients with rows, by number; no other client's rows affect them."""
    people: int | None = None
    """Registered people of all clients, as declared; None: those of the train rows of a benchmark,
    where each row without a known person counts as a person of its own."""
    rows_per_person: int = 1
    """Rows that a person is expected to have of one task. Declared, so public."""
    clients_per_person: int = 1
    """The most clients that hold rows of one person."""
    tasks_per_person: int = 1
    """The most tasks that a person contributes to. Declared, so public."""
    person_ids: IntArray | None = None
    """The addresses of the people with rows, by number, made of the names of client and person."""
    person: str = "row"
    """What counts as one person if a person is the unit of privacy: a row if nothing is known."""
    unit: Unit = "client"
    """The default unit of privacy."""

    def __post_init__(self) -> None:
        self._check_declarations()
        self._check_rows("train", self.train)
        self._check_rows("test", self.test)
        _check_texts(f"{self.name} public", self.public)

    @property
    def registered_people(self) -> int:
        """The declared number; for a benchmark the number of people with train rows."""
        if self.people is not None:
            return self.people
        return len(self.train) if self.train.people is None else len(np.unique(self.train.people))

    def scenario(self, chosen: str | None) -> str:
        """The chosen scenario, or the default; an error if the stream does not offer it."""
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
    """The labels of a file of ``[[labels]]``: name and description, perhaps examples and topics."""
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


def declared_labels(name: str) -> tuple[Label, ...]:
    """The labels of the file ``name`` that comes with the program."""
    path = files("cslr.data.streams").joinpath(name)
    return labels_from_toml(path.read_text(encoding="utf-8"), name)


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


# -- which client holds which rows -----------------------------------------------------------------

RESAMPLED_ROWS: Final = 20
"""Rows that a client draws if rows are drawn with replacement."""

Holding = tuple[IntArray, IntArray]
"""Clients (h,) and rows (h,): client i holds row j."""


def assign_clients(stream: Stream, config: StreamConfig, rng: np.random.Generator) -> Holding:
    """The client of each row, for one seed.

    If rows belong to people, whole people are assigned, and a client may get no rows.
    """
    rows, clients = stream.train, config.clients or stream.clients
    if stream.partition == "given":
        if rows.clients is None:
            raise ValueError("rows.clients must give the client of every row")
        return rows.clients, np.arange(len(rows))
    if stream.partition == "task":
        return _within_tasks(stream, clients, rng)
    alpha = config.alpha or stream.alpha
    kinds = rows.tasks * len(stream.labels) + rows.labels
    if rows.people is None:
        owners = dirichlet_partition(kinds, clients, alpha, rng, config.min_rows)
    else:
        people, first = np.unique(rows.people, return_index=True)
        of_people = dirichlet_partition(kinds[first], clients, alpha, rng, min_rows=0)
        owners = of_people[np.searchsorted(people, rows.people)]
    return owners, np.arange(len(rows))


def _within_tasks(stream: Stream, clients: int, rng: np.random.Generator) -> Holding:
    """Every client holds rows of one task: client i of task i mod T."""
    tasks = len(stream.tasks)
    if clients < tasks:
        raise ConfigError(
            f"stream {stream.name!r} has {tasks} tasks and every client holds rows of one "
            f"task: --clients must be at least {tasks}, not {clients}"
        )
    parts = [
        _of_task(stream.train, task, np.arange(task, clients, tasks), clients, stream.clients, rng)
        for task in range(tasks)
    ]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _of_task(
    rows: Rows,
    task: int,
    task_clients: IntArray,
    clients: int,
    reported: int,
    rng: np.random.Generator,
) -> Holding:
    """The rows of one task among its clients: people in turn, or draws with replacement.

    clients: the number of all clients; reported: the number in the stream's reported scores.
    """
    of_task = rng.permutation(np.flatnonzero(rows.tasks == task))
    if clients <= reported:
        people = np.arange(len(rows)) if rows.people is None else rows.people
        _, first, person = np.unique(people[of_task], return_index=True, return_inverse=True)
        turn = np.argsort(np.argsort(first))  # people in the order of the permutation
        return task_clients[turn[person] % len(task_clients)], of_task
    size = min(RESAMPLED_ROWS, len(of_task))
    drawn = rng.choice(of_task, size=(len(task_clients), size))
    return np.repeat(task_clients, size), drawn.ravel()


def dirichlet_partition(
    labels: IntArray,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_rows: int = 2,
    retries: int = 100,
) -> IntArray:
    """The client (n,) of each row: each label's rows are split by shares ~ Dirichlet(alpha).

    Every label (``labels`` is (n,)) draws its own shares over the clients; its rows are shuffled
    and cut accordingly. Small ``alpha`` means clients that know few labels, large ``alpha`` means
    equal clients. The whole partition is redrawn until every client holds ``min_rows`` rows, at
    most ``retries`` times. The same generator state gives the same partition.
    """
    _check(labels, clients, alpha, min_rows, retries)
    sizes = np.zeros(clients, dtype=np.int64)
    if len(labels) >= clients * min_rows:
        for _ in range(retries):
            client_of_row = _draw(labels, clients, alpha, rng)
            sizes = np.bincount(client_of_row, minlength=clients)
            if sizes.min() >= min_rows:
                return client_of_row
    raise DataError(_too_few(sizes, len(labels), alpha, min_rows, retries))


def describe_partition(
    client_of_row: IntArray, labels: IntArray, clients: int
) -> dict[str, dict[str, float]]:
    """Realised sizes: min, median and max of rows per client and of labels per client.

    For simulations only: in a federation these numbers are private and cannot be published
    without a privacy charge.
    """
    _, label_of_row = np.unique(labels, return_inverse=True)
    counts = np.zeros((clients, int(label_of_row.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(counts, (client_of_row, label_of_row), 1)
    return {
        "rows_per_client": _spread(counts.sum(axis=1)),
        "labels_per_client": _spread((counts > 0).sum(axis=1)),
    }


def _draw(labels: IntArray, clients: int, alpha: float, rng: np.random.Generator) -> IntArray:
    """One random partition (n,), without any condition on sizes."""
    client_of_row = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for client, part in enumerate(np.split(rows, cuts)):
            client_of_row[part] = client
    return client_of_row


def _spread(values: IntArray) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "median": float(np.median(values)),
        "max": float(values.max()),
    }


def _check(labels: IntArray, clients: int, alpha: float, min_rows: int, retries: int) -> None:
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (n,), one label per row, not {labels.shape}")
    if retries < 1:
        raise ValueError(f"retries must be at least 1, not {retries}")
    if clients < 1:
        raise ConfigError(f"--clients must be at least 1, not {clients}")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"--alpha must be a positive number, not {alpha}")
    if min_rows < 0:
        raise ConfigError(f"--min-rows must not be negative, not {min_rows}")


def _too_few(sizes: IntArray, rows: int, alpha: float, min_rows: int, retries: int) -> str:
    remedy = "use fewer --clients, a larger --alpha, or --min-rows 0"
    if rows < len(sizes) * min_rows:
        return (
            f"{rows} rows are not enough for {len(sizes)} clients with at least {min_rows} "
            f"rows each; {remedy}"
        )
    client = int(sizes.argmin())
    return (
        f"client {client} held {sizes[client]} rows, fewer than {min_rows}, in the last of "
        f"{retries} partitions of {rows} rows over {len(sizes)} clients at alpha {alpha:g}; "
        f"{remedy}"
    )

"""Validate a data file against its declaration before training.

Counts of private rows are private: a report is printed for the data holder and never stored in a
run directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from cslr.data.own.declaration import Declaration
from cslr.data.own.load import Gathered, gather
from cslr.data.own.parse.labels import Known
from cslr.data.own.parse.problems import described
from cslr.data.own.parse.row import OwnRow
from cslr.data.own.people import typical
from cslr.privacy.plan import promise_warnings

__all__ = ["NOTICE", "Report", "TaskCounts", "check"]

NOTICE: Final = "This report contains exact counts of private rows: do not publish it."
_MOST_ALIKE: Final = 5
"""Pairs of people with similar names that are reported at most."""


@dataclass(frozen=True)
class TaskCounts:
    """The rows of one task, and how often each of its labels occurs in them."""

    name: str
    train: int
    test: int
    clients: int
    """Clients with train rows of this task."""
    train_labels: Mapping[str, int]
    test_labels: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """The result of validating a file against its declaration. Private."""

    file: str
    name: str
    family: str
    registered: int  # N
    clients: int
    """Clients with rows."""
    rows_per_client: tuple[int, float, int]
    """Fewest, median and most train rows of a client with train rows."""
    clients_in_several_tasks: int
    people: int
    unit: str
    """The unit of privacy: client or person."""
    registered_people: int | None
    """The declared number of people if a person is the unit, else None."""
    tasks: tuple[TaskCounts, ...]
    problems: tuple[str, ...]
    """The first problems, with file and line."""
    totals: Mapping[str, int]
    """Problems by kind."""
    findings: tuple[str, ...]
    """What prevents a run from starting."""
    remarks: tuple[str, ...]
    """What is allowed but may be a mistake."""

    @property
    def ready(self) -> bool:
        """Whether the file can be used for training as it is."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        low, middle, high = self.rows_per_client
        spread = {"min": low, "median": middle, "max": high}
        plain = asdict(self) | {"rows_per_client": spread}
        return {"notice": NOTICE, "ready": self.ready, **plain}

    def as_lines(self) -> list[str]:
        """The report as lines of text."""
        low, middle, high = self.rows_per_client
        lines = [
            NOTICE,
            "",
            f"{self.file}: {self.name}, {self.family}",
            f"clients with rows: {self.clients} of {self.registered} registered",
            f"train rows per client: {low} to {high}, median {middle:g}",
            f"clients in several tasks: {self.clients_in_several_tasks} (allowed)",
        ]
        if self.registered_people is not None:
            lines.append(
                f"people with rows: {self.people} of {self.registered_people} registered; one "
                "person is the unit of privacy"
            )
        elif self.people:
            lines.append(f"people: {self.people}")
        for task in self.tasks:
            lines += _task_lines(task)
        if self.totals:
            kinds = ", ".join(f"{kind} {count}" for kind, count in self.totals.items())
            lines += ["", f"bad rows: {sum(self.totals.values())} ({kinds})"]
            lines += [f"  {problem}" for problem in self.problems]
            unlisted = sum(self.totals.values()) - len(self.problems)
            lines += [f"  ... and {unlisted} more"] if unlisted else []
        lines += ["", *[f"note: {remark}" for remark in self.remarks]] if self.remarks else []
        lines += ["", *[f"to do: {finding}" for finding in self.findings]]
        return [*lines, "ready: " + ("yes" if self.ready else "no")]


def check(data: Path, declaration: Declaration, skip_bad_rows: bool = False) -> Report:
    """Read the whole file and report its contents; the declaration may still be a draft.

    skip_bad_rows: whether the run will skip bad rows, so that they do not count as errors.
    """
    gathered = gather(data, declaration, stop_early=False)
    declared = Known.of(declaration)
    train = [row for row in gathered.rows if not row.test]
    sizes = sorted(Counter(row.client for row in train).values()) or [0]
    pairs = {(row.client, row.task) for row in train}
    spread = Counter(client for client, _ in pairs)
    tasks = tuple(_task_counts(declared, number, gathered) for number in range(len(declared.tasks)))
    privacy = declaration.privacy
    weak = promise_warnings(privacy.epsilon, privacy.delta, declaration.units, privacy.unit)
    return Report(
        file=str(data),
        name=declaration.name,
        family=declaration.family,
        registered=declaration.clients,
        clients=len(gathered.clients),
        rows_per_client=(sizes[0], float(median(sizes)), sizes[-1]),
        clients_in_several_tasks=sum(count > 1 for count in spread.values()),
        people=len(gathered.people),
        unit=declaration.privacy.unit,
        registered_people=declaration.people,
        tasks=tasks,
        problems=tuple(described(data, problem) for problem in gathered.problems),
        totals=dict(sorted(gathered.totals.items())),
        findings=_findings(declaration, gathered, bool(train), skip_bad_rows),
        remarks=(
            *_remarks(tasks),
            *_alike_units(declaration, gathered),
            *_of_people(declaration, train),
            *weak,
        ),
    )


def _task_counts(declared: Known, number: int, gathered: Gathered) -> TaskCounts:
    parts = [
        [row for row in gathered.rows if row.task == number and row.test == test]
        for test in (False, True)
    ]
    train, test = parts
    return TaskCounts(
        name=declared.tasks[number].name,
        train=len(train),
        test=len(test),
        clients=len({row.client for row in train}),
        train_labels=_label_counts(declared, number, train),
        test_labels=_label_counts(declared, number, test),
    )


def _label_counts(declared: Known, task: int, rows: list[OwnRow]) -> dict[str, int]:
    """How often each label of a task occurs: rows that have it, or entities in tagging."""
    counts = Counter(value for row in rows for value in row.answer)
    if declared.declaration.family != "tagging":
        return {declared.labels[label].name: counts[label] for label in declared.tasks[task].labels}
    types = [label for label in declared.tasks[task].labels if label]
    return {declared.labels[label].name: counts[2 * label - 1] for label in types}


def _findings(
    declaration: Declaration, gathered: Gathered, has_train: bool, skip_bad_rows: bool
) -> tuple[str, ...]:
    findings = list(declaration.missing())
    if len(gathered.clients) > declaration.clients:
        findings.append(
            f"clients = {declaration.clients} is declared, but {len(gathered.clients)} "
            "clients have rows: set clients to the number of registered clients"
        )
    if declaration.people is not None and len(gathered.people) > declaration.people:
        findings.append(
            f"people = {declaration.people} is declared, but {len(gathered.people)} "
            "people have rows: set people to the number of registered people"
        )
    if gathered.totals and not skip_bad_rows:
        findings.append("correct the bad rows, or leave them out with --skip-bad-rows")
    if gathered.shared:
        findings.append(
            "correct the rows of persons that occur in too many clients: they cannot be skipped"
        )
    if gathered.unclear:
        findings.append(
            "correct the places where rows end unclearly, or whose they are: they cannot be skipped"
        )
    if gathered.torn and declaration.test_rows == "public":
        findings.append(
            "correct the rows of persons in both train and test: as test_rows = 'public', they "
            "cannot be skipped"
        )
    if not has_train:
        findings.append("there are no train rows")
    return tuple(findings)


def _remarks(tasks: tuple[TaskCounts, ...]) -> tuple[str, ...]:
    remarks = []
    if any(task.train for task in tasks) and not any(task.test for task in tasks):
        remarks.append(
            "no test rows: a run can train and predict, but has no scores; declare "
            "test_share = 0.2 to hold rows back for them"
        )
    for task in tasks:
        if not task.train:
            remarks.append(f"task {task.name!r} has no train rows: its release will be noise only")
        if not task.test and any(other.test for other in tasks):
            remarks.append(f"task {task.name!r} has no test rows: it has no score")
        absent = [name for name, count in task.train_labels.items() if not count]
        if task.train and absent:
            remarks.append(f"task {task.name!r} has no train rows of {', '.join(absent)}")
    return tuple(remarks)


def _alike_units(declaration: Declaration, gathered: Gathered) -> Iterator[str]:
    """Names that differ only in spelling: one unit under two names is protected less."""
    yield from _alike("clients", gathered.clients)
    if declaration.privacy.unit == "person":
        yield from islice(_alike("people", gathered.people), _MOST_ALIKE)


def _alike(what: str, names: tuple[str, ...]) -> Iterator[str]:
    spelled: dict[str, str] = {}
    for name in names:
        first = spelled.setdefault(" ".join(name.casefold().split()), name)
        if first != name:
            yield (
                f"{what} {first!r} and {name!r} count as two; if they are the same, give them "
                "the same name"
            )


def _of_people(declaration: Declaration, train: list[OwnRow]) -> Iterator[str]:
    """Remarks if people have more tasks, or other numbers of rows, than is declared."""
    if declaration.privacy.unit != "person" or not train:
        return
    rows, tasks = typical(Counter((row.person, row.task) for row in train if row.person))
    if tasks > declaration.tasks_per_person:
        yield (
            f"half of the people or more have rows of {tasks} tasks or more, and each contributes "
            f"to {declaration.tasks_per_person}: declare tasks_per_person if that is expected of "
            "people like these (a public number), or the other rows are not used"
        )
    if max(rows, declaration.rows_per_person) >= 2 * min(rows, declaration.rows_per_person):
        yield (
            f"people have about {rows} rows of a task, and rows_per_person = "
            f"{declaration.rows_per_person}: sums are scaled for that many, so declare what is "
            "expected of people like these (a public number)"
        )


def _task_lines(task: TaskCounts) -> list[str]:
    def shown(labels: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in labels.items())

    return [
        f"task {task.name}: {task.train} train rows of {task.clients} clients, "
        f"{task.test} test rows",
        f"  train: {shown(task.train_labels)}",
        f"  test:  {shown(task.test_labels)}",
    ]

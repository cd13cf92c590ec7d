"""Parse label cells into label numbers, for each family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cslr.data.own.declaration import Declaration
from cslr.data.own.parse.cells import name_in, names_in, text_in, words_in
from cslr.data.own.parse.problems import Unfit, quoted
from cslr.data.own.reader.raw import Raw
from cslr.data.stream import Label, Task
from cslr.data.streams.conll import tag_numbers

__all__ = ["Known", "parse_answer"]

_OUTSIDE: Final = Label("O", "A word that is no part of a name.")


@dataclass(frozen=True)
class Known:
    """A declaration with lookup tables for labels and tasks."""

    declaration: Declaration
    labels: tuple[Label, ...]
    """In the order of the stream; for tagging O is the first."""
    tasks: tuple[Task, ...]
    label_numbers: Mapping[str, int]
    task_numbers: Mapping[str, int]

    @classmethod
    def of(cls, declaration: Declaration) -> Known:
        """The labels and tasks of a declaration, numbered in its order."""
        first = (_OUTSIDE,) if declaration.family == "tagging" else ()
        labels = first + tuple(
            Label(label.name, label.description, label.examples) for label in declaration.labels
        )
        numbers = {label.name: number for number, label in enumerate(labels)}
        always = tuple(range(len(first)))
        tasks = tuple(
            Task(
                task.name,
                always + tuple(numbers[name] for name in task.labels)
                if task.labels
                else tuple(range(len(labels))),
            )
            for task in declaration.tasks
        )
        places = {task.name: number for number, task in enumerate(tasks)}
        return cls(declaration, labels, tasks, numbers, places)


def parse_answer(row: Raw, declared: Known, task: Task) -> tuple[str, tuple[int, ...]]:
    """The text of a row and its label numbers."""
    if declared.declaration.family == "tagging":
        return _tagged(row, declared, task)
    text = text_in(row, declared.declaration.columns.text)
    if declared.declaration.family == "intents":
        return text, _intents(row, declared, task)
    return text, _classified(row, declared, task)


def _classified(row: Raw, declared: Known, task: Task) -> tuple[int, ...]:
    column = declared.declaration.columns.label
    cell = row.cells.get(column)
    if isinstance(cell, list):
        names = names_in(row, column, declared.declaration.separator)
    else:
        name = name_in(row, column)
        names = (name,) if name else ()
    if len(names) > 1:
        raise Unfit("several labels", f"{len(names)} labels; classification has one per row")
    return (_main(names, declared, task),)


def _intents(row: Raw, declared: Known, task: Task) -> tuple[int, ...]:
    """The first is the main one and must be of the task; others may be of any task."""
    column = declared.declaration.columns.label
    names = tuple(dict.fromkeys(names_in(row, column, declared.declaration.separator)))
    main = _main(names, declared, task)
    return (main, *[_number(name, declared) for name in names[1:]])


def _main(names: tuple[str, ...], declared: Known, task: Task) -> int:
    if not names:
        raise Unfit("no label", "the row has no label; give it one or remove it")
    number = _number(names[0], declared)
    if number not in task.labels:
        raise Unfit(
            "label not of the task",
            f"label {quoted(names[0])} does not belong to task {quoted(task.name)}; declare it "
            f"there or move the row",
        )
    return number


def _number(name: str, declared: Known) -> int:
    number = declared.label_numbers.get(name)
    if number is None:
        several = declared.declaration.separator in name
        hint = '; for several labels per row declare family = "intents"' if several else ""
        raise Unfit("undeclared label", f"label {quoted(name)} is not declared{hint}")
    return number


def _tagged(row: Raw, declared: Known, task: Task) -> tuple[str, tuple[int, ...]]:
    columns = declared.declaration.columns
    words = words_in(row, columns.text)
    tags = names_in(row, columns.label, declared.declaration.separator)
    if len(tags) != len(words):
        by = quoted(declared.declaration.separator)
        what = f"{len(tags)} tags for {len(words)} words; tags are separated by {by} (separator)"
        raise Unfit("words and tags", what)
    _check_bio(tags)
    types = [label.name for label in declared.labels]
    for position, tag in enumerate(tags, start=1):
        if tag != "O" and tag.partition("-")[2] not in types[1:]:
            what = f"tag {quoted(tag)} of word {position} has no declared type"
            raise Unfit("undeclared label", what)
    numbers = tag_numbers(tags, types)
    for tag, number in zip(tags, numbers, strict=True):
        if (number + 1) // 2 not in task.labels:
            raise Unfit(
                "label not of the task",
                f"tag {quoted(tag)} does not belong to task {quoted(task.name)}; declare it there "
                f"or make it O",
            )
    return " ".join(words), numbers


def _check_bio(tags: tuple[str, ...]) -> None:
    """Check that an I- tag follows a B- or I- tag of the same type."""
    before = "O"
    for number, tag in enumerate(tags, start=1):
        kind, _, name = tag.partition("-")
        if tag != "O" and (kind not in ("B", "I") or not name):
            raise Unfit("not BIO", f"tag {quoted(tag)} of word {number} is not O, B-TYPE or I-TYPE")
        if kind == "I" and before not in (f"B-{name}", f"I-{name}"):
            what = (
                f"tag {quoted(tag)} of word {number} does not continue an entity; begin the entity "
                f"with B-{name}"
            )
            raise Unfit("not BIO", what)
        before = tag

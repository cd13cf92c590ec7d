"""MultiWOZ-Intent: the intents of users of a travel desk, service by service; several per turn.

Read from a data directory:

    multiwoz/train.jsonl.gz, multiwoz/test.jsonl.gz  {"text", "intent", "intents", "dialogue_id",
                                                      "turn", "fold"} a line: one turn of a user
    anchors/wikipedia_sentences.txt.gz               public sentences in hash order, one a line

A task is a service and has two labels, <Service>-Inform and <Service>-Request. Turns whose
``intent`` is NONE or general-* are left out. ``intent`` is a row's main label and determines its
task; the known ones of ``intents`` are its further labels (train rows have none: one intent a
turn). Train and test are separated by ``fold``, not by file: the official test dialogues have no
police and no hospital, so the train file contains test dialogues too. The dev file is never opened.

A dialogue belongs to one person and is never split. Dialogues of a fold are ordered by
SHA-256("cslr/multiwoz/1" NUL dialogue id), which does not depend on seeds, file order or results.
For each service the first dialogues that have a turn about it are chosen, with all their turns:

    subset      of each service the first 220 train dialogues, but no more than three fifths of
                what it has, and the first 70 test dialogues
    held-out    train dialogues outside the subset only: of each service the first 100, but no more
                than three fifths, to train on, and of the others the first 50 to test on
    all         every turn of the seven services in the folds train and test

Settings are chosen on ``held-out``; it never opens the test file and skips the fold test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cslr.data.stream import Row, Stream, Task, as_rows, declared_labels
from cslr.data.streams.data_directory import (
    Sizes,
    data_directory,
    gzip_lines,
    hash_of,
    leaving_some,
    public_sentences,
    unknown_rows,
)
from cslr.errors import DataError

__all__ = ["SERVICES", "load_multiwoz", "multiwoz_rows"]

SERVICES = ("attraction", "hospital", "hotel", "police", "restaurant", "taxi", "train")

_INTENTS = {
    f"{service.capitalize()}-{act}": 2 * task + number
    for task, service in enumerate(SERVICES)
    for number, act in enumerate(("Inform", "Request"))
}
_PREFIX = b"cslr/multiwoz/1"
_REPORTED = Sizes(220, 70, held_out_train=100, held_out_test=50)

Dialogues = dict[str, list[Row]]
"""The turns of each dialogue in their order; dialogues in hash order."""


def load_multiwoz(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    sizes: Sizes = _REPORTED,
) -> Stream:
    """MultiWOZ-Intent from the data directory ``data``: 7 tasks of two labels, several a row."""
    directory = data_directory(data, "multiwoz", "multiwoz")
    train, test = multiwoz_rows(directory / "multiwoz", rows, sizes)
    return Stream(
        name="multiwoz",
        labels=declared_labels("multiwoz.toml"),
        tasks=tuple(Task(name, (2 * task, 2 * task + 1)) for task, name in enumerate(SERVICES)),
        train=as_rows(train),
        test=as_rows(test),
        public=public_sentences(directory, sizes.public),
        scenarios=("class", "task"),
        clients=40,
        alpha=0.5,
        family="intents",
        rows_per_person=3,
        person="dialogue",
    )


def multiwoz_rows(folder: Path, rows: str, sizes: Sizes) -> tuple[list[Row], list[Row]]:
    """The train and the test rows that ``rows`` stands for; ``person`` is the dialogue."""
    if rows not in ("subset", "held-out", "all"):
        raise unknown_rows(rows)
    turns = _read(folder / "train.jsonl.gz", ("train", "test"))
    train = _dialogues(turns, "train")
    if rows == "held-out":
        rest = _without(train, _first(train, sizes.train, folder, leave_some=True))
        train = _first(rest, sizes.held_out_train, folder, leave_some=True)
        return _turns(train), _turns(_first(_without(rest, train), sizes.held_out_test, folder))
    test = _dialogues(turns + _read(folder / "test.jsonl.gz", ("test",)), "test")
    if torn := train.keys() & test.keys():
        raise DataError(
            f"{folder}: dialogue {min(torn)} has turns in both folds, train and test; "
            "download the files again"
        )
    if rows == "subset":
        train = _first(train, sizes.train, folder, leave_some=True)
        test = _first(test, sizes.test, folder)
    return _turns(train), _turns(test)


@dataclass(frozen=True)
class _Turn:
    number: int
    fold: str
    row: Row


def _dialogues(turns: list[_Turn], fold: str) -> Dialogues:
    dialogues: Dialogues = {}
    of_fold = [turn for turn in turns if turn.fold == fold]
    for turn in sorted(of_fold, key=lambda turn: (hash_of(_PREFIX, turn.row.person), turn.number)):
        dialogues.setdefault(turn.row.person, []).append(turn.row)
    return dialogues


def _turns(dialogues: Dialogues) -> list[Row]:
    return [row for rows in dialogues.values() for row in rows]


def _without(dialogues: Dialogues, others: Dialogues) -> Dialogues:
    return {name: rows for name, rows in dialogues.items() if name not in others}


def _first(
    dialogues: Dialogues, count: int, folder: Path, *, leave_some: bool = False
) -> Dialogues:
    """For each service the first ``count`` dialogues with a turn about it, with all turns."""
    chosen: set[str] = set()
    for task, service in enumerate(SERVICES):
        of_task = [
            name for name, rows in dialogues.items() if any(row.task == task for row in rows)
        ]
        if not of_task:
            raise DataError(
                f"{folder} has too few dialogues with {service} for this choice of rows; use "
                "the complete files, or --rows all"
            )
        chosen.update(of_task[: leaving_some(count, len(of_task)) if leave_some else count])
    return {name: rows for name, rows in dialogues.items() if name in chosen}


def _read(path: Path, folds: tuple[str, ...]) -> list[_Turn]:
    """Every turn of the seven services in one file, checked line by line."""
    lines = enumerate(gzip_lines(path), start=1)
    turns = (_turn(line, folds, f"{path}, line {number}") for number, line in lines)
    return [turn for turn in turns if turn is not None]


def _turn(line: str, folds: tuple[str, ...], where: str) -> _Turn | None:
    """The turn of one line; None if it is about no service."""
    try:
        fields = json.loads(line)
        text, intent, dialogue = fields["text"], fields["intent"], fields["dialogue_id"]
        intents, number, fold = fields["intents"], fields["turn"], fields["fold"]
        if not all(isinstance(value, str) for value in (text, intent, dialogue, *intents)):
            raise TypeError("text, intent, intents and dialogue_id must be strings")
        if type(number) is not int or type(intents) is not list:
            raise TypeError("turn must be a number and intents a list")
        (text + dialogue).encode()  # raises an error for a lone surrogate
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{where}: not a turn with text, intent, intents, dialogue_id, turn and fold "
            f"({type(error).__name__}: {error}); download the file again"
        ) from error
    if fold not in folds:
        raise DataError(
            f"{where}: fold {fold!r}, expected {' or '.join(folds)} in this file; download it again"
        )
    if intent == "NONE" or intent.startswith("general-"):
        return None
    if intent not in _INTENTS:
        raise DataError(f"{where}: unknown intent {intent!r}; expected {', '.join(_INTENTS)}")
    if not text.strip() or not dialogue:
        raise DataError(f"{where}: the text or the dialogue_id is empty; download the file again")
    label = _INTENTS[intent]
    others = dict.fromkeys(_INTENTS[other] for other in intents if other in _INTENTS)
    others.pop(label, None)
    return _Turn(number, fold, Row(text, label, label // 2, tuple(others), dialogue))

"""MultiWOZ 2.2: ``multiwoz/{train,dev,test}.jsonl.gz``, a line for each turn of a user.

    text            what the user says
    intents         the acts of the turn: Inform and Request of the seven services, as annotated,
                    then general ones ("general-thank"); other acts (a bus) are skipped;
                    ["NONE"] if there is none
    intent, domain  the first of these, and the part before its hyphen in lower case
    dialogue_id     as published, without ".json"
    turn            its number in the dialogue, from 0; the user has the even ones
    split, fold     the official split, and the one to use: see below

The official dev and test dialogues have hardly any turn about the police or a hospital. So of the
train dialogues that have one, those whose SHA-256(dialogue_id) is a multiple of 4 (a quarter) have
the ``fold`` test. They stay in the file of their split.

``pfb30/multi_woz_v22`` has a loading script, which ``datasets`` no longer runs. Its Parquet copy on
the branch refs/convert/parquet is read instead, configuration ``v2.2``: ``dialogue_id`` and
``turns`` of ``turn_id``, ``speaker`` (0 or "USER"), ``utterance`` and ``dialogue_acts``, of which
``dialog_act`` has ``act_type``. A directory may hold that branch, or the official files:
``dialog_acts.json`` beside ``train/``, ``dev/`` and ``test/`` with ``dialogues_*.json``. Names of
files and columns were taken from the hub's pages and the loading script; both forms were tested on
invented dialogues. For train and dev the hub has all acts, where other copies have one per turn.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cslr.data.hub.columns import Lines, Row, column, json_lines
from cslr.data.hub.library import split_of, splits
from cslr.errors import DataError

__all__ = ["multiwoz_files"]

_BY_BRANCH: Final = "pfb30/multi_woz_v22"
_BRANCH: Final = "refs/convert/parquet"
_CONFIG: Final = "v2.2"
_PARTS: Final = ("test", "dev", "train")
_RARE: Final = frozenset({"police", "hospital"})
_USER: Final = ("USER", 0)
_NO_ACT: Final = "NONE"
_SERVICE_ACT = re.compile(
    r"(?:Attraction|Hospital|Hotel|Police|Restaurant|Taxi|Train)-(?:Inform|Request)"
)


@dataclass(frozen=True)
class _Turn:
    number: int
    text: str
    acts: tuple[str, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(act.partition("-")[0].lower() for act in self.acts)


@dataclass(frozen=True)
class _Dialogue:
    name: str
    turns: tuple[_Turn, ...]

    @property
    def is_test_fold(self) -> bool:
        """Whether a train dialogue belongs to the fold test."""
        rare = any(not _RARE.isdisjoint(turn.domains) for turn in self.turns)
        return rare and int.from_bytes(hashlib.sha256(self.name.encode()).digest()) % 4 == 0


def multiwoz_files(source: str) -> dict[str, Lines]:
    """Lines by file. A dialogue is kept once, test before dev before train."""
    seen: set[str] = set()
    lines: dict[str, Lines] = {}
    for part, dialogues in _readings(source):
        rows: list[Row] = []
        for dialogue in dialogues:
            if dialogue.name not in seen:
                seen.add(dialogue.name)
                rows += _rows(dialogue, part)
        if all(row["intent"] == _NO_ACT for row in rows):
            raise DataError(
                f"{source}: no user turn with a dialogue act in {part}; give a complete copy "
                "with --source"
            )
        lines[part] = json_lines(rows)
    return {f"multiwoz/{part}.jsonl.gz": lines[part] for part in reversed(_PARTS)}


def _rows(dialogue: _Dialogue, part: str) -> Iterator[Row]:
    fold = "test" if part == "train" and dialogue.is_test_fold else part
    for turn in dialogue.turns:
        yield {
            "text": turn.text,
            "domain": "none" if turn.acts[0] == _NO_ACT else turn.domains[0],
            "intent": turn.acts[0],
            "intents": list(turn.acts),
            "dialogue_id": dialogue.name,
            "turn": turn.number,
            "split": part,
            "fold": fold,
        }


def _readings(source: str) -> Iterator[tuple[str, Iterable[_Dialogue]]]:
    folder = Path(source)
    if (folder / "dialog_acts.json").is_file():
        acts = _json(folder / "dialog_acts.json")
        for part in _PARTS:
            yield part, _official(folder, part, acts)
        return
    arguments: dict[str, Any] = {}
    if source == _BY_BRANCH or (folder / _CONFIG).is_dir():
        arguments["data_files"] = {
            name: f"{_CONFIG}/{name}/*.parquet" for name in ("train", "validation", "test")
        }
    if source == _BY_BRANCH:
        arguments["revision"] = _BRANCH
    source_splits = splits(source, **arguments)
    for part in _PARTS:
        names = ("dev", "validation") if part == "dev" else (part,)
        rows = split_of(source_splits, source, *names)
        yield part, (_dialogue(row, f"{source}, {part}") for row in rows)


def _dialogue(row: Row, source: str) -> _Dialogue:
    """A dialogue from a row of the hub's data set."""
    name = row[column(row, source, "dialogue_id")]
    turns = _records(row[column(row, source, "turns")])
    return _with_users(name, ((turn, _act_types(turn, source)) for turn in turns), source)


def _act_types(turn: Row, source: str) -> list[str]:
    acts = turn[column(turn, source, "dialogue_acts")]
    if not acts:
        return []
    listed = _records(acts[column(acts, source, "dialog_act")])
    return [act[column(act, source, "act_type")] for act in listed]


def _official(folder: Path, part: str, acts: Any) -> Iterator[_Dialogue]:
    """The dialogues of the official files; the acts are in a file of their own."""
    for path in sorted((folder / part).glob("dialogues_*.json")):
        for dialogue in _json(path):
            name = dialogue[column(dialogue, str(path), "dialogue_id")]
            turn_acts = acts.get(name, {})
            turns = dialogue[column(dialogue, str(path), "turns")]
            annotated = (
                (turn, list(turn_acts.get(str(turn.get("turn_id")), {}).get("dialog_act", {})))
                for turn in turns
            )
            yield _with_users(name, annotated, str(path))


def _with_users(name: str, turns: Iterable[tuple[Row, list[str]]], source: str) -> _Dialogue:
    """The dialogue with the turns of its user only."""
    kept = []
    for turn, acts in turns:
        number = str(turn[column(turn, source, "turn_id")])
        if not number.isdecimal():
            raise DataError(f"{source}: dialogue {name} has a turn {number!r}, not a number")
        text = " ".join((turn[column(turn, source, "utterance")] or "").split())
        if turn[column(turn, source, "speaker")] in _USER and text:
            kept.append(_Turn(int(number), text, _intents(acts)))
    return _Dialogue(name.removesuffix(".json"), tuple(kept))


def _intents(acts: list[str]) -> tuple[str, ...]:
    """The acts about services, then the general ones, each once."""
    services = [act for act in acts if _SERVICE_ACT.fullmatch(act)]
    general = [act for act in acts if act.startswith("general-")]
    return tuple(dict.fromkeys(services + general)) or (_NO_ACT,)


def _records(value: Any) -> list[Row]:
    """A list of records, which ``datasets`` may give as a record of lists."""
    if not isinstance(value, dict):
        return list(value or ())
    return [dict(zip(value, fields, strict=True)) for fields in zip(*value.values(), strict=True)]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); download the file again") from error

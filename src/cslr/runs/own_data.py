"""The user's own rows in a run: settings from their declaration, and notices for their holder.

Privacy is always enforced for own rows: the budget is the declared one, and a pointer file next to
the rows names the ledger that all runs on them share.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cslr.config import Config, Evaluate, StreamConfig, with_settings
from cslr.data.own import (
    OF_PEOPLE,
    Declaration,
    declaration_path,
    distinct_public,
    few_public,
    load_declaration,
    load_own,
    overlapping,
    read_public,
)
from cslr.data.own.public_text import FEWEST
from cslr.data.own.reader.file_format import format_of, stem_of
from cslr.data.own.reader.lines import lines_of
from cslr.data.streams import Stream
from cslr.errors import ConfigError, DataError
from cslr.privacy.ledger.fingerprints import OwnRows
from cslr.privacy.ledger.pointer import ledger_directory

__all__ = [
    "complete",
    "declaration_of",
    "load_own_stream",
    "pointer_beside",
    "public_warning",
    "rows_of",
]

MOST_PUBLIC: Final = 10_000
"""The most public sentences that are read, from the beginning of the file."""
_SHOWN: Final = 5


def declaration_of(stream: StreamConfig) -> Declaration:
    """The declaration of own rows."""
    return load_declaration(_files(stream)[1])


def complete(config: Config, declaration: Declaration) -> Config:
    """The configuration with all settings that the declaration of own rows determines.

    Contradicting settings are refused; a complete configuration is returned unchanged.
    """
    data, path = _files(config.stream)
    declaration.require_confirmed(path)
    _refuse_contradictions(config, declaration, path)
    own_epsilon = "epsilon" in config.privacy.model_fields_set
    settled: dict[str, Any] = {
        "stream.name": declaration.name,
        "stream.scenario": declaration.scenario,
        "stream.declaration": path,
        "stream.public": _public(config.stream, declaration, path),
        "privacy.epsilon": config.privacy.epsilon if own_epsilon else declaration.privacy.epsilon,
        "privacy.delta": declaration.privacy.delta,
        "privacy.adversary": declaration.privacy.adversary,
        "privacy.unit": declaration.privacy.unit,
    }
    if declaration.public_rows and _wants_simulation(config):
        return with_settings(config, {**settled, "privacy.mode": "simulated"})
    enforced = {
        "privacy.mode": "enforced",
        "privacy.budget": declaration.privacy.epsilon,
        "privacy.federation": _federation(config, _own_rows(data, declaration)),
        "privacy.evaluate": _evaluate(config, declaration, path),
    }
    return with_settings(config, {**settled, **enforced})


def _wants_simulation(config: Config) -> bool:
    """Whether the user asked for a simulation, which is never the default for own rows."""
    return "mode" in config.privacy.model_fields_set and config.privacy.mode == "simulated"


def load_own_stream(
    stream: StreamConfig, declaration: Declaration
) -> tuple[Stream, tuple[str, ...]]:
    """The stream of the rows that a complete configuration names, and notices about them.

    Notices depend on private rows: they are printed for the holder and never stored.
    """
    data, path = _files(stream)
    source = _public(stream, declaration, path)
    sentences = read_public(source)[:MOST_PUBLIC]
    loaded = load_own(data, declaration, sentences, skip_bad_rows=stream.rows == "valid")
    notices = []
    if loaded.skipped:
        kinds = ", ".join(f"{kind} {count}" for kind, count in loaded.skipped.items())
        notices.append(f"skipped {sum(loaded.skipped.values())} bad rows of {data} ({kinds})")
    texts = (*loaded.stream.train.texts, *loaded.stream.test.texts)
    shared = overlapping(loaded.stream.public, texts)
    if shared:
        notices.append(_shared(source, [sentences[index] for index in shared]))
    return loaded.stream, tuple(notices)


def public_warning(
    config: Config, sentences: tuple[str, ...], dimension: int, family: str
) -> str | None:
    """A warning if own rows have few public sentences; it does not depend on the rows."""
    if config.stream.public is None:
        return None
    directions = min(config.replay.directions, dimension)
    count = distinct_public(sentences, family)
    return few_public(config.stream.public, count, directions, family)


def rows_of(stream: StreamConfig, declaration: Declaration) -> OwnRows:
    """The own rows of a complete configuration, as their ledger identifies them."""
    data, _ = _files(stream)
    return _own_rows(data, declaration)


def pointer_beside(data: Path) -> Path:
    """The file that names the ledger of the rows in ``data``."""
    path = data.resolve()
    return OwnRows(path, stem_of(path), b"").pointer


def _own_rows(data: Path, declaration: Declaration) -> OwnRows:
    """The rows as their ledger identifies them: links resolved, and their declaration.

    Budget, unit, numbers of clients and people, the owner of test rows and the public sentences are
    left out of the declaration, because the rows stay the same when these change.
    """
    apart = {"privacy", "public", "public_rows", "confirmed", "test_rows", "clients", *OF_PEOPLE}
    declared = json.dumps(declaration.model_dump(mode="json", exclude=apart), sort_keys=True)
    path = data.resolve()
    return OwnRows(path, stem_of(path), declared.encode())


def _files(stream: StreamConfig) -> tuple[Path, Path]:
    """The rows and their declaration."""
    data = stream.data
    if data is None or not data.is_file():
        raise DataError(
            f"file {data} does not exist; give --data FILE with rows, or --data DIR with --stream"
        )
    format_of(data)
    return data, declaration_path(data, stream.declaration)


def _federation(config: Config, rows: OwnRows) -> Path:
    """The ledger directory of the rows, as a path like the one that the user gave."""
    given, data = config.privacy.federation, config.stream.data
    directory = ledger_directory(rows, given)
    if given is not None or data is None or data.is_symlink():
        return directory
    beside = data.with_name(rows.beside.name)  # relative if the path of the rows is
    return beside if beside.resolve() == directory.resolve() else directory


def _evaluate(config: Config, declaration: Declaration, path: Path) -> Evaluate:
    """``privacy.evaluate``: by default scores are stored only if test rows are declared public."""
    given, public = config.privacy.evaluate, declaration.test_rows == "public"
    if given == "private" and public:
        raise ConfigError(
            f"--evaluate private is for test rows of clients, but {path} declares test rows "
            "public; remove it"
        )
    if given == "private" and declaration.columns.split is None and declaration.test_share is None:
        raise ConfigError(
            f"--evaluate private: {path} declares no test rows; add columns.split or test_share, "
            "or use --evaluate none"
        )
    return given or ("stored" if public else "shown")


def _public(stream: StreamConfig, declaration: Declaration, path: Path) -> Path:
    path_given = stream.public or declaration.public
    if path_given is None:
        raise ConfigError(
            "your own data requires public sentences: give --anchors FILE, or public = "
            f'"FILE" in {path}. Use a text file of at least {FEWEST} sentences that contains '
            "no client's text; `cslr data fetch public DIR` downloads sentences from "
            "Wikipedia"
        )
    return path_given


def _refuse_contradictions(config: Config, declaration: Declaration, path: Path) -> None:
    """Refuse settings that contradict the declaration."""
    stream = config.stream
    if "name" in stream.model_fields_set and stream.name != declaration.name:
        raise ConfigError(
            f"--stream {stream.name} and --data {stream.data} are two data sets; keep one"
        )
    given = {
        "--clients": stream.clients is not None,
        "--alpha": stream.alpha is not None,
        "--rows": stream.rows not in ("subset", "valid"),
        "--min-rows": stream.min_rows != StreamConfig.model_fields["min_rows"].default,
        "stream.poisoning": stream.hostile > 0,
    }
    for flag, was_given in given.items():
        if was_given:
            raise ConfigError(
                f"{flag} is for simulated clients; the rows of {stream.data} name their clients, "
                f"and {path} declares their number. Remove it"
            )
    if stream.scenario not in (None, declaration.scenario):
        raise ConfigError(
            f"--scenario {stream.scenario} contradicts {path}, which declares "
            f"{declaration.scenario}; remove it"
        )
    _refuse_another_promise(config, declaration, path)


def _refuse_another_promise(config: Config, declaration: Declaration, path: Path) -> None:
    """Refuse privacy settings that contradict the declaration."""
    privacy = config.privacy
    if _wants_simulation(config):
        if not declaration.public_rows:
            raise ConfigError(
                "--privacy simulated is not allowed on your own data; remove it. Only data that "
                f"are public anyway may be declared so, public = true in {path}"
            )
        if privacy.federation is not None or privacy.evaluate in ("private", "shown"):
            raise ConfigError(
                "--federation and --evaluate shown or private are for enforced privacy; remove "
                "them, or --privacy simulated"
            )
    declared = declaration.privacy
    over = "epsilon" in privacy.model_fields_set and privacy.epsilon > declared.epsilon
    if over and not _wants_simulation(config):  # a simulation spends nothing
        raise ConfigError(
            f"--epsilon {privacy.epsilon:g} exceeds the budget of all runs on these rows, "
            f"epsilon = {declared.epsilon:g} in {path}"
        )
    if "delta" in privacy.model_fields_set and privacy.delta != declared.delta:
        raise ConfigError(
            f"--delta {privacy.delta:g} contradicts {path}, which declares {declared.delta:g}; "
            "remove it"
        )
    if "adversary" in privacy.model_fields_set and privacy.adversary != declared.adversary:
        raise ConfigError(
            f"--adversary {privacy.adversary} contradicts {path}, which declares epsilon = "
            f"{declared.epsilon:g} against {declared.adversary}; remove it"
        )
    if "unit" in privacy.model_fields_set and privacy.unit != declared.unit:
        raise ConfigError(
            f"--unit {privacy.unit}: {path} promises to hide one {declared.unit}, unit = "
            f"{declared.unit!r} in [privacy]"
        )
    if privacy.budget not in (None, declared.epsilon):
        raise ConfigError(
            f"privacy.budget = {privacy.budget:g} contradicts the budget declared in {path}; "
            "remove it"
        )


def _shared(source: Path, sentences: list[str]) -> str:
    """A notice about public sentences that also occur in clients' texts."""
    shared = set(sentences)
    lines = [line.number for line in lines_of(source) if line.text.strip() in shared]
    shown = ", ".join(map(str, lines[:_SHOWN])) + (", ..." if len(lines) > _SHOWN else "")
    return (
        f"warning: {len(sentences)} sentences of {source} also occur in clients' texts (line "
        f"{shown}). Public sentences are used without noise: remove these"
    )

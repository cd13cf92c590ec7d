"""The work of ``cslr data init`` and ``cslr data check``, without the command line."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cslr.data.own.check import Report, check
from cslr.data.own.declaration import declaration_path, load_declaration
from cslr.data.own.draft import Seen, draft_text, look
from cslr.data.own.parse.problems import described
from cslr.errors import ConfigError, DataError
from cslr.files import write_atomic

__all__ = ["Drafted", "check_report", "init_file"]


@dataclass(frozen=True)
class Drafted:
    """A draft that was written, and what was seen in the file."""

    path: Path
    seen: Seen
    before: Path | None
    """Where the earlier draft was moved to, if there was one."""

    def lines(self, data: Path) -> list[str]:
        """What was guessed and why, what was not found, and what could not be read."""
        seen = self.seen
        findings = [
            f"  {role:7} {guess.column!r}: {guess.in_full}" for role, guess in seen.guesses.items()
        ]
        missing = [f"  {role:7} not found" for role in _missing(seen)]
        counted = f"{len(seen.clients)} clients, {len(seen.labels)} labels"
        lines = ["Columns:", *findings, *missing, f"Found: {counted}, {_tasks(seen)}."]
        if seen.bad:
            shown = [f"  {described(data, problem)}" for problem in seen.problems]
            more = seen.bad - len(shown)
            lines += [f"Rows that cannot be read: {seen.bad}", *shown]
            lines += [f"  ... and {more} more"] if more else []
        if self.before is not None:
            lines.append(f"The earlier draft is kept as {self.before}.")
        return lines

    def next_step(self, data: Path, declaration: Path | None) -> str:
        """What the user has to do next, with the command to run."""
        flags = f" --declaration {shlex.quote(str(self.path))}" if declaration else ""
        file = shlex.quote(str(data))
        if missing := _missing(self.seen):
            columns = ", ".join(map(repr, self.seen.columns))
            named = "".join(f" --{role} COLUMN" for role in missing)
            return (
                f"Columns of the file: {columns}. Say which are meant:\n"
                f"  cslr data init {file}{flags}{named}"
            )
        return (
            f"Wrote the draft {self.path}. Everything in it becomes public: check and correct the "
            "guesses, describe every label, and set confirmed = true. This command says what is "
            f"left to do:\n  cslr data check {file}{flags}"
        )


def _missing(seen: Seen) -> list[str]:
    """Required roles for which no column was found."""
    return [role for role in ("text", "label", "client") if role not in seen.roles]


def _tasks(seen: Seen) -> str:
    return f"{len(seen.tasks)} tasks" if seen.tasks else "one task (no column of tasks)"


def init_file(
    data: Path, declaration: Path | None = None, given: Mapping[str, str] | None = None
) -> Drafted:
    """Write the draft beside the data, or to ``declaration``.

    An unconfirmed draft is replaced, and the earlier one is kept beside it; a confirmed declaration
    is not replaced. given: the columns that the user named, by role.
    """
    path = declaration_path(data, declaration)
    before = None
    if path.exists():
        if not _is_draft(path):
            raise ConfigError(
                f"{path} exists already and is no draft; edit it, or remove it to draft a new one"
            )
        before = path.with_name(f"{path.name}~")
    seen = look(data, given)
    if before is not None:
        write_atomic(before, path.read_bytes())
    write_atomic(path, draft_text(data, seen).encode())
    return Drafted(path, seen, before)


def _is_draft(path: Path) -> bool:
    """Whether a file is a declaration that nobody has confirmed."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("confirmed") is False
    except (OSError, ValueError):
        return False


def check_report(
    data: Path, declaration: Path | None = None, skip_bad_rows: bool = False
) -> Report:
    """The report of validating ``data`` against its declaration."""
    if not data.is_file():
        raise DataError(f"{data} does not exist or is not a file; give a file of rows")
    return check(data, load_declaration(declaration_path(data, declaration)), skip_bad_rows)

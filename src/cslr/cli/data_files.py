"""The work of ``cslr data init`` and ``cslr data check``, without the command line."""

from __future__ import annotations

from pathlib import Path

from cslr.data.own.check import Report, check
from cslr.data.own.declaration import declaration_path, load_declaration
from cslr.data.own.draft import draft
from cslr.errors import ConfigError, DataError
from cslr.files import write_atomic

__all__ = ["check_report", "init_file", "init_text"]


def init_text(data: Path) -> str:
    """The draft of a declaration for ``data``."""
    return draft(data)


def init_file(data: Path, declaration: Path | None = None) -> Path:
    """Write the draft beside the data, or to ``declaration``; an existing file is not replaced."""
    path = declaration_path(data, declaration)
    if path.exists():
        raise ConfigError(f"{path} exists already; edit it, or remove it to draft a new one")
    write_atomic(path, draft(data).encode())
    return path


def check_report(
    data: Path, declaration: Path | None = None, skip_bad_rows: bool = False
) -> Report:
    """The report of validating ``data`` against its declaration."""
    if not data.is_file():
        raise DataError(f"{data} does not exist or is not a file; give a file of rows")
    return check(data, load_declaration(declaration_path(data, declaration)), skip_bad_rows)

"""One's own rows: a file, and a declaration of what may be known about it."""

from __future__ import annotations

from cslr.bench.own.check import Report, check
from cslr.bench.own.commands import check_report, init_file, init_text
from cslr.bench.own.declaration import Declaration, declaration_path, load_declaration
from cslr.bench.own.draft import draft
from cslr.bench.own.load import OwnData, load_own
from cslr.bench.own.overlap import overlapping
from cslr.bench.own.public import few_public, public_vectors, read_public

__all__ = [
    "Declaration",
    "OwnData",
    "Report",
    "check",
    "check_report",
    "declaration_path",
    "draft",
    "few_public",
    "init_file",
    "init_text",
    "load_declaration",
    "load_own",
    "overlapping",
    "public_vectors",
    "read_public",
]

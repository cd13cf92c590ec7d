"""The user's own rows: a data file, and a public declaration that describes it."""

from __future__ import annotations

from cslr.data.own.check import check
from cslr.data.own.declaration import OF_PEOPLE, Declaration, declaration_path, load_declaration
from cslr.data.own.draft import draft
from cslr.data.own.load import load_own
from cslr.data.own.public_text import distinct_public, few_public, overlapping, read_public

__all__ = [
    "OF_PEOPLE",
    "Declaration",
    "check",
    "declaration_path",
    "distinct_public",
    "draft",
    "few_public",
    "load_declaration",
    "load_own",
    "overlapping",
    "read_public",
]

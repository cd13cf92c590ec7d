"""Whose ledger it is: the first record, and what may not differ from it when it is reopened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from cslr.errors import LedgerCorrupted, PlanChanged
from cslr.privacy.ledger.facts import agree, differences, plain
from cslr.privacy.ledger.keys import NoiseKeys, SeededKeys
from cslr.privacy.plan import Budget

__all__ = [
    "Federation",
    "Privacy",
    "check_opening",
    "federation_in",
    "opening",
]

Privacy = Literal["simulated", "enforced"]

_VERSION: Final = 2
"""1 had no id and no head, and is refused."""


@dataclass(frozen=True)
class Federation:
    """Whose ledger this is; everything here is public."""

    name: str
    budget: Budget
    privacy: Privacy


def opening(federation: Federation, keys: NoiseKeys) -> dict[str, object]:
    """The body of a new ledger's first record.

    Its id is 16 bytes of the operating system, or of the seed where the keys follow from one: a
    simulation stays the same byte for byte.
    """
    if isinstance(keys, SeededKeys):
        identity = keys.seeds.digest("federation", federation.name)[:16]
    else:
        identity = os.urandom(16)
    return {**_facts(federation), "version": _VERSION, "id": identity.hex()}


def check_opening(path: Path, body: Mapping[str, Any], federation: Federation) -> None:
    """Refuse the ledger of another federation, or of another promise."""
    _check_version(path, body)
    declared = plain(_facts(federation))
    recorded = {name: value for name, value in body.items() if name not in ("version", "id")}
    if not agree(recorded, declared):
        changed = differences(recorded, declared)
        raise PlanChanged(f"{path} belongs to another federation; it differs in: {changed}")


def federation_in(path: Path, body: Mapping[str, Any]) -> Federation:
    """The federation in the opening record of a ledger."""
    _check_version(path, body)
    try:
        return Federation(body["name"], Budget.from_dict(body["budget"]), body["privacy"])
    except (KeyError, TypeError) as error:
        raise LedgerCorrupted(
            f"{path}: its first record does not describe a federation ({error!r}); restore it "
            "from a backup"
        ) from error


def _check_version(path: Path, body: Mapping[str, Any]) -> None:
    version = body.get("version")
    if version != _VERSION:
        raise LedgerCorrupted(
            f"{path} is a ledger of format {version}; this version of cslr reads format "
            f"{_VERSION}. Use the version that wrote it"
        )


def _facts(federation: Federation) -> dict[str, object]:
    return {
        "name": federation.name,
        "unit": federation.budget.unit,
        "adjacency": "zero-out",
        "budget": federation.budget.as_dict(),
        "privacy": federation.privacy,
    }

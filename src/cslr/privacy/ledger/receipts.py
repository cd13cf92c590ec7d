"""The receipt that a kept release carries: which record of which ledger paid for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Receipt", "objection"]


@dataclass(frozen=True)
class Receipt:
    """A federation's id, and number and hash of the record in its ledger; all public."""

    federation: str
    number: int
    hash: str

    def as_text(self) -> str:
        """One word, for the header of a file: several would stand in any order there."""
        return f"{self.federation}/{self.number}/{self.hash}"

    @classmethod
    def from_text(cls, text: str) -> Receipt:
        """The inverse of ``as_text``; ``ValueError`` if it is none."""
        federation, number, digest = text.split("/")
        return cls(federation, int(number), digest)


def objection(
    receipt: Receipt, label: str, federation: str, records: Sequence[Mapping[str, Any]]
) -> str | None:
    """Why these records did not pay for the release of ``label``; None if they did."""
    if receipt.federation != federation:
        return f"was charged to another federation, {receipt.federation}"
    if not 0 <= receipt.number < len(records):
        return f"was charged in record {receipt.number}, but the ledger is shorter"
    record = records[receipt.number]
    paid_for = record["kind"] == "charge" and record["body"]["label"] == label
    if not paid_for or record["hash"] != receipt.hash:
        return f"was charged in a different record {receipt.number}"
    return None

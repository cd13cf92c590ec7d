"""The state that follows from a ledger's records, updated with each of them.

A charge need not iterate over all earlier ones, so their total time is linear. What is kept does
not grow with the number of records: totals, and charges whose result is not known to be safe.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cslr.errors import LedgerCorrupted
from cslr.privacy.accounting import Charge, Scope, gaussian_delta
from cslr.privacy.plan import Budget

__all__ = ["Entries", "Receipt", "as_written", "charge_in", "objection"]


@dataclass
class Entries:
    """How many charges there are, which of them are open, and running totals."""

    count: int = 0
    plan: dict[str, Any] | None = None
    cap: int | None = None
    """The most tasks a client contributes to, if a plan fixed it before the first charge."""
    _open: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _precision: dict[Scope, float] = field(default_factory=lambda: defaultdict(float))
    _rates: set[float] = field(default_factory=set)
    _reserved: float = 0.0
    """What the charges take from δ."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Take note of the next record."""
        try:
            self._add(record["kind"], record["body"], record)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise LedgerCorrupted(
                f"record {record['n']} of the ledger is invalid ({error!r}): it was altered, "
                "or written by a newer version of cslr"
            ) from error

    def open_charges(self, label: str) -> list[dict[str, Any]]:
        """The records, in order, of charges of this label whose result is not known to be safe."""
        return list(self._open.get(label, {}).values())

    def unsettled(self) -> list[tuple[str, int]]:
        """(label, attempt) of all open charges."""
        return [(label, attempt) for label, attempts in self._open.items() for attempt in attempts]

    def effective_cap(self, charges: Sequence[Charge]) -> int | None:
        """The cap holds for one pass over the plan's releases; repeated or other ones all count.

        charges: all of them. An evaluation always counts, so it leaves the cap of the others as it
        is. So does a release that the clients noise: a client remembers its tasks, so a repeated
        one is no other task.
        """
        labels = [charge.label for charge in charges if _once(charge)]
        once = len(set(labels)) == len(labels)
        return self.cap if once and all(map(_of_task, charges)) else None

    def surely_within(self, budget: Budget, charge: Charge) -> bool:
        """Whether the budget holds after the charge even without amplification and without cap.

        One evaluation of δ(ε), whatever was charged before. It can only err by saying no. Charges
        at several rates are left to the accountant, which knows whether they go together.
        """
        if not self._rates <= {charge.q}:
            return False
        precision = self._precision[budget.scope] + _precision_of(charge, budget.scope)
        if precision == 0 or math.isinf(budget.epsilon):
            return True
        if math.isinf(precision):
            return False
        left = budget.delta - self._reserved - charge.reserved
        return gaussian_delta(math.sqrt(precision), budget.epsilon) <= left

    def _add(self, kind: str, body: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        if kind == "charge":
            self._charge(body, dict(record))
        elif kind == "settled":
            attempts = self._open[body["label"]]
            del attempts[body["attempt"]]
            if not attempts:
                del self._open[body["label"]]
        elif kind == "plan" and self.plan is None:
            self.plan = dict(body)
            self.cap = None if self.count else int(body["plan"]["cap"])
        elif kind == "upgrade":  # the same plan, under other public settings
            self.plan = dict(body)

    def _charge(self, body: Mapping[str, Any], record: dict[str, Any]) -> None:
        charge = charge_in(body)
        self._open.setdefault(charge.label, {})[body["attempt"]] = record
        self.count += 1
        self._reserved += charge.reserved
        self._rates.add(charge.q)
        for scope in ("replay", "end_to_end"):
            self._precision[scope] += _precision_of(charge, scope)


def charge_in(body: Mapping[str, Any]) -> Charge:
    """The charge that a record is about."""
    fields = Charge.__dataclass_fields__
    return Charge(**{name: body[name] for name in fields if name in body})


def as_written(charge: Charge) -> dict[str, object]:
    """As it is written; what ledgers did not have before is left out where it says nothing."""
    usual = {"noise": "aggregator", "reserved": 0.0, "carried": None}
    return {
        name: value
        for name, value in asdict(charge).items()
        if name not in usual or value != usual[name]
    }


def _once(charge: Charge) -> bool:
    """Whether it may be charged only once under a cap."""
    return charge.part != "evaluation" and charge.noise != "clients"


def _of_task(charge: Charge) -> bool:
    """Whether it is known how a cap applies to it."""
    return charge.part != "head" or charge.task is not None


def _precision_of(charge: Charge, scope: Scope) -> float:
    """σ⁻² where the scope counts the charge; ∞ without noise."""
    if scope == "replay" and charge.part != "replay":
        return 0.0
    return math.inf if charge.sigma is None else charge.sigma**-2


@dataclass(frozen=True)
class Receipt:
    """What a kept release carries: which record of which ledger paid for it. All public."""

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
    receipt: Receipt, label: str, federation: str, count: int, paid: Iterable[Mapping[str, Any]]
) -> str | None:
    """Why none of the records ``paid``, those with its hash, paid for the release of ``label``.

    count: how many records the ledger has. None: one of them did.
    """
    if receipt.federation != federation:
        return f"was charged to another federation, {receipt.federation}"
    if not 0 <= receipt.number < count:
        return f"was charged in record {receipt.number}, but the ledger is shorter"
    for record in paid:
        charged = record["kind"] == "charge" and record["body"]["label"] == label
        if charged and (record["n"], record["hash"]) == (receipt.number, receipt.hash):
            return None
    return f"was charged in a different record {receipt.number}"

"""The state that follows from a ledger's records, updated with each of them.

A charge need not iterate over all earlier ones, so their total time is linear.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cslr.errors import LedgerCorrupted
from cslr.privacy.accounting import Charge, Scope, gaussian_delta
from cslr.privacy.plan import Budget

__all__ = ["Entries", "Receipt", "as_written", "objection"]


@dataclass
class Entries:
    """Charges in order, which of them are open, and running totals."""

    charges: list[Charge] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    cap: int | None = None
    """The most tasks a client contributes to, if a plan fixed it before the first charge."""
    _open: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _digests: dict[str, set[str]] = field(default_factory=dict)
    _precision: dict[Scope, float] = field(default_factory=lambda: defaultdict(float))
    _labels: set[str] = field(default_factory=set)
    _capped: set[str] = field(default_factory=set)
    _repeated: bool = False
    """Whether a release that a cap could apply to was charged twice."""
    _rates: set[float] = field(default_factory=set)
    _reserved: float = 0.0
    """What the charges take from δ."""
    _of_tasks: bool = True

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
        return [(label, attempt) for label, mine in self._open.items() for attempt in mine]

    def knows(self, label: str) -> bool:
        """Whether anything was charged under this label."""
        return label in self._labels

    def settled_as(self, label: str, digest: str) -> bool:
        """Whether a result of this label was settled with this digest."""
        return digest in self._digests.get(label, ())

    def effective_cap(self, *more: Charge) -> int | None:
        """The cap holds for one pass over the plan's releases; repeated or other ones all count.

        An evaluation always counts, so it leaves the cap of the others as it is. So does a release
        that the clients noise: a client remembers its tasks, so a repeated one is no other task.
        """
        labels = [charge.label for charge in more if _once(charge)]
        once = not self._repeated and len(set(labels)) == len(labels)
        once = once and self._capped.isdisjoint(labels)
        return self.cap if once and self._of_tasks and all(map(_of_task, more)) else None

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
            mine = self._open[body["label"]]
            del mine[body["attempt"]]
            if not mine:
                del self._open[body["label"]]
            self._digests.setdefault(body["label"], set()).add(body["digest"])
        elif kind == "plan" and self.plan is None:
            self.plan = dict(body)
            self.cap = None if self.charges else int(body["plan"]["cap"])
        elif kind == "upgrade":  # the same plan, under other public settings
            self.plan = dict(body)

    def _charge(self, body: Mapping[str, Any], record: dict[str, Any]) -> None:
        fields = Charge.__dataclass_fields__
        charge = Charge(**{name: body[name] for name in fields if name in body})
        self._open.setdefault(charge.label, {})[body["attempt"]] = record
        self.charges.append(charge)
        self._labels.add(charge.label)
        self._reserved += charge.reserved
        if _once(charge):
            self._repeated = self._repeated or charge.label in self._capped
            self._capped.add(charge.label)
        self._rates.add(charge.q)
        self._of_tasks = self._of_tasks and _of_task(charge)
        for scope in ("replay", "end_to_end"):
            self._precision[scope] += _precision_of(charge, scope)


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

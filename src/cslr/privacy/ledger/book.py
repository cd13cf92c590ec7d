"""The privacy ledger of a federation: write-ahead, append-only, hash-chained. ε comes from here.

A line per record, each numbered and naming the hash of the one before:

    open      who is protected and how: federation and its id, unit, δ, budget, simulated | enforced
    plan      fixed before the first release; another one is refused
    upgrade   the same plan under other public settings: another encoder from here on
    charge    a release that is about to happen, with a commitment to its noise key and a tag
    settled   its result is safe elsewhere; the key is gone

A charge is on disk before its noise is drawn, and the sum it is for was kept beside the noise key
before that. If the process dies in between, the release is finished from there, at no further cost
and without asking any client again: neither the ledger nor the program's behaviour can then show
whether rows changed meanwhile. If key or sum are lost, the release is charged again. So a crash may
over-charge, never under-charge.

A ledger belongs to a federation or data set, not to a run: a second run on the same data adds up.
What a run keeps carries a ``Receipt``: the federation's id, number and hash of the record that paid
for it. A ledger without that record was reset or rolled back, or is another one, and is refused.
The record is on disk before the receipt, so no crash can leave a receipt without its record.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from cslr.arrays import IntArray
from cslr.errors import BudgetExceeded, LedgerCorrupted, PlanChanged, PrivacyError
from cslr.privacy.accounting import Adversary, Charge, Scope, epsilon_of
from cslr.privacy.ledger.chain import Chain, field_text, head_of, read_chain
from cslr.privacy.ledger.records import (
    Entries,
    NoiseKeys,
    Receipt,
    SeededKeys,
    agree,
    as_written,
    charge_in,
    differences,
    objection,
    plain,
)
from cslr.privacy.plan import Budget, Plan

__all__ = ["Federation", "Ledger", "Privacy", "Receipt"]

Privacy = Literal["simulated", "enforced"]

_VERSION: Final = 2
"""Format 1 had neither id nor head file, and is refused."""


@dataclass(frozen=True)
class Federation:
    """Whose ledger this is; everything here is public."""

    name: str
    budget: Budget
    privacy: Privacy


def opening(federation: Federation, keys: NoiseKeys) -> dict[str, object]:
    """The body of a new ledger's first record.

    Its id is 16 random bytes of the operating system. With seeded keys it is derived from the seed,
    so that a simulation is reproduced byte for byte.
    """
    if isinstance(keys, SeededKeys):
        identity = keys.seeds.digest("federation", federation.name)[:16]
    else:
        identity = os.urandom(16)
    return {**_facts(federation), "version": _VERSION, "id": identity.hex()}


def check_opening(path: Path, body: Mapping[str, Any], federation: Federation) -> None:
    """Refuse the ledger of another federation, or of one with another privacy guarantee."""
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


class Ledger:
    """The open ledger of one federation. Create or reopen it with ``Ledger.at``.

    Threads of one process may share it; a second process is refused while it is open.
    """

    def __init__(self, federation: Federation, keys: NoiseKeys, chain: Chain) -> None:
        if federation.privacy == "enforced" and isinstance(keys, SeededKeys):
            raise ValueError("keys: seeded noise keys are not allowed with enforced privacy")
        self.federation = federation
        self._keys = keys
        self._chain = chain
        self._entries = Entries()
        for record in chain.records():
            self._entries.add(record)
        self._paid: dict[str, Receipt] = {}
        self._turn = threading.RLock()

    @classmethod
    def at(cls, path: Path, federation: Federation, keys: NoiseKeys) -> Self:
        """Open the ledger at ``path``, creating it if there is none, and lock it."""
        chain = Chain.at(path, private=federation.privacy == "enforced")
        try:
            ledger = cls(federation, keys, chain)
            ledger._check_or_open(path)
        except BaseException:
            chain.close()
            raise
        return ledger

    @classmethod
    def in_memory(cls, federation: Federation, keys: NoiseKeys) -> Self:
        """A ledger in memory only, for studies that write nothing."""
        ledger = cls(federation, keys, Chain())
        ledger._check_or_open(Path("the ledger"))
        return ledger

    @classmethod
    def read(cls, path: Path) -> Self:
        """The verified contents of a ledger file, read-only: it cannot be charged."""
        chain = read_chain(path)
        if chain.opening is None:
            raise LedgerCorrupted(f"{path} contains no complete record")
        return cls(federation_in(path, chain.opening["body"]), _NoKeys(), chain)

    def close(self) -> None:
        """Release the lock. Nothing can be charged from then on."""
        with self._turn:
            self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[dict[str, Any]]:
        """Everything written so far, in order; read again from the file where there is one."""
        with self._turn:
            return list(self._chain.records())

    @property
    def opening(self) -> dict[str, Any]:
        """The first record."""
        opening = self._chain.opening
        if opening is None:
            raise ValueError("the ledger was not opened")
        return opening

    @property
    def id(self) -> str:
        """The unique id of the federation: random, or derived from the seed of a simulation."""
        return str(self.opening["body"]["id"])

    @property
    def newest(self) -> tuple[int, str]:
        """How many records there are, and the hash of the last."""
        return self._chain.count, self._chain.newest

    @property
    def headless(self) -> bool:
        """Whether there was no head file, which says how long the ledger is, when it was opened."""
        return self._chain.headless

    # -- what happens, in order ------------------------------------------------------------------

    def fix_plan(self, plan: Plan, public: Mapping[str, object]) -> None:
        """Record the plan and the public settings; the same again is accepted, another refused.

        The same means equal, and for a ``Sketch`` within the tolerance that it states.
        """
        body = _plan_body(plan, public)
        with self._turn:
            fixed = self._entries.plan
            if fixed is None:
                self._append("plan", body)
            elif not agree(fixed, body):
                raise PlanChanged(
                    f"the plan of {self.federation.name!r} was fixed before its first release and "
                    f"cannot change. It differs in: {differences(fixed, body)}. Run with the "
                    "original settings, or use data that has no ledger yet."
                )

    def upgrade_plan(
        self, plan: Plan, before: Mapping[str, object], now: Mapping[str, object]
    ) -> None:
        """Record that public settings change from ``before`` to ``now``; σ, releases and cap stay.

        Refused while a release is unfinished: its sum was made under the settings before.
        """
        body = _plan_body(plan, now)
        with self._turn:
            if not agree(self._entries.plan, body):
                self.fix_plan(plan, before)
                self.refuse_unfinished()
                self._append("upgrade", body)

    def refuse_unfinished(self) -> None:
        """Refuse to go on under other settings while a release was charged and is not finished."""
        if self.unsettled and not self._keys.seeded:
            label = self.unsettled[0][0]
            raise PrivacyError(
                f"a run on {self.federation.name!r} was interrupted after {label!r} was charged. "
                "Its sum was made with the old encoder and cannot be released under another: "
                "repeat the command of that run, so that it finishes, then upgrade"
            )

    def has_fixed(self, plan: Plan, public: Mapping[str, object]) -> bool:
        """Whether this plan with these settings is recorded, compared as by ``fix_plan``."""
        return agree(self._entries.plan, _plan_body(plan, public))

    def afford(self, charge: Charge) -> None:
        """Raise ``BudgetExceeded`` if this charge would be refused; nothing is written."""
        with self._turn:
            self._check_budget(charge)

    def charge(self, charge: Charge, tag_of: Callable[[bytes], str], kept: bytes = b"") -> bytes:
        """Make the cost of a release durable and hand out its noise key.

        tag_of: the tag of the sum under a key. kept: the sum, to finish the release after a crash.
        """
        with self._turn:
            record, key = self._repeated(charge, tag_of) or self._new_release(charge, tag_of, kept)
            self._paid[charge.label] = Receipt(self.id, record["n"], record["hash"])
            return key

    def interrupted(self, charge: Charge) -> tuple[bytes, bytes, str] | None:
        """Key, kept sum and tag of a release that was charged and not finished, if there is one."""
        with self._turn:
            for record, key, kept in self._open_releases(charge):
                if kept:
                    self._paid[charge.label] = Receipt(self.id, record["n"], record["hash"])
                    return key, kept, record["body"]["tag"]
        return None

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        """The key of the noise for an integer sum, from the key that ``charge`` returned."""
        return self._keys.noise_key(key, total)

    def receipt(self, label: str) -> Receipt:
        """The receipt of the last charge of ``label``, to be kept beside the release."""
        if label not in self._paid:
            raise ValueError(f"{label!r} was not charged since the ledger was opened")
        return self._paid[label]

    def settle(self, label: str, digest: str) -> None:
        """The result of ``label``, with this digest, is safe on disk: delete its noise key."""
        with self._turn:
            for record in self._entries.open_charges(label):
                attempt = record["body"]["attempt"]
                # The key is deleted first: a crash in between leaves an open charge, never a key.
                self._keys.discard(label, attempt)
                self._append("settled", {"label": label, "attempt": attempt, "digest": digest})
            self._paid.pop(label, None)

    def accept(self, label: str, receipt: Receipt | None) -> None:
        """Refuse a saved release whose charge is not in this ledger."""
        problem: str | None = "has no receipt"
        if receipt is not None:
            with self._turn:
                paid = self._chain.find(field_text("hash", receipt.hash))
                problem = objection(receipt, label, self.id, self._chain.count, paid)
        if problem is None:
            return
        raise LedgerCorrupted(
            f"the saved release {label!r} {problem}: the ledger of {self.federation.name!r} "
            "was started again, replaced by an older copy, or is not the ledger the run "
            "started with. Restore the right ledger; nothing was released"
        )

    def confirm(self, label: str, digest: str) -> None:
        """Refuse a saved release that this ledger did not charge; settle it if it was not yet."""
        with self._turn:
            charged = False
            for record in self._chain.find(field_text("label", label)):
                about = record["kind"] if record["body"].get("label") == label else None
                charged = charged or about == "charge"
                if about == "settled" and record["body"]["digest"] == digest:
                    return
            if not charged:
                raise LedgerCorrupted(
                    f"the saved release {label!r} has no charge in the ledger of "
                    f"{self.federation.name!r}: the ledger was replaced or started again. "
                    "Restore the ledger that belongs to this run"
                )
            # A crash came between saving and settling it, in this run or an earlier one.
            if not self._entries.open_charges(label):
                raise LedgerCorrupted(
                    f"the saved release {label!r} differs from the one that was recorded in "
                    "the ledger; restore the run directory from a backup"
                )
            self.settle(label, digest)

    # -- what was charged ------------------------------------------------------------------------

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything that was charged, in order; read again from the file where there is one."""
        return tuple(self._charges())

    @property
    def unsettled(self) -> list[tuple[str, int]]:
        """(label, attempt) of charges whose result is not known to be safe."""
        return self._entries.unsettled()

    @property
    def cap(self) -> int | None:
        """The most releases a client contributes to, if a plan fixed it before the first one."""
        return self._entries.cap

    @property
    def effective_cap(self) -> int | None:
        """The cap, as long as every charge is one of the plan's releases, made once."""
        return self._entries.effective_cap(self.charges)

    def carried(self, label: str) -> float | None:
        """The multiplier of all noise in the release charged last under a label, if noted."""
        return next((c.carried for c in reversed(self._charges(label))), None)

    def epsilon(self, scope: Scope, adversary: Adversary) -> float:
        """ε spent so far at the federation's δ."""
        charges, delta = self.charges, self.federation.budget.delta
        cap = self._entries.effective_cap(charges)
        return epsilon_of(charges, delta, adversary, scope, cap=cap)

    # -- within ----------------------------------------------------------------------------------

    def _charges(self, label: str | None = None) -> list[Charge]:
        """All charges, or those of a label, in order."""
        fragment = field_text("kind", "charge") if label is None else field_text("label", label)
        with self._turn:
            records = list(self._chain.records(fragment))
        charges = [charge_in(each["body"]) for each in records if each["kind"] == "charge"]
        return [charge for charge in charges if label in (None, charge.label)]

    def _append(self, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        record = self._chain.append(kind, body)
        self._entries.add(record)
        return record

    def _new_release(
        self, charge: Charge, tag_of: Callable[[bytes], str], kept: bytes
    ) -> tuple[dict[str, Any], bytes]:
        """A charge within the budget, with a key of its own."""
        self._check_budget(charge)
        attempt = self._entries.count
        key = self._keys.fresh(charge.label, attempt, kept)
        commitment = hashlib.sha256(key).hexdigest()
        promised = {"attempt": attempt, "commitment": commitment, "tag": tag_of(key)}
        return self._append("charge", {**as_written(charge), **promised}), key

    def _repeated(
        self, charge: Charge, tag_of: Callable[[bytes], str]
    ) -> tuple[dict[str, Any], bytes] | None:
        """In a simulation, which keeps no sums: an unfinished charge of the very same sum."""
        if self._keys.seeded:
            for record, key, _ in self._open_releases(charge):
                if tag_of(key) == record["body"]["tag"]:
                    return record, key
        return None

    def _open_releases(self, charge: Charge) -> list[tuple[dict[str, Any], bytes, bytes]]:
        """Unfinished charges of this release at this cost, with their keys and what was kept."""
        releases = []
        for record in self._entries.open_charges(charge.label):
            body = record["body"]
            key, kept = self._keys.recover(charge.label, body["attempt"]) or (b"", b"")
            same_cost = (body["sigma"], body["q"]) == (charge.sigma, charge.q)
            if same_cost and hashlib.sha256(key).hexdigest() == body["commitment"]:
                releases.append((record, key, kept))
        return releases

    def _check_budget(self, charge: Charge) -> None:
        budget = self.federation.budget
        if self._entries.surely_within(budget, charge):
            return
        charges = [*self.charges, charge]
        cap = self._entries.effective_cap(charges)
        after = epsilon_of(charges, budget.delta, budget.adversary, budget.scope, cap=cap)
        if not after <= budget.epsilon + 1e-9:  # an ε that is not a number is refused, too
            spent = self.epsilon(budget.scope, budget.adversary)
            raise BudgetExceeded(
                f"releasing {charge.label!r} would bring {self.federation.name!r} to "
                f"ε = {after:.3g} against {budget.adversary}, beyond its budget of "
                f"{budget.epsilon:g} (spent: {spent:.3g}). Nothing was released."
            )

    def _check_or_open(self, path: Path) -> None:
        if self._chain.opening is None:
            self._append("open", opening(self.federation, self._keys))
            return
        check_opening(path, self.opening["body"], self.federation)
        enforced = self.federation.privacy == "enforced"
        if self.headless and enforced and self._chain.count > 1:
            raise LedgerCorrupted(
                f"{head_of(path)} is missing, so it cannot be checked that {path} is "
                "complete. Restore both from a backup, or account for this federation by hand"
            )


def _plan_body(plan: Plan, public: Mapping[str, object]) -> Any:
    """The record of a plan and its public settings, as it will be read back."""
    return plain({"plan": plan.as_dict(), "public": dict(public)})


class _NoKeys:
    """Keys for a ledger that is only read."""

    seeded: ClassVar[bool] = False

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        raise PrivacyError("this ledger was opened read-only; open it with Ledger.at to charge it")

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        return None

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        raise PrivacyError("this ledger was opened read-only; open it with Ledger.at to charge it")

    def discard(self, label: str, attempt: int) -> None:
        raise PrivacyError("this ledger was opened read-only; open it with Ledger.at to charge it")

"""The federation's account book: write-ahead, append-only, hash-chained. ε comes from here.

A line per record, each naming the hash of the one before:

    open      who is protected and how: federation, unit, adjacency, δ, budget, simulated | enforced
    plan      fixed before the first release; another one is refused
    charge    a release that is about to happen, with a commitment to its noise key and a tag
    settled   its result is safe elsewhere; the key is gone

A charge is on disk before its noise is drawn. If the process dies in between, the same sum comes
back with the same tag and gets the same noise at no further cost; another sum (a client dropped
meanwhile) is another release and is charged. So a crash may over-charge, never under-charge.

A ledger belongs to a federation or data set, not to a run: a second run on the same data adds up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from cslr.errors import BudgetExceeded, LedgerCorrupted, PlanChanged, PrivacyError
from cslr.privacy.accounting import Adversary, Charge, Scope, epsilon_of
from cslr.privacy.chain import Chain, canonical, read_chain
from cslr.privacy.keys import NoiseKeys, SeededKeys
from cslr.privacy.plan import Budget, Plan

__all__ = ["Federation", "Ledger", "Privacy"]

Privacy = Literal["simulated", "enforced"]


@dataclass(frozen=True)
class Federation:
    """Whose ledger this is; everything here is public."""

    name: str
    budget: Budget
    privacy: Privacy


class Ledger:
    """The open account book of one federation. Create or reopen it with ``Ledger.at``."""

    def __init__(self, federation: Federation, keys: NoiseKeys, chain: Chain) -> None:
        if federation.privacy == "enforced" and isinstance(keys, SeededKeys):
            raise ValueError("keys that follow from a seed cannot enforce privacy")
        self.federation = federation
        self._keys = keys
        self._chain = chain

    @classmethod
    def at(cls, path: Path, federation: Federation, keys: NoiseKeys) -> Self:
        """Open the ledger at ``path``, creating it if there is none, and lock it."""
        chain = Chain.at(path)
        try:
            ledger = cls(federation, keys, chain)
            ledger._check_or_open(str(path))
        except BaseException:
            chain.close()
            raise
        return ledger

    @classmethod
    def in_memory(cls, federation: Federation, keys: NoiseKeys) -> Self:
        """A ledger that is gone with the process, for studies that write nothing."""
        ledger = cls(federation, keys, Chain())
        ledger._check_or_open("the ledger")
        return ledger

    @classmethod
    def read(cls, path: Path) -> Self:
        """The verified contents of a ledger file, to look at: it can charge nothing."""
        chain = read_chain(path)
        if not chain.records:
            raise LedgerCorrupted(f"{path} holds no complete record")
        body = chain.records[0]["body"]
        federation = Federation(body["name"], Budget.from_dict(body["budget"]), body["privacy"])
        return cls(federation, _NoKeys(), chain)

    def close(self) -> None:
        """Give the lock back. Nothing can be charged from then on."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[dict[str, Any]]:
        """Everything written so far, in order."""
        return self._chain.records

    # -- what happens, in order ------------------------------------------------------------------

    def fix_plan(self, plan: Plan, public: Mapping[str, object]) -> None:
        """Write the plan and the public settings down; the same again is fine, another is not."""
        body = _plain({"plan": plan.as_dict(), "public": dict(public)})
        fixed = self._chain.of_kind("plan")
        if not fixed:
            self._chain.append("plan", body)
        elif fixed[0] != body:
            changed = _differences(fixed[0], body)
            raise PlanChanged(
                f"the plan of {self.federation.name!r} was fixed before its first release and "
                f"differs in: {changed}. Run with the original settings; other ones need data on "
                "which nothing was promised yet."
            )

    def charge(self, charge: Charge, tag_of: Callable[[bytes], str]) -> bytes:
        """Make the cost of a release durable and hand out its noise key.

        tag_of: names the sum under a key, so that the same sum is recognised after a crash.
        """
        again = self._same_release(charge, tag_of)
        if again is not None:
            return again
        self._check_budget(charge)
        attempt = len(self._chain.of_kind("charge"))
        key = self._keys.fresh(charge.label, attempt)
        self._chain.append(
            "charge",
            {
                **asdict(charge),
                "attempt": attempt,
                "commitment": hashlib.sha256(key).hexdigest(),
                "tag": tag_of(key),
            },
        )
        return key

    def settle(self, label: str, digest: str) -> None:
        """The result of ``label``, known by its digest, is safe on disk: forget the key."""
        for body in self._open_charges(label):
            attempt = body["attempt"]
            # The key goes first: a crash in between leaves an open charge, never a key for good.
            self._keys.discard(label, attempt)
            self._chain.append("settled", {"label": label, "attempt": attempt, "digest": digest})

    def confirm(self, label: str, digest: str) -> None:
        """Refuse a kept result that this ledger did not pay for; settle it if it was not yet."""
        if not any(charge.label == label for charge in self.charges):
            raise LedgerCorrupted(
                f"a kept result of {label!r} has no charge in the ledger of "
                f"{self.federation.name!r}: was the ledger moved or begun anew?"
            )
        settled = [
            body["digest"] for body in self._chain.of_kind("settled") if body["label"] == label
        ]
        if digest in settled:
            return
        # A crash came between keeping the result and settling it, be it in a first run or a later.
        if self._open_charges(label):
            self.settle(label, digest)
        else:
            raise LedgerCorrupted(f"the kept result of {label!r} is not the one that was released")

    # -- what it says ----------------------------------------------------------------------------

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything that was charged, in order."""
        fields = Charge.__dataclass_fields__
        bodies = self._chain.of_kind("charge")
        return tuple(
            Charge(**{name: body[name] for name in fields if name in body}) for body in bodies
        )

    @property
    def cap(self) -> int | None:
        """The most releases a client contributes to, if a plan fixed it before the first one."""
        for record in self.records:
            if record["kind"] == "charge":
                return None
            if record["kind"] == "plan":
                return int(record["body"]["plan"]["cap"])
        return None

    def epsilon(self, scope: Scope, adversary: Adversary) -> float:
        """ε spent so far at the federation's δ."""
        delta = self.federation.budget.delta
        return epsilon_of(self.charges, delta, adversary, scope, cap=self._effective_cap())

    # -- within ----------------------------------------------------------------------------------

    def _effective_cap(self, *more: Charge) -> int | None:
        """The cap holds for one pass over the plan's releases; repeated or other ones all count."""
        charges = (*self.charges, *more)
        once = len({charge.label for charge in charges}) == len(charges)
        of_tasks = all(charge.part == "replay" or charge.task is not None for charge in charges)
        return self.cap if once and of_tasks else None

    def _check_budget(self, charge: Charge) -> None:
        budget = self.federation.budget
        after = epsilon_of(
            [*self.charges, charge],
            budget.delta,
            budget.adversary,
            budget.scope,
            cap=self._effective_cap(charge),
        )
        if not after <= budget.epsilon + 1e-9:  # an ε that is not a number is refused, too
            spent = self.epsilon(budget.scope, budget.adversary)
            raise BudgetExceeded(
                f"releasing {charge.label!r} would bring {self.federation.name!r} to "
                f"ε = {after:.3g} against {budget.adversary}, beyond its budget of "
                f"{budget.epsilon:g} (spent: {spent:.3g}). Nothing was released."
            )

    def _same_release(self, charge: Charge, tag_of: Callable[[bytes], str]) -> bytes | None:
        """The key of an earlier charge for the very same sum, if there is one."""
        for body in self._open_charges(charge.label):
            key = self._keys.recover(charge.label, body["attempt"])
            if key is None or hashlib.sha256(key).hexdigest() != body["commitment"]:
                continue
            same_cost = (body["sigma"], body["q"]) == (charge.sigma, charge.q)
            if same_cost and tag_of(key) == body["tag"]:
                return key
        return None

    def _open_charges(self, label: str) -> list[dict[str, Any]]:
        settled = {body["attempt"] for body in self._chain.of_kind("settled")}
        return [
            body
            for body in self._chain.of_kind("charge")
            if body["label"] == label and body["attempt"] not in settled
        ]

    def _check_or_open(self, path: str) -> None:
        opening = _plain(_opening(self.federation))
        if not self.records:
            self._chain.append("open", opening)
        elif self.records[0]["body"] != opening:
            changed = _differences(self.records[0]["body"], opening)
            raise PlanChanged(f"{path} belongs to another federation; it differs in: {changed}")


class _NoKeys:
    """Keys for a ledger that is only read."""

    def fresh(self, label: str, attempt: int) -> bytes:
        raise PrivacyError("this ledger was opened for reading")

    def recover(self, label: str, attempt: int) -> bytes | None:
        return None

    def discard(self, label: str, attempt: int) -> None:
        raise PrivacyError("this ledger was opened for reading")


def _opening(federation: Federation) -> dict[str, object]:
    return {
        "version": 1,
        "name": federation.name,
        "unit": "client",
        "adjacency": "zero-out",
        "budget": federation.budget.as_dict(),
        "privacy": federation.privacy,
    }


def _plain(value: object) -> Any:
    """As it will be read back from the file."""
    return json.loads(canonical(value))


def _differences(before: Any, after: Any, where: str = "") -> str:
    """The dotted names under which two plain values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        found = [
            _differences(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
            for key in keys
            if before.get(key) != after.get(key)
        ]
        return ", ".join(found)
    return f"{where} ({before} -> {after})"

"""What a ledger holds: its entries, the public facts of its plan, and the keys of its noise.

``Entries`` is the state that follows from the records, updated with each of them. A charge need not
iterate over all earlier ones, so their total time is linear. It has totals, and the charges whose
result is not known to be safe, so it does not grow with the number of records.

Facts are compared exactly, except a ``Sketch``: numbers that differ slightly between machines. Two
sketches agree if their Euclidean distance is at most the tolerance that both state. No fact depends
on private rows, and on one machine nothing is rounded: the same public vectors give the same bits.

``EphemeralKeys`` enforce privacy: 32 bytes of the operating system in a file readable by its owner
alone, unlinked once the release is safe. The same file has the sum that is to be released. A
release that was charged and then interrupted is finished from it, so the result does not depend on
the rows at that time. ``SeededKeys`` make a simulation reproducible and give no
protection.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cslr.arrays import IntArray
from cslr.errors import LedgerCorrupted, PrivacyError
from cslr.files import make_directory, sync_directory, write_all
from cslr.privacy.accounting import Charge, Scope, gaussian_delta
from cslr.privacy.ledger.chain import canonical
from cslr.privacy.plan import Budget
from cslr.privacy.values import Grid
from cslr.seeding import Seeds

__all__ = [
    "Entries",
    "EphemeralKeys",
    "NoiseKeys",
    "Receipt",
    "SeededKeys",
    "Sketch",
    "Unfinished",
    "agree",
    "as_written",
    "charge_in",
    "differences",
    "objection",
    "plain",
    "tag_for_sum",
]


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
        """Update the state with the next record."""
        try:
            self._add(dict(record))
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
        """The cap, if every charge is one of the plan's releases, made once; else None: all count.

        charges: all of the ledger. Two kinds may be repeated without losing the cap: evaluations,
        which count anyway, and releases that the clients noise, because a client remembers its
        tasks and a repetition is not another task.
        """
        labels = [charge.label for charge in charges if _once(charge)]
        once = len(set(labels)) == len(labels)
        return self.cap if once and all(map(_of_task, charges)) else None

    def surely_within(self, budget: Budget, charge: Charge) -> bool:
        """Whether the budget holds after the charge even without amplification and without cap.

        It takes one evaluation of δ(ε), however many charges there are. False means that it is not
        known. Charges at different rates are left to the accountant.
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

    def _add(self, record: dict[str, Any]) -> None:
        kind, body = record["kind"], record["body"]
        if kind == "charge":
            self._charge(record)
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

    def _charge(self, record: dict[str, Any]) -> None:
        charge = charge_in(record["body"])
        self._open.setdefault(charge.label, {})[record["body"]["attempt"]] = record
        self.count += 1
        self._reserved += charge.reserved
        self._rates.add(charge.q)
        for scope in ("replay", "end_to_end"):
            self._precision[scope] += _precision_of(charge, scope)


def charge_in(body: Mapping[str, Any]) -> Charge:
    """The charge in the body of a record."""
    fields = Charge.__dataclass_fields__
    return Charge(**{name: body[name] for name in fields if name in body})


def as_written(charge: Charge) -> dict[str, object]:
    """The fields of a charge on disk; newer ones are left out where they have their default."""
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
    """Stored with a release: which record of which ledger paid for it. All public."""

    federation: str
    number: int
    hash: str

    def as_text(self) -> str:
        """As a single string: the header of a file does not keep the order of several."""
        return f"{self.federation}/{self.number}/{self.hash}"

    @classmethod
    def from_text(cls, text: str) -> Receipt:
        """The inverse of ``as_text``; ``ValueError`` if the text is not a receipt."""
        federation, number, digest = text.split("/")
        return cls(federation, int(number), digest)


def objection(
    receipt: Receipt, label: str, federation: str, count: int, paid: Iterable[Mapping[str, Any]]
) -> str | None:
    """Why a receipt is not valid for the release of ``label``; None if it is.

    federation, count: id and number of records of the ledger. paid: its records that contain the
    receipt's hash.
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


# -- public facts, and the comparison of two plans -------------------------------------------------

_KEYS: Final = frozenset({"values", "within"})


class Sketch(dict[str, Any]):
    """``{"values": [...], "within": tolerance}``, as it is written in the ledger.

    Floats are written with all their digits, so they are read back as they were.
    """

    @classmethod
    def of(cls, values: Iterable[Any], within: float) -> Self:
        """The numbers of an array of any shape. within: the distance at which two still agree."""
        flat = [float(value) for value in _flat(values)]
        if not all(map(math.isfinite, flat)):
            raise ValueError("values must be finite")
        if not 0 <= within < math.inf:
            raise ValueError(f"within must be a finite number of at least 0, not {within}")
        return cls(values=flat, within=float(within))


def agree(before: Any, after: Any) -> bool:
    """Whether two plain values are the same, sketches within their tolerance."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return False
        if before.keys() == _KEYS:
            return _distance(before, after) <= float(before["within"])
        return all(agree(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(agree, before, after))
    return bool(before == after)


def differences(before: Any, after: Any, where: str = "") -> str:
    """The dotted names under which two plain values differ."""
    if agree(before, after):
        return ""
    if _is_sketch(before) and _is_sketch(after):
        apart = _distance(before, after)
        return f"{where} ({apart:.2g} apart, {before['within']:.2g} allowed)"
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        pairs = [(key, before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(before, after, strict=True))]
        if not any(isinstance(value, dict) for value in before):
            return f"{where} ({before} -> {after})"
    else:
        return f"{where} ({_shown(before)} -> {_shown(after)})"
    nested = [differences(one, two, f"{where}.{key}".lstrip(".")) for key, one, two in pairs]
    return ", ".join(text for text in nested if text)


def plain(value: object) -> Any:
    """As it will be read back from the file."""
    return json.loads(canonical(value))


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Iterable):
            yield from _flat(value)
        else:
            yield value


def _is_sketch(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == _KEYS


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Euclidean distance; ∞ for different lengths or tolerances."""
    one, two = before["values"], after["values"]
    if before["within"] != after["within"] or len(one) != len(two):
        return math.inf
    return math.dist(one, two)


def _shown(value: Any) -> str:
    """A value short enough for a message."""
    return "numbers" if isinstance(value, dict) else str(value)


# -- noise keys ------------------------------------------------------------------------------------


class NoiseKeys(Protocol):
    """Keys by release and attempt."""

    seeded: ClassVar[bool]
    """Whether a key follows from the release's name, so that repeating it repeats its noise."""

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        """A key for a new charge; on disk together with ``kept`` where ``recover`` needs it."""

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        """The key of an unsettled charge and what was kept with it, if they still exist."""

    def discard(self, label: str, attempt: int) -> None:
        """Forget the key, and what was kept with it, for good."""

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        """The key of the noise that is added to an integer sum."""


@dataclass(frozen=True)
class SeededKeys:
    """Keys that follow from a seed: ``privacy: simulated``.

    The noise depends on the seed and the release, not on the sum: two machines whose embeddings
    differ in the last bit draw the same noise, and their figures agree up to rounding.
    """

    seeded: ClassVar[bool] = True
    seeds: Seeds

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        return self.seeds.digest("noise key", label, attempt)

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        return self.fresh(label, attempt), b""

    def discard(self, label: str, attempt: int) -> None:
        """Nothing to forget: the seed is public."""

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        return key


@dataclass(frozen=True)
class EphemeralKeys:
    """One file per unsettled charge in ``directory``: ``privacy: enforced``."""

    seeded: ClassVar[bool] = False
    directory: Path

    def fresh(self, label: str, attempt: int, kept: bytes = b"") -> bytes:
        key = os.urandom(32)
        path = self._path(label, attempt)
        with _disk_errors(
            f"no noise key could be written to {self.directory}", "Nothing was charged"
        ):
            make_directory(self.directory, mode=0o700)
            # A file left by a crash before its charge was written belongs to no release.
            path.unlink(missing_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(file, key + _seal(key, kept) + kept)
                os.fsync(file)
            finally:
                os.close(file)
            sync_directory(self.directory)
        return key

    def recover(self, label: str, attempt: int) -> tuple[bytes, bytes] | None:
        with contextlib.suppress(OSError):
            content = self._path(label, attempt).read_bytes()
            key, seal, kept = content[:32], content[32:64], content[64:]
            return key, kept if hmac.compare_digest(seal, _seal(key, kept)) else b""
        return None

    def discard(self, label: str, attempt: int) -> None:
        path = self._path(label, attempt)
        with _disk_errors(
            f"the noise key {path} could not be removed", "The release itself is complete"
        ):
            path.unlink(missing_ok=True)
            if self.directory.is_dir():
                sync_directory(self.directory)

    def noise_key(self, key: bytes, total: IntArray) -> bytes:
        return key_for_sum(key, total)

    def left_over(self, unsettled: Iterable[tuple[str, int]]) -> list[Path]:
        """Key files of no unsettled charge (label, attempt), with which noise could be removed."""
        open_names = {self._path(label, attempt).name for label, attempt in unsettled}
        if not self.directory.is_dir():
            return []
        return sorted(file for file in self.directory.iterdir() if file.name not in open_names)

    def _path(self, label: str, attempt: int) -> Path:
        return self.directory / f"{attempt:06d}-{sha256(label.encode()).hexdigest()[:16]}.key"


def key_for_sum(key: bytes, total: IntArray) -> bytes:
    """HMAC(key, sum): the same sum replayed gets the same noise, another sum gets other noise."""
    return _hmac_of_sum(key, b"noise\0", total).digest()


def tag_for_sum(key: bytes, total: IntArray) -> str:
    """A tag by which the ledger recognises the same sum; without the key it reveals nothing."""
    return _hmac_of_sum(key, b"tag\0", total).hexdigest()


def _hmac_of_sum(key: bytes, purpose: bytes, total: IntArray) -> hmac.HMAC:
    """HMAC of a purpose, the length of a sum (D,), and the sum."""
    code = hmac.new(key, purpose + len(total).to_bytes(8, "little"), sha256)
    code.update(np.ascontiguousarray(total, dtype="<i8").data)  # not copied
    return code


def _seal(key: bytes, kept: bytes) -> bytes:
    """A checksum of 32 bytes over what is kept with a key."""
    code = hmac.new(key, b"kept\0", sha256)
    code.update(kept)  # not copied
    return code.digest()


@contextlib.contextmanager
def _disk_errors(what: str, state: str) -> Iterator[None]:
    """Translate a disk error into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise PrivacyError(
            f"{what}: {error.strerror or error}. {state}. Free disk space or repair the disk "
            "and repeat the command"
        ) from error


@dataclass(frozen=True, eq=False, repr=False)
class Unfinished:
    """Integers that are about to be noised, or noised by the clients and about to be published.

    PRIVATE: a sum without noise. It is kept between a charge and its result, in the file of the
    noise key, to finish the release after a crash, and deleted with it.
    """

    total: IntArray
    """(D,) a sum, or (b, D) the vectors of b clients."""
    grid: Grid
    senders: IntArray | None = None
    """(b,) the senders of the vectors, if these are sent under their names."""
    noised: bool = False
    """Whether the clients' noise is in it already, so that none is to be drawn."""

    def as_bytes(self) -> bytes:
        """Everything that is needed to finish the release."""
        arrays = {
            "total": np.ascontiguousarray(self.total),
            "bound": np.array([self.grid.bound]),
            "steps": np.array([self.grid.steps]),
        }
        if self.senders is not None:
            arrays["senders"] = self.senders
        if self.noised:
            arrays["noised"] = np.ones(1, dtype=np.int64)
        return save(arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self | None:
        """The inverse of ``as_bytes``; None if the bytes are damaged."""
        try:
            arrays = load(content)
            grid = Grid(float(arrays["bound"][0]), int(arrays["steps"][0]))
            return cls(arrays["total"], grid, arrays.get("senders"), "noised" in arrays)
        except (SafetensorError, LookupError, ValueError):
            return None

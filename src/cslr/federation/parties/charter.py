"""What all parties of a federation agreed on before the first message. All of it is PUBLIC.

A node keeps a copy in a file of its own and compares the server's requests with it. Every signature
and mask depends on its digest, so parties with different charters cannot take part in one sum.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from cslr.config import mistakes
from cslr.errors import ConfigError
from cslr.files import write_atomic
from cslr.privacy.ledger.book import Federation
from cslr.privacy.plan import Budget, ClientNoise, Plan, Schedule, Unit, calibrate
from cslr.privacy.secure_sum import SumTerms
from cslr.privacy.secure_sum.terms import LEAST_MEMBERS
from cslr.protocol.head import FamilyName

__all__ = ["Charter", "CharterTask", "Member", "Roster", "fingerprint", "read_model"]

_Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
M = TypeVar("M", bound=BaseModel)
_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Public(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def canonical(self) -> bytes:
        """Canonical bytes: the same content has the same bytes."""
        plain = self.model_dump(mode="json")
        return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()

    def save(self, path: Path) -> None:
        """Write it as indented JSON."""
        plain = self.model_dump(mode="json")
        write_atomic(path, json.dumps(plain, indent=2).encode() + b"\n")


class CharterTask(_Public):
    """A task and its labels, by number."""

    name: str
    labels: tuple[int, ...] = Field(min_length=1)


class Member(_Public):
    """A node, by its name and the Ed25519 key that signs its answers."""

    name: _Slug
    identity: _Digest

    @property
    def key(self) -> bytes:
        """32 bytes."""
        return bytes.fromhex(self.identity)


class Charter(_Public):
    """The privacy guarantee of a federation and its fixed numbers."""

    version: Literal[1] = 1
    name: _Slug
    family: FamilyName
    labels: tuple[str, ...] = Field(min_length=1)
    tasks: tuple[CharterTask, ...] = Field(min_length=1)
    encoder: str
    """The id of the encoder that every node runs."""
    agreement: _Digest
    """SHA-256 of the agreement's bytes."""
    declaration: _Digest
    """SHA-256 of what is declared about rows, from which the agreement was made."""
    unit: Unit
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(gt=0, lt=1)
    rounds: int = Field(0, ge=0)
    """Gradients that are asked for of each task; 0: its statistics, once."""
    clip: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Norm of a unit's gradient, where gradients are asked for."""
    evaluation: bool = False
    """Whether right answers on nodes' test rows are counted after the last task, within ε."""
    cap: int = Field(ge=1)
    """The most tasks a unit contributes to."""
    units: int = Field(ge=1)
    """Registered units of all nodes: people, or the nodes themselves."""
    members: int = Field(ge=3)  # n
    """The most members that a roster may name."""
    threshold: int  # t
    colluders: int  # c
    spare: int = Field(ge=0)
    """Sessions that may end without a sum; the budget has room for their repetition."""
    coordinates: int = Field(ge=1)  # D
    noise: float = Field(gt=0, allow_inf_nan=False)
    """The noise multiplier σ of a task, as calibrated: of its one release, or of all its rounds
    together."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything here."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @cached_property
    def plan(self) -> Plan:
        """The plan that all parties have, with the charter's σ.

        Refused if σ is less than what calibration for the promised ε gives.
        """
        shares = ClientNoise(
            self.members, self.threshold, self.colluders, self.coordinates, self.spare
        )
        budget = Budget(self.epsilon, self.delta, unit=self.unit)
        schedule = Schedule(int(not self.rounds), head=self.rounds, evaluation=self.evaluation)
        least = calibrate(budget, len(self.tasks), cap=self.cap, schedule=schedule, clients=shares)
        if least.unit is None or self.noise < least.unit * (1 - 1e-6):
            raise ConfigError(
                f"the charter of {self.name!r} has noise = {self.noise:g}, but epsilon = "
                f"{self.epsilon:g} needs {least.unit:g}; ask the server for a corrected one"
            )
        return replace(least, unit=self.noise)

    @property
    def federation(self) -> Federation:
        """The federation as its ledgers record it."""
        return Federation(self.name, self.plan.budget, "enforced")

    @property
    def sessions(self) -> int:
        """The number of planned and spare sessions."""
        return len(self.plan.charges()) + self.spare


class Roster(_Public):
    """The members of a federation, in the order of their numbers."""

    charter: _Digest
    number: int = Field(1, ge=1)
    """1 when the federation is founded; each change of members increases it by one."""
    members: tuple[Member, ...]

    @classmethod
    def of(cls, charter: Charter, members: tuple[Member, ...], number: int = 1) -> Self:
        """A roster of these members by name; refused if they are fewer or more than allowed."""
        names = [member.name for member in members]
        least = max(LEAST_MEMBERS, charter.threshold)
        if not least <= len(members) <= charter.members or len(set(names)) != len(names):
            raise ConfigError(
                f"{charter.name!r} has {least} to {charter.members} members with different names, "
                f"not {len(members)} ({', '.join(sorted(names)) or 'none'})"
            )
        ordered = tuple(sorted(members, key=lambda m: m.name))
        return cls(charter=charter.digest, number=number, members=ordered)

    def changes_since(self, old: Roster) -> str:
        """Who joined, left or has another key, in words."""
        before = {member.name: member.identity for member in old.members}
        now = {member.name: member.identity for member in self.members}
        changed = [name for name in now.keys() & before.keys() if now[name] != before[name]]
        parts = {
            "joined": now.keys() - before.keys(),
            "left": before.keys() - now.keys(),
            "new key": changed,
        }
        changes = [f"{what}: {', '.join(sorted(names))}" for what, names in parts.items() if names]
        return "; ".join(changes) or "the same members"

    def terms(self, charter: Charter) -> SumTerms:
        """The terms of the secure sum; refused if the roster belongs to another charter."""
        if self.charter != charter.digest:
            raise ConfigError(
                f"the roster belongs to another charter than that of {charter.name!r}; ask the "
                "server for both files again and compare their fingerprints"
            )
        keys = tuple(member.key for member in self.members)
        name = f"{charter.name} {charter.digest}"
        return SumTerms(name, keys, charter.threshold, charter.colluders)


def fingerprint(content: bytes) -> str:
    """Twenty hexadecimal digits in groups of four, to be compared by reading them aloud."""
    digits = hashlib.sha256(content).hexdigest()[:20]
    return " ".join(digits[i : i + 4] for i in range(0, 20, 4))


def read_model(path: Path, model: type[M]) -> M:
    """Read a file with this model; an error says what is wrong in it."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} could not be read: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {mistakes(error, model)}") from None

"""The server's side of a federation across machines: sessions of the secure sum over a transport.

A release takes three exchanges (mask, consent, unmask), since members send the shares of the next
session with their last answers. If a member has not, all are asked for shares again; if a member
without a channel key can be reached, a new epoch begins. A session that ends without a sum is
repeated as often as the charter allows, with new noise, and every member charges it again.

Numbers of epochs and sessions are on disk before they are used, so a restarted server never uses
one twice. Nothing else is kept here: an unfinished session is given up, and a release that was
charged is finished by the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cslr.errors import CslrError, LedgerCorrupted, StolenIdentity, SumAborted, WrongKind
from cslr.federation.parties.question import framed
from cslr.federation.parties.refusals import meaning_of
from cslr.files import write_atomic
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.secure_sum import Release, SumServer, SumTerms
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from cslr.privacy.secure_sum.messages import Answer
from cslr.privacy.secure_sum.messages import Request as SumRequest
from cslr.privacy.values import Noised

__all__ = ["Coordinator", "Counters", "Event", "Reply", "Transport"]

_SHARES_AHEAD: Final = 2
"""How far a new session is after the last: members may hold shares for the one in between."""


@dataclass(frozen=True)
class Reply:
    """A member's answer, or the code of its refusal."""

    body: bytes = b""
    code: int = 0


class Transport(Protocol):
    """How messages reach the members, which are named by their numbers."""

    def present(self) -> frozenset[int]:
        """The members that can be reached now."""

    def ask(self, route: str, bodies: Mapping[int, bytes], seconds: float) -> dict[int, Reply]:
        """The answers that came within so many seconds; silent members are left out."""


@dataclass(frozen=True)
class Event:
    """An event for the screen and the status file. Nothing in it is private."""

    what: str
    release: str = ""
    session: int = 0
    members: tuple[int, ...] = ()
    detail: str = ""


@dataclass
class Counters:
    """The latest epoch and session, in a file."""

    path: Path
    epoch: int = 0
    session: int = 0

    @classmethod
    def at(cls, path: Path) -> Counters:
        """As they were saved, with the session moved past any that members may have begun."""
        if not path.exists():
            return cls(path)
        try:
            plain = json.loads(path.read_bytes())
            return cls(path, int(plain["epoch"]), int(plain["session"]) + _SHARES_AHEAD)
        except (ValueError, KeyError, TypeError):
            raise LedgerCorrupted(
                f"{path} is damaged; restore it from a backup, or write larger numbers of epoch "
                "and session into it than any before"
            ) from None

    def save(self) -> None:
        """Durable when it returns."""
        plain = {name: value for name, value in asdict(self).items() if name != "path"}
        write_atomic(self.path, json.dumps(plain).encode() + b"\n")


@dataclass
class Coordinator:
    """Asks the members of one federation for sums."""

    terms: SumTerms
    transport: Transport
    counters: Counters
    seconds: float = 120.0
    """The deadline of an exchange; that of the masked vectors is longer."""
    attempts: int = 1
    """Sessions that one release may take."""
    patience: float = 0.0
    """Seconds to wait for enough members before a session begins."""
    on_event: Callable[[Event], None] = lambda event: None
    server: SumServer = field(init=False)
    exchanges: int = field(default=0, init=False)
    """The number of exchanges so far."""

    def __post_init__(self) -> None:
        self.server = SumServer(self.terms)

    def total(self, release: Release, question: bytes, charge: Charge, ledger: Ledger) -> Noised:
        """The sum of the survivors' vectors and noise shares."""
        for attempt in range(1, self.attempts + 1):
            try:
                return self._session(release, question, charge, ledger)
            except SumAborted as error:
                self._tell("aborted", release.label, (), str(error))
                if attempt == self.attempts:
                    raise
        raise ValueError("attempts must be at least 1")

    def _session(self, release: Release, question: bytes, charge: Charge, ledger: Ledger) -> Noised:
        ledger.afford(charge)
        self._wait_for_quorum(release.label)
        self._prepare(release.label)
        # If shares of the next session are there already, ``ask_masks`` begins that session.
        self.counters.session = self.server.session + bool(self.server.prepared)
        self.counters.save()
        masks = self.server.ask_masks(release)
        bodies = {member: framed(question, encode(each)) for member, each in masks.items()}
        self._exchange("mask", bodies, release.label, 5 * self.seconds)
        self._requests("consent", self.server.ask_consent(), release.label)
        self._requests("unmask", self.server.ask_unmask(charge, ledger), release.label)
        noised = self.server.finish()
        self._tell("summed", release.label, noised.survivors)
        return noised

    def _wait_for_quorum(self, label: str) -> None:
        """Wait until enough members can be reached; otherwise a session would end at once."""
        end = time.monotonic() + self.patience
        reported = False
        while len(there := self.transport.present()) < self.terms.quorum:
            if time.monotonic() >= end:
                raise SumAborted(
                    f"only {len(there)} members can be reached; {self.terms.quorum} are needed. "
                    "Start the other nodes and repeat the command"
                )
            if not reported:
                self._tell("waiting", label, tuple(sorted(there)), "for more members")
            reported = True
            time.sleep(1.0)

    def _prepare(self, label: str) -> None:
        """Make sure that all members that can be reached have shared secrets for a session."""
        present = self.transport.present()
        if self.server.prepared and present <= self.server.prepared:
            return
        if not self.server.members or not present <= self.server.members:
            self.counters.epoch += 1
            self.counters.save()
            invitation = encode(self.server.invite(self.counters.epoch))
            everybody = range(len(self.terms.identities))
            self._exchange("keys", dict.fromkeys(everybody, invitation), label, self.seconds)
        self.counters.session = max(self.counters.session, self.server.session) + _SHARES_AHEAD
        self.counters.save()
        self._requests("shares", self.server.ask_shares(self.counters.session), label)

    def _requests(self, route: str, requests: Mapping[int, SumRequest], label: str) -> None:
        bodies = {member: encode(each) for member, each in requests.items()}
        self._exchange(route, bodies, label, self.seconds)

    def _exchange(
        self, route: str, bodies: Mapping[int, bytes], label: str, seconds: float
    ) -> None:
        """Send requests and count every valid answer."""
        self.exchanges += 1
        self._tell(route, label, tuple(bodies))
        replies = self.transport.ask(route, bodies, seconds)
        counted = []
        for member, reply in sorted(replies.items()):
            if reply.code:
                self._tell("refused", label, (member,), meaning_of(reply.code))
                continue
            try:
                self.server.take(self._decoded(member, reply.body))
                counted.append(member)
            except CslrError as error:
                self._tell("rejected", label, (member,), str(error))
        silent = tuple(sorted(set(bodies) - set(replies)))
        if silent:
            self._tell("silent", label, silent, route)
        self._tell("answered", label, tuple(counted), route)

    def _decoded(self, member: int, body: bytes) -> Answer:
        release = self.server.release
        coordinates = 1 if release is None else release.coordinates
        answer = decode(body, SumLimits(len(self.terms.identities), coordinates))
        if not isinstance(answer, Answer):
            raise WrongKind(f"a member sent a {type(answer).__name__}, which only servers send")
        if answer.sender != member:
            raise StolenIdentity(f"member {member} sent an answer of member {answer.sender}")
        return answer

    def _tell(self, what: str, label: str, members: tuple[int, ...] = (), detail: str = "") -> None:
        self.on_event(Event(what, label, self.server.session, members, detail))

"""A federation in one process: members, a server, and messages that travel as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.plan import Budget
from cslr.privacy.secure_sum import Release, SumClient, SumServer, SumTerms
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from cslr.privacy.values import _SEAL, Grid, Noised, Summed, bound, plain_sum
from cslr.seeding import Seeds

GRID = Grid(1.0)
SIGMA = 2.0
PHASES = ("keys", "shares", "masked", "consent", "unmask")


def release(label: str = "task 0", coordinates: int = 3, sigma: float = SIGMA) -> Release:
    return Release(label, coordinates, sigma, GRID)


def charge(label: str = "task 0", sigma: float | None = SIGMA) -> Charge:
    return Charge(label, 0, "replay", sigma)


def rich_ledger(epsilon: float = float("inf")) -> Ledger:
    federation = Federation("clinics", Budget(epsilon), "simulated")
    return Ledger.in_memory(federation, SeededKeys(Seeds(5)))


def summed(row: np.ndarray, grid: Grid = GRID) -> Summed:
    """A member's own vector, clipped."""
    return plain_sum([bound(row[None], grid)])


def carried(message, limits: SumLimits | None = None):
    """What arrives of a message that travelled as bytes."""
    return decode(encode(message), limits or SumLimits(200, 100_000))


@dataclass
class Parties:
    """n members and a server; ``noise`` holds the share each member put into its last vector."""

    n: int
    t: int
    c: int = 1
    most_sessions: int = 1000
    identities: list[Ed25519PrivateKey] = field(init=False)
    terms: SumTerms = field(init=False)
    clients: list[SumClient] = field(init=False)
    server: SumServer = field(init=False)
    noise: dict[int, np.ndarray] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=rich_ledger)

    def __post_init__(self) -> None:
        self.identities = [Ed25519PrivateKey.generate() for _ in range(self.n)]
        public = tuple(each.public_key().public_bytes_raw() for each in self.identities)
        self.terms = SumTerms("clinics", public, self.t, self.c)
        self.clients = [SumClient(self.terms, k, self.most_sessions) for k in self.identities]
        self.server = SumServer(self.terms)

    def restart(self, member: int) -> None:
        """A new process with what the old one had written."""
        state = self.clients[member].state()
        self.clients[member] = SumClient(
            self.terms, self.identities[member], self.most_sessions, state
        )

    # Each phase: ``gone`` do not answer it.

    def join(self, gone: Iterable[int] = (), epoch: int = 1) -> None:
        invitation = carried(self.server.invite(epoch))
        for client in self._there(range(self.n), gone):
            self.server.take(carried(client.join(invitation)))

    def share(self, gone: Iterable[int] = (), session: int = 1) -> None:
        requests = self.server.ask_shares(session)
        for client in self._there(requests, gone):
            self.server.take(carried(client.share(carried(requests[client.number]))))

    def mask(self, rows: np.ndarray, wanted: Release, gone: Iterable[int] = ()) -> None:
        requests = self.server.ask_masks(wanted)
        self.noise = {}
        for client in self._there(requests, gone):
            key = os.urandom(32)
            own = summed(rows[client.number])
            masked = client.mask(carried(requests[client.number]), wanted, own, key)
            scale = self.terms.share_scale(wanted)
            self.noise[client.number] = draw_share(scale, wanted.coordinates, key)
            self.server.take(carried(masked))

    def consent(self, gone: Iterable[int] = ()) -> None:
        requests = self.server.ask_consent()
        for client in self._there(requests, gone):
            self.server.take(carried(client.consent(carried(requests[client.number]))))

    def unmask(self, gone: Iterable[int] = (), prepare: bool = True) -> Noised:
        requests = self.server.ask_unmask(charge(), self.ledger, prepare)
        for client in self._there(requests, gone):
            self.server.take(carried(client.unmask(carried(requests[client.number]))))
        return self.server.finish()

    def expected(self, rows: np.ndarray, survivors: Iterable[int]) -> list[int]:
        """The survivors' clipped vectors and noise shares, added up by other means."""
        total = np.zeros(rows.shape[1], dtype=object)
        for member in survivors:
            total += summed(rows[member]).total(_SEAL).astype(object)
            total += self.noise[member].astype(object)
        return [int(each) for each in total]

    def session(self, rows: np.ndarray, wanted: Release, gone: dict[str, list[int]]) -> Noised:
        """All five exchanges; ``gone[phase]`` are gone from that phase on."""
        lost: list[int] = []
        after: dict[str, list[int]] = {}
        for phase in PHASES:
            lost = [*lost, *gone.get(phase, [])]
            after[phase] = lost
        self.join(after["keys"])
        self.share(after["shares"])
        self.mask(rows, wanted, after["masked"])
        self.consent(after["consent"])
        return self.unmask(after["unmask"])

    def _there(self, asked: Iterable[int], gone: Iterable[int]) -> list[SumClient]:
        absent = set(gone)
        return [self.clients[member] for member in asked if member not in absent]


def exact(noised: Noised) -> list[int]:
    return [int(each) for each in noised.total(_SEAL)]

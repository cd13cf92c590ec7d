"""Clients on other machines, which the protocol can ask only for noised sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from cslr.arrays import BoolArray
from cslr.errors import PrivacyError
from cslr.federation.parties.asking import pack_ask, release_of
from cslr.federation.parties.charter import Charter
from cslr.federation.parties.coordinator import Coordinator
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.values import Bounded, Noised, Summed
from cslr.protocol.ports import Ask

__all__ = ["RemoteClients", "RemoteCohort"]


@dataclass(frozen=True, eq=False)
class RemoteClients:
    """The registered units of a federation, which its nodes hold."""

    charter: Charter
    coordinator: Coordinator

    @property
    def count(self) -> int:
        """N: units, not nodes."""
        return self.charter.units

    def cohort(
        self,
        task: int,
        taking_part: BoolArray,
        cap: int,
        cap_memory: CapMemory | None = None,
        alone: bool = False,
    ) -> RemoteCohort:
        """All nodes: each enforces the caps of its own units, and all of them take part."""
        return RemoteCohort(self.coordinator)


@dataclass(frozen=True, eq=False)
class RemoteCohort:
    """The nodes of one round: a ``NoisedCohort``."""

    coordinator: Coordinator
    head: str = ""
    """SHA-256 of the head's file, where right answers are counted."""

    def noised(self, ask: Ask[Any], charge: Charge, ledger: Ledger) -> Noised:
        """The sum that the survivors noised themselves."""
        if charge.sigma is None:
            raise PrivacyError(f"{ask.label!r} has no noise; across machines nodes always add some")
        release = release_of(ask, charge.sigma)
        question = pack_ask(ask, self.head)
        return self.coordinator.total(release, question, charge, ledger)

    def total(self, ask: Ask[Any]) -> Summed:
        """Refused: a sum without noise exists on no machine."""
        self._refuse(ask)

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], Sequence[Bounded]]:
        """Refused: single answers do not leave a node."""
        self._refuse(ask)

    def _refuse(self, ask: Ask[Any]) -> NoReturn:
        raise PrivacyError(
            f"{ask.label!r}: across machines nodes send noised sums alone; use a method and "
            "settings that release a sum"
        )

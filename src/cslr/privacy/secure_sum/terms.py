"""What the parties of a secure sum agreed on before the first message. All of it is PUBLIC.

A client reads both objects from files of its own and compares the server's requests with them. It
accepts nothing that protects it from the server.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cslr.errors import ConfigError, TooFewMembers
from cslr.privacy.noise_shares import effective_multiplier, reserved_delta, share_scale
from cslr.privacy.values import Grid

__all__ = ["LEAST_MEMBERS", "MOST_COORDINATES", "MOST_LABEL", "MOST_MEMBERS", "Release", "SumTerms"]

LEAST_MEMBERS: Final = 3
"""With two, each would learn the other's vector from the sum."""
MOST_MEMBERS: Final = 10_000
"""A draw is below 64 times its scale, which is at most 2⁴⁰ steps: no sum leaves 2⁶⁰."""
MOST_COORDINATES: Final = 2**24
MOST_LABEL: Final = 256
"""Bytes of a label in UTF-8."""


@dataclass(frozen=True)
class Release:
    """One vector that is to be summed and published."""

    label: str
    """Its name in the ledger."""
    coordinates: int  # D
    sigma: float
    """The noise multiplier that is left after the colluders' shares are gone."""
    grid: Grid

    def __post_init__(self) -> None:
        if not 1 <= len(self.label.encode()) <= MOST_LABEL:
            raise ConfigError(f"a label must have 1 to {MOST_LABEL} bytes")
        if not 1 <= self.coordinates <= MOST_COORDINATES:
            raise ConfigError(f"coordinates must lie in 1..2^24, not {self.coordinates}")
        if not 0 < self.sigma < math.inf:
            raise ConfigError(f"sigma must be positive and finite, not {self.sigma}")

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that identify this release."""
        numbers = (self.coordinates, self.sigma, self.grid.bound, self.grid.steps)
        return hashlib.sha256(struct.pack("<IddI", *numbers) + self.label.encode()).digest()


@dataclass(frozen=True)
class SumTerms:
    """Who takes part, and how many of them may fail or collude."""

    federation: str
    identities: tuple[bytes, ...]
    """Ed25519 public keys; a member's number is its place here."""
    threshold: int
    """t: this many shares open a secret, and a sum has at least this many survivors."""
    colluders: int
    """c: up to this many members may work with the server; the noise of the others suffices."""

    def __post_init__(self) -> None:
        n = len(self.identities)
        if n < LEAST_MEMBERS:
            raise TooFewMembers(f"a secure sum needs at least {LEAST_MEMBERS} members, not {n}")
        if n > MOST_MEMBERS:
            raise ConfigError(f"a secure sum has at most {MOST_MEMBERS} members, not {n}")
        if len(set(self.identities)) != n or any(len(key) != 32 for key in self.identities):
            raise ConfigError("identities must be different Ed25519 public keys of 32 bytes")
        if not 1 <= self.colluders < self.threshold <= n:
            raise ConfigError(
                f"colluders and threshold must satisfy 1 ≤ c < t ≤ {n}, not c = {self.colluders}, "
                f"t = {self.threshold}"
            )

    @property
    def quorum(self) -> int:
        """How many survivors must sign one set of survivors before anybody unmasks.

        At least t, and so many that two sets cannot both be signed: an honest member signs once
        and c colluders sign anything, so two sets need 2·quorum ≤ n + c signatures.
        """
        return max(self.threshold, (len(self.identities) + self.colluders) // 2 + 1)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that identify these terms; every signature, key and mask depends on them."""
        head = struct.pack("<III", len(self.identities), self.threshold, self.colluders)
        return hashlib.sha256(head + b"".join(self.identities) + self.federation.encode()).digest()

    def share_scale(self, release: Release) -> float:
        """Grid steps: the standard deviation of each member's noise share."""
        return share_scale(release.sigma, release.grid.steps, self.threshold, self.colluders)

    def multiplier(self, release: Release, survivors: int) -> float:
        """Standard deviation of all noise in a release of so many survivors, over the bound."""
        steps = release.grid.steps
        return effective_multiplier(release.sigma, steps, self.threshold, self.colluders, survivors)

    def reserved_delta(self, release: Release) -> float:
        """The part of δ that the samplers' own error uses up in this release."""
        return reserved_delta(len(self.identities), release.coordinates)

"""What a member of a secure sum keeps across a restart, in a file of its own.

PRIVATE: secret keys and shares. The owner writes it with mode 0600 before it sends the answer that
led to it, so that a restarted member never composes an answer twice. A checksum detects damage. A
member whose state is lost counts as dropped and joins the next epoch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from cslr.errors import SumStateCorrupted

__all__ = ["ClientState", "Held", "Phase", "SumSession"]

Phase = Literal["shared", "masked", "consented"]
_VERSION = 1


@dataclass(frozen=True, repr=False)
class Held:
    """PRIVATE. A member's shares of the secrets of one member that shared."""

    member: int
    key_share: bytes
    seed_share: bytes


@dataclass(frozen=True, repr=False)
class SumSession:
    """A session that this member has shared secrets for."""

    number: int
    phase: Phase
    mask_secret: bytes
    seed: bytes
    own_key_share: bytes
    own_seed_share: bytes
    held: tuple[Held, ...] = ()
    """From the masked vector on: all that shared, itself among them, in order."""
    transcript: bytes = b""
    """The digest of the release and of all mask keys."""
    alive: tuple[int, ...] = ()
    """From consent on: whom this member signed as surviving."""


@dataclass(frozen=True, repr=False)
class ClientState:
    """Everything that is kept between messages."""

    epoch: int = 0
    channel_secret: bytes = b""
    book: tuple[tuple[int, bytes], ...] = ()
    """The channel keys of this epoch's members, verified."""
    session: SumSession | None = None
    last_shared: int = 0
    """The latest session for which secrets were shared; a later one must have a higher number."""
    last_unmasked: int = 0
    noise_keys: tuple[bytes, ...] = ()
    """Fingerprints of the noise shares used: one for every masked vector that was ever made."""

    def in_session(self, **changes: Any) -> Self:
        """The same with these changes of its session."""
        if self.session is None:
            raise ValueError("there is no session")
        return replace(self, session=replace(self.session, **changes))

    def between_sessions(self) -> Self:
        """Without the secrets of epoch and session: what also holds under other terms."""
        return replace(self, channel_secret=b"", book=(), session=None)

    def as_bytes(self, terms: bytes) -> bytes:
        """For a file that only its owner can read."""
        plain = {"version": _VERSION, "terms": terms, **asdict(self)}
        body = json.dumps(plain, default=bytes.hex, separators=(",", ":")).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, content: bytes, terms: bytes) -> Self:
        """The inverse of ``as_bytes``, under the same terms."""
        checksum, _, body = content.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise SumStateCorrupted(
                "the kept state of the secure sum is damaged: remove the file; this member takes "
                "part again from the next epoch on"
            )
        plain = json.loads(body)
        if plain.pop("version") != _VERSION or bytes.fromhex(plain.pop("terms")) != terms:
            raise SumStateCorrupted(
                "the kept state of the secure sum belongs to other terms or another version: use "
                "the terms it was made under, or remove the file"
            )
        return cls(
            epoch=plain["epoch"],
            channel_secret=bytes.fromhex(plain["channel_secret"]),
            book=tuple((member, bytes.fromhex(key)) for member, key in plain["book"]),
            session=None if plain["session"] is None else _session(plain["session"]),
            last_shared=plain["last_shared"],
            last_unmasked=plain["last_unmasked"],
            noise_keys=tuple(map(bytes.fromhex, plain["noise_keys"])),
        )


def _session(plain: dict[str, Any]) -> SumSession:
    held = (
        Held(each["member"], bytes.fromhex(each["key_share"]), bytes.fromhex(each["seed_share"]))
        for each in plain["held"]
    )
    return SumSession(
        number=plain["number"],
        phase=plain["phase"],
        mask_secret=bytes.fromhex(plain["mask_secret"]),
        seed=bytes.fromhex(plain["seed"]),
        own_key_share=bytes.fromhex(plain["own_key_share"]),
        own_seed_share=bytes.fromhex(plain["own_seed_share"]),
        held=tuple(held),
        transcript=bytes.fromhex(plain["transcript"]),
        alive=tuple(plain["alive"]),
    )

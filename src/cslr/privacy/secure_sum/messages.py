"""The messages of a secure sum: five that the server sends and the five answers of a member.

========================= ==================== ==================================================
server asks               a member answers     when
========================= ==================== ==================================================
``Invitation``            ``Keys``             once in an epoch
``ShareRequest``          ``Shares``           once in an epoch, and after an aborted session
``MaskRequest``           ``Masked``           in every session
``ConsentRequest``        ``Consent``          in every session
``UnmaskRequest``         ``Unmasked``         in every session; brings the next ``Shares``
========================= ==================== ==================================================

An answer is signed by its member's identity. Members are named by their number in the terms.
``codec`` checks only the form of a message; client and server check its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from cslr.privacy.secure_sum.masks import NONCE_BYTES, TAG_BYTES
from cslr.privacy.secure_sum.shamir import SHARE_BYTES
from cslr.privacy.secure_sum.terms import Release

__all__ = [
    "SEALED_BYTES",
    "Answer",
    "Consent",
    "ConsentRequest",
    "Invitation",
    "Keys",
    "MaskRequest",
    "Masked",
    "Parcel",
    "PeerKey",
    "Request",
    "ShareRequest",
    "Shares",
    "UnmaskRequest",
    "Unmasked",
]

SEALED_BYTES: Final = NONCE_BYTES + 2 * SHARE_BYTES + TAG_BYTES
"""The shares of a mask key and of a seed, for one receiver."""


@dataclass(frozen=True)
class Invitation:
    """The server asks for a channel key under these terms."""

    epoch: int
    members: int  # n
    threshold: int  # t
    colluders: int  # c
    terms: bytes
    """The digest of everything that was agreed."""


@dataclass(frozen=True)
class Keys:
    """A member's channel key, with which peers seal shares for it."""

    epoch: int
    sender: int
    public: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class PeerKey:
    """A member's channel key as the server passes it on."""

    member: int
    public: bytes
    signature: bytes


@dataclass(frozen=True)
class ShareRequest:
    """The channel keys of an epoch, with which the server asks for the shares of a session."""

    epoch: int
    session: int
    keys: tuple[PeerKey, ...]


@dataclass(frozen=True)
class Shares:
    """A member's mask key, a commitment to its seed, and sealed shares of both secrets."""

    session: int
    sender: int
    mask_key: bytes
    commitment: bytes
    sealed: tuple[bytes, ...]
    """One for each other member of the epoch, in the order of their numbers. Each also
    authenticates mask key and commitment to its receiver."""
    signature: bytes = b""
    """Empty within an ``Unmasked``, whose signature covers it."""


@dataclass(frozen=True)
class Parcel:
    """The part of a member's ``Shares`` for one receiver; for itself ``sealed`` is zeros."""

    member: int
    mask_key: bytes
    commitment: bytes
    sealed: bytes


@dataclass(frozen=True)
class MaskRequest:
    """The members that shared, and the release for which the server asks for masked vectors."""

    session: int
    release: Release
    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Masked:
    """A member's vector with its noise share, under masks."""

    session: int
    sender: int
    release: bytes
    """The digest of the release it was made for."""
    vector: bytes
    """D little-endian 64-bit words."""
    signature: bytes = b""


@dataclass(frozen=True)
class ConsentRequest:
    """The members whose vectors arrived, and those whose did not."""

    session: int
    alive: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True)
class Consent:
    """A member's consent to one set of survivors."""

    session: int
    sender: int
    digest: bytes
    """Of the release, of all mask keys, and of who is alive and who dropped."""
    tags: tuple[bytes, ...]
    """One for each other survivor, in order; only that survivor can check it."""
    signature: bytes = b""


@dataclass(frozen=True)
class UnmaskRequest:
    """The other survivors' consents; the server asks for the shares that remove the masks."""

    session: int
    consents: tuple[tuple[int, bytes], ...]
    """Member, and its tag for the receiver of this request."""
    prepare: bool
    """Whether the answer is to have the shares for the next session."""


@dataclass(frozen=True)
class Unmasked:
    """A share for each member that shared: of a survivor's seed, of a dropped one's mask key."""

    session: int
    sender: int
    shares: tuple[bytes, ...]
    following: Shares | None
    signature: bytes = b""


Request: TypeAlias = Invitation | ShareRequest | MaskRequest | ConsentRequest | UnmaskRequest
Answer: TypeAlias = Keys | Shares | Masked | Consent | Unmasked

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
Nothing here is checked beyond its form: ``codec`` reads the form, client and server the meaning.
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
    """The server asks for a channel key and says under which terms."""

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
    """The channel keys of an epoch; the server asks for the shares of a session."""

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
    """One for each other member of the epoch, in the order of their numbers. Each authenticates
    mask key and commitment to its receiver."""
    signature: bytes = b""
    """Empty within an ``Unmasked``, whose signature covers it."""


@dataclass(frozen=True)
class Parcel:
    """What one member gets of another's ``Shares``; of its own, ``sealed`` is zeros."""

    member: int
    mask_key: bytes
    commitment: bytes
    sealed: bytes


@dataclass(frozen=True)
class MaskRequest:
    """Who shared, and the release for which masked vectors are asked."""

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
    """Whose vectors arrived and whose did not."""

    session: int
    alive: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True)
class Consent:
    """A member's word that it agrees to one set of survivors."""

    session: int
    sender: int
    digest: bytes
    """Of the release, of all mask keys, and of who is alive and who dropped."""
    tags: tuple[bytes, ...]
    """One for each other survivor, in order, which it alone can check."""
    signature: bytes = b""


@dataclass(frozen=True)
class UnmaskRequest:
    """Other survivors' consents; the server asks for the shares that take the masks off."""

    session: int
    consents: tuple[tuple[int, bytes], ...]
    """Member, and its tag for the receiver of this request."""
    prepare: bool
    """Whether the shares of the next session are to come along."""


@dataclass(frozen=True)
class Unmasked:
    """For each member that shared: of a survivor its seed's share, of others their mask key's."""

    session: int
    sender: int
    shares: tuple[bytes, ...]
    following: Shares | None
    signature: bytes = b""


Request: TypeAlias = Invitation | ShareRequest | MaskRequest | ConsentRequest | UnmaskRequest
Answer: TypeAlias = Keys | Shares | Masked | Consent | Unmasked

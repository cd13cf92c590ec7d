"""The bytes of the messages of a secure sum: one encoding each, no pickle, sizes checked first.

    6 bytes    magic "CSUM", version, kind
    body       fixed fields; a count before what is repeated; little-endian
    64 bytes   of an answer: Ed25519 over the terms and SHA-256 of all before

Guarantee: ``decode`` returns a message or raises a ``MessageError``, whatever the bytes, and makes
nothing larger than ``SumLimits`` allows. The sender is unknown until the signature is verified.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from cslr.errors import (
    BadField,
    CslrError,
    MalformedMessage,
    MessageTooLarge,
    TrailingBytes,
    TruncatedMessage,
    UnsupportedVersion,
    WrongKind,
)
from cslr.privacy.secure_sum.masks import CONSENT_BYTES
from cslr.privacy.secure_sum.messages import (
    SEALED_BYTES,
    Answer,
    Consent,
    ConsentRequest,
    Invitation,
    Keys,
    Masked,
    MaskRequest,
    Parcel,
    PeerKey,
    Request,
    ShareRequest,
    Shares,
    Unmasked,
    UnmaskRequest,
)
from cslr.privacy.secure_sum.shamir import SHARE_BYTES, are_shares
from cslr.privacy.secure_sum.terms import MOST_COORDINATES, MOST_LABEL, MOST_MEMBERS, Release
from cslr.privacy.values import Grid

__all__ = ["SIGNATURE_BYTES", "SumLimits", "decode", "encode", "unsigned"]

MAGIC: Final = b"CSUM"
VERSION: Final = 2
_PREFIX: Final = MAGIC + bytes([VERSION])
SIGNATURE_BYTES: Final = 64
T = TypeVar("T")


@dataclass(frozen=True)
class SumLimits:
    """The most that a receiver reads; it knows the terms and the release."""

    members: int = MOST_MEMBERS
    coordinates: int = MOST_COORDINATES

    @property
    def bytes(self) -> int:
        """The largest message that is read."""
        a_member = 4 + 32 + SIGNATURE_BYTES + 2 * SEALED_BYTES + SHARE_BYTES
        return 4096 + self.members * a_member + 8 * self.coordinates


@dataclass
class _Reader:
    """The rest of a message."""

    data: bytes
    limits: SumLimits
    at: int = 0

    def raw(self, size: int) -> bytes:
        if len(self.data) - self.at < size:
            raise TruncatedMessage(f"{len(self.data)} bytes; at least {self.at + size} expected")
        self.at += size
        return self.data[self.at - size : self.at]

    def u8(self) -> int:
        return self.raw(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.raw(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.raw(8), "little")

    def f64(self) -> float:
        value: float = struct.unpack("<d", self.raw(8))[0]
        return value

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise BadField(f"a flag is 0 or 1, not {value}")
        return value == 1

    def count(self) -> int:
        count = self.u32()
        if count > self.limits.members:
            raise MessageTooLarge(f"{count} entries; at most {self.limits.members} are read")
        return count

    def many(self, one: Callable[[], T]) -> tuple[T, ...]:
        return tuple(one() for _ in range(self.count()))

    def pieces(self, size: int) -> tuple[bytes, ...]:
        block = self.raw(self.count() * size)
        return tuple(block[at : at + size] for at in range(0, len(block), size))

    def end(self) -> None:
        if self.at != len(self.data):
            raise TrailingBytes(f"{len(self.data) - self.at} bytes follow after the message")


def encode(message: Request | Answer) -> bytes:
    """A message as bytes; equal messages have equal bytes."""
    return unsigned(message) + getattr(message, "signature", b"")


def unsigned(message: Request | Answer) -> bytes:
    """The bytes that the signature of an answer covers; all bytes of a request."""
    return _PREFIX + bytes([_KIND_OF[type(message)]]) + _WRITERS[type(message)](message)


def decode(data: bytes, limits: SumLimits) -> Request | Answer:
    """The message in these bytes; refused unless they are exactly one."""
    if len(data) > limits.bytes:
        raise MessageTooLarge(f"{len(data)} bytes; at most {limits.bytes} are read")
    reader = _Reader(data, limits)
    if reader.raw(4) != MAGIC:
        raise MalformedMessage("this is no message of a secure sum: it does not begin with CSUM")
    if (version := reader.u8()) != VERSION:
        raise UnsupportedVersion(f"format {version} is not read here, only {VERSION}")
    read = _READERS.get(kind := reader.u8())
    if read is None:
        raise WrongKind(f"unknown kind {kind} of message in a secure sum")
    message: Request | Answer = read(reader)
    reader.end()
    return message


# -- writing ---------------------------------------------------------------------------------------


def _many(parts: tuple[bytes, ...]) -> bytes:
    return struct.pack("<I", len(parts)) + b"".join(parts)


def _sender(message: Any) -> bytes:
    return struct.pack("<QI", message.session, message.sender)


def _release(release: Release) -> bytes:
    numbers = (release.coordinates, release.sigma, release.grid.bound, release.grid.steps)
    label = release.label.encode()
    return struct.pack("<IddIH", *numbers, len(label)) + label


def _numbers(members: tuple[int, ...]) -> bytes:
    return struct.pack(f"<I{len(members)}I", len(members), *members)


def _peer_key(key: PeerKey) -> bytes:
    return struct.pack("<I", key.member) + key.public + key.signature


def _parcel(parcel: Parcel) -> bytes:
    head = struct.pack("<I", parcel.member)
    return head + parcel.mask_key + parcel.commitment + parcel.sealed


def _following(shares: Shares | None) -> bytes:
    return b"\0" if shares is None else b"\1" + unsigned(shares)


_WRITERS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    Invitation: lambda m: (
        struct.pack("<QIII", m.epoch, m.members, m.threshold, m.colluders) + m.terms
    ),
    Keys: lambda m: struct.pack("<QI", m.epoch, m.sender) + m.public,
    ShareRequest: lambda m: (
        struct.pack("<QQ", m.epoch, m.session) + _many(tuple(map(_peer_key, m.keys)))
    ),
    Shares: lambda m: _sender(m) + m.mask_key + m.commitment + _many(m.sealed),
    MaskRequest: lambda m: (
        struct.pack("<Q", m.session) + _release(m.release) + _many(tuple(map(_parcel, m.parcels)))
    ),
    Masked: lambda m: _sender(m) + m.release + struct.pack("<I", len(m.vector) // 8) + m.vector,
    ConsentRequest: lambda m: (
        struct.pack("<Q", m.session) + _numbers(m.alive) + _numbers(m.dropped)
    ),
    Consent: lambda m: _sender(m) + m.digest + _many(m.tags),
    UnmaskRequest: lambda m: (
        struct.pack("<Q?", m.session, m.prepare)
        + _many(tuple(struct.pack("<I", member) + tag for member, tag in m.consents))
    ),
    Unmasked: lambda m: _sender(m) + _many(m.shares) + _following(m.following),
}
_KIND_OF: Final = {kind: number for number, kind in enumerate(_WRITERS, start=1)}


# -- reading ---------------------------------------------------------------------------------------


def _read_release(r: _Reader) -> Release:
    coordinates, sigma, bound, steps = r.u32(), r.f64(), r.f64(), r.u32()
    length = int.from_bytes(r.raw(2), "little")
    if length > MOST_LABEL:
        raise MessageTooLarge(f"a label of {length} bytes; at most {MOST_LABEL} are read")
    label = r.raw(length)
    if coordinates > r.limits.coordinates:
        raise MessageTooLarge(f"{coordinates} coordinates; at most {r.limits.coordinates} are read")
    try:
        return Release(label.decode(), coordinates, sigma, Grid(bound, steps))
    except (ValueError, CslrError) as error:
        raise BadField(f"not a release: {str(error)[:100]}") from None


def _read_vector(r: _Reader) -> bytes:
    count = r.u32()
    if count > r.limits.coordinates:
        raise MessageTooLarge(f"{count} coordinates; at most {r.limits.coordinates} are read")
    return r.raw(8 * count)


def _read_open_shares(r: _Reader) -> tuple[bytes, ...]:
    shares = r.pieces(SHARE_BYTES)
    if not are_shares(shares):
        raise BadField("a share is not made of residues modulo 2^31 - 1")
    return shares


def _read_following(r: _Reader) -> Shares | None:
    if not r.flag():
        return None
    if r.raw(len(_PREFIX)) != _PREFIX:
        raise MalformedMessage("the next session's shares do not begin as a message does")
    if r.u8() != _KIND_OF[Shares]:
        raise WrongKind("only the shares of the next session may come with an unmasking answer")
    return _read_unsigned_shares(r)


def _read_keys(r: _Reader) -> Keys:
    return Keys(r.u64(), r.u32(), r.raw(32), r.raw(SIGNATURE_BYTES))


def _read_share_request(r: _Reader) -> ShareRequest:
    def key() -> PeerKey:
        return PeerKey(r.u32(), r.raw(32), r.raw(SIGNATURE_BYTES))

    return ShareRequest(r.u64(), r.u64(), r.many(key))


def _read_unsigned_shares(r: _Reader) -> Shares:
    return Shares(r.u64(), r.u32(), r.raw(32), r.raw(32), r.pieces(SEALED_BYTES))


def _read_shares(r: _Reader) -> Shares:
    return replace(_read_unsigned_shares(r), signature=r.raw(SIGNATURE_BYTES))


def _read_mask_request(r: _Reader) -> MaskRequest:
    def parcel() -> Parcel:
        return Parcel(r.u32(), r.raw(32), r.raw(32), r.raw(SEALED_BYTES))

    return MaskRequest(r.u64(), _read_release(r), r.many(parcel))


def _read_unmask_request(r: _Reader) -> UnmaskRequest:
    session, prepare = r.u64(), r.flag()
    consents = r.many(lambda: (r.u32(), r.raw(CONSENT_BYTES)))
    return UnmaskRequest(session, consents, prepare)


def _read_unmasked(r: _Reader) -> Unmasked:
    head, shares = (r.u64(), r.u32()), _read_open_shares(r)
    return Unmasked(*head, shares, _read_following(r), r.raw(SIGNATURE_BYTES))


_READERS: Final[Mapping[int, Callable[[_Reader], Any]]] = {
    _KIND_OF[Invitation]: lambda r: Invitation(r.u64(), r.u32(), r.u32(), r.u32(), r.raw(32)),
    _KIND_OF[Keys]: _read_keys,
    _KIND_OF[ShareRequest]: _read_share_request,
    _KIND_OF[Shares]: _read_shares,
    _KIND_OF[MaskRequest]: _read_mask_request,
    _KIND_OF[Masked]: lambda r: Masked(
        r.u64(), r.u32(), r.raw(32), _read_vector(r), r.raw(SIGNATURE_BYTES)
    ),
    _KIND_OF[ConsentRequest]: lambda r: ConsentRequest(r.u64(), r.many(r.u32), r.many(r.u32)),
    _KIND_OF[Consent]: lambda r: Consent(
        r.u64(), r.u32(), r.raw(32), r.pieces(CONSENT_BYTES), r.raw(SIGNATURE_BYTES)
    ),
    _KIND_OF[UnmaskRequest]: _read_unmask_request,
    _KIND_OF[Unmasked]: _read_unmasked,
}

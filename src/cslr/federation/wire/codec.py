"""The envelope of a client's integers: signed, strictly parsed, and without pickle.

    prefix      14 bytes   magic "CSLR", format version u16, header length u32, body length u32
    header      msgpack    one flat map of exactly the known fields, in their order
    body        raw        little-endian 64-bit integers, ``shape`` of them
    signature   64 bytes   Ed25519 over everything before it

All numbers are little-endian. Every message has one encoding only: a header that encodes to other
bytes than it had is refused. So two messages are equal exactly if their bytes are.

Guarantee: ``decode`` returns a ``Message`` or raises a ``MessageError``, whatever the bytes; sizes
are checked before anything of that size is allocated. The sender is only known after
``Message.verify``.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, get_args

import msgpack
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cslr.arrays import IntArray
from cslr.errors import (
    BadClientId,
    BadField,
    BadSignature,
    MalformedHeader,
    MalformedMessage,
    MessageTooLarge,
    MissingField,
    TrailingBytes,
    TruncatedMessage,
    UnknownField,
    UnsupportedVersion,
    WrongDtype,
    WrongKind,
    WrongShape,
)

__all__ = [
    "KINDS",
    "PREFIX_BYTES",
    "SIGNATURE_BYTES",
    "VERSION",
    "Header",
    "Kind",
    "Limits",
    "Message",
    "Question",
    "announced",
    "decode",
    "encode",
    "fingerprint",
]

Kind = Literal["sum", "block", "list", "update", "join"]
"""A task's joint vector · one of its four statistics · a noised list · a head's update · a key."""

KINDS: Final[tuple[str, ...]] = get_args(Kind)
MAGIC: Final = b"CSLR"
VERSION: Final = 2  # 1 did not say under which terms an answer was made
DTYPE: Final = "<i8"
NONCE_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 16
TERMS_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
LONGEST_NAME: Final = 256
_PREFIX: Final = struct.Struct("<4sHII")
PREFIX_BYTES: Final = _PREFIX.size
_CLIENT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Limits:
    """The most bytes that a receiver reads; they follow from what it asked for."""

    body: int = 4 * 2**20
    header: int = 64 * 2**10


@dataclass(frozen=True)
class Question:
    """What a message answers. PUBLIC."""

    federation: str
    run: str
    round: int
    """The number of the question in its run, by which old and future answers are recognised."""
    label: str
    """The release's name in the ledger."""
    kind: Kind
    terms: bytes
    """The digest of bound, grid, noise and public space (``wire.terms``)."""


@dataclass(frozen=True)
class Header:
    """The metadata of a body."""

    question: Question
    client: str
    signer: bytes
    """The fingerprint of the key that signs."""
    nonce: bytes
    """Fresh when a message is composed, unchanged when it is resent."""
    shape: tuple[int, int]  # (b, D); D = 0 for a statistic that a task does not have


@dataclass(frozen=True, eq=False)
class Message:
    """A well-formed message. Its sender is not known before ``verify``."""

    header: Header
    rows: IntArray
    """(b, D), read-only."""
    signed: memoryview
    signature: memoryview

    def verify(self, public: bytes) -> None:
        """Raise unless the holder of this key signed these very bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(self.signature, self.signed)
        except (InvalidSignature, ValueError):
            raise BadSignature(
                f"the signature does not verify with the key of {self.header.client!r}; sign "
                "again, or register the signing key"
            ) from None


def fingerprint(public: bytes) -> bytes:
    """The short name of a public key."""
    return hashlib.sha256(public).digest()[:FINGERPRINT_BYTES]


def encode(header: Header, rows: IntArray, key: Ed25519PrivateKey) -> bytes:
    """The bytes of a message; ``ValueError`` if they could not be decoded again."""
    if rows.dtype != np.int64 or rows.shape != header.shape:
        raise ValueError(f"rows must be 64-bit integers of shape {header.shape}")
    fields = _fields_of(header)
    for name, value in fields.items():
        if not _VALID[name](value):
            raise ValueError(f"header: {name} cannot be {value!r}")
    head, body = _packed(fields), rows.astype(DTYPE, copy=False).tobytes()
    signed = _PREFIX.pack(MAGIC, VERSION, len(head), len(body)) + head + body
    return signed + key.sign(signed)


def announced(prefix: bytes, limits: Limits) -> tuple[int, int]:
    """The lengths of header and body that a prefix announces; refused beyond the limits."""
    if len(prefix) < PREFIX_BYTES:
        raise TruncatedMessage(f"{len(prefix)} bytes are shorter than the prefix of {PREFIX_BYTES}")
    magic, version, head, body = _PREFIX.unpack_from(prefix)
    if magic != MAGIC:
        raise MalformedMessage("not a CSLR message: it does not begin with the bytes CSLR")
    if version != VERSION:
        raise UnsupportedVersion(f"message format {version} is not supported, only {VERSION}")
    if head > limits.header:
        raise MessageTooLarge(f"the header has {head} bytes; at most {limits.header} are allowed")
    if body > limits.body:
        raise MessageTooLarge(f"the body has {body} bytes; at most {limits.body} are allowed")
    return head, body


def decode(data: bytes, limits: Limits) -> Message:
    """The message in these bytes; refused unless they are exactly one."""
    head, body = announced(data, limits)
    length = PREFIX_BYTES + head + body + SIGNATURE_BYTES
    if len(data) < length:
        raise TruncatedMessage(
            f"only {len(data)} of {length} bytes arrived; send the whole message again"
        )
    if len(data) > length:
        raise TrailingBytes(f"{len(data) - length} extra bytes follow the message")
    start = PREFIX_BYTES + head
    header = _header(data[PREFIX_BYTES:start])
    if 8 * header.shape[0] * header.shape[1] != body:
        raise WrongShape(
            f"a body of {body} bytes does not contain 64-bit integers of shape {header.shape}"
        )
    rows = np.frombuffer(data, dtype=DTYPE, count=body // 8, offset=start)
    rows = rows.astype(np.int64, copy=False).reshape(header.shape)
    whole = memoryview(data)
    return Message(header, rows, whole[: start + body], whole[start + body :])


# -- the header ------------------------------------------------------------------------------------


def _is_name(value: object) -> bool:
    return type(value) is str and 0 < len(value) <= LONGEST_NAME


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_count, value))


_VALID: Final[Mapping[str, Callable[[object], bool]]] = {
    "version": _is_count,
    "federation": _is_name,
    "run": _is_name,
    "round": _is_count,
    "label": _is_name,
    "kind": _is_name,
    "terms": lambda value: type(value) is bytes and len(value) == TERMS_BYTES,
    "client": lambda value: type(value) is str and _CLIENT.fullmatch(value) is not None,
    "signer": lambda value: type(value) is bytes and len(value) == FINGERPRINT_BYTES,
    "nonce": lambda value: type(value) is bytes and len(value) == NONCE_BYTES,
    "dtype": _is_name,
    "shape": _is_shape,
}
"""The fields of a header, in their order, and what they may hold."""
_ASKED: Final = ("federation", "run", "round", "label", "kind", "terms")


def _fields_of(header: Header) -> dict[str, object]:
    asked = header.question
    return {
        "version": VERSION,
        "federation": asked.federation,
        "run": asked.run,
        "round": asked.round,
        "label": asked.label,
        "kind": asked.kind,
        "terms": asked.terms,
        "client": header.client,
        "signer": header.signer,
        "nonce": header.nonce,
        "dtype": DTYPE,
        "shape": header.shape,
    }


def _packed(fields: Mapping[str, object]) -> bytes:
    # The packer's own buffer would be 256 KB for every message.
    packed: bytes = msgpack.packb(fields, use_bin_type=True, buf_size=1024)
    return packed


def _header(data: bytes) -> Header:
    """Parse a header strictly; an error names the first thing that is wrong."""
    fields = _unpacked(data)
    unknown, missing = fields.keys() - _VALID.keys(), _VALID.keys() - fields.keys()
    if unknown:
        raise UnknownField(f"unknown header field {str(unknown.pop())[:80]!r}")
    if missing:
        raise MissingField(f"the header lacks {', '.join(sorted(missing))}")
    for name, valid in _VALID.items():
        if not valid(fields[name]):
            _refuse(name, fields[name])
    if fields["version"] != VERSION:
        raise UnsupportedVersion(
            f"the header has format {fields['version']}, but the prefix {VERSION}"
        )
    if fields["dtype"] != DTYPE:
        raise WrongDtype(f"numbers must be {DTYPE!r}, not {fields['dtype']!r}")
    if fields["kind"] not in KINDS:
        raise WrongKind(f"unknown message kind {fields['kind']!r}; known kinds: {', '.join(KINDS)}")
    rows, width = fields["shape"]
    asked = Question(*(fields[name] for name in _ASKED))
    header = Header(asked, fields["client"], fields["signer"], fields["nonce"], (rows, width))
    if _packed(_fields_of(header)) != data:
        raise MalformedHeader("the header is not in canonical encoding")
    return header


def _refuse(name: str, value: object) -> NoReturn:
    said = repr(value[:80] if isinstance(value, str | bytes) else value)[:200]
    if name == "client":
        raise BadClientId(f"a client id must be 1 to 64 characters of A-Z a-z 0-9 _ -, not {said}")
    if name == "shape":
        raise WrongShape(f"shape must be two counts, not {said}")
    raise BadField(f"{name} cannot be {said}")


def _unpacked(data: bytes) -> dict[Any, Any]:
    """A flat map; lengths are bounded by the header's own, which was checked before."""
    try:
        fields = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_map_len=2 * len(_VALID),
            max_array_len=8,
            max_ext_len=0,
            ext_hook=_no_extension,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedHeader(f"the header is not a flat map: {str(error)[:80]}") from None
    if type(fields) is not dict:
        raise MalformedHeader("the header is not a map")
    return fields


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code}")

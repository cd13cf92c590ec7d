"""Keys between two members, masks made from keys, and shares sealed for one receiver.

X25519 gives two members a secret, HKDF-SHA256 derives one key for each purpose, AES-256-CTR turns a
key into a mask over 64-bit words, AES-256-GCM seals what only one receiver may read, HMAC-SHA256
makes a tag that only one receiver can check. Every derivation names the terms, the session and both
members, so no key is used in two places.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import Final, Literal

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

__all__ = [
    "CONSENT_BYTES",
    "NONCE_BYTES",
    "TAG_BYTES",
    "Context",
    "MaskSum",
    "agree",
    "body_digest",
    "commitment_of",
    "consent_tag",
    "public_of",
    "seal",
    "sign",
    "unseal",
    "verifies",
]

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
CONSENT_BYTES: Final = 16
"""Length of the tag with which a member consents to a set of survivors: 128 bits."""
_PROTOCOL: Final = b"cslr secure sum 2\0"


class Context:
    """The names that enter every derivation: protocol, terms, session and release."""

    def __init__(self, terms: bytes, session: int, release: bytes = b"") -> None:
        self._names = _PROTOCOL + terms + struct.pack("<Q", session) + release

    def pair(self, purpose: bytes, sender: int, receiver: int) -> bytes:
        """The bytes that name one direction between two members, for this purpose."""
        return self._names + purpose + struct.pack("<II", sender, receiver)

    def pair_key(self, shared: bytes, one: int, other: int) -> bytes:
        """The key of the mask that two members have in common."""
        return _derive(shared, self.pair(b"pair", min(one, other), max(one, other)))

    def self_key(self, seed: bytes, member: int) -> bytes:
        """The key of a member's own mask."""
        return _derive(seed, self.pair(b"self", member, member))


class MaskSum:
    """A sum of 64-bit words modulo 2⁶⁴, to which masks are added or from which they are removed."""

    def __init__(self, coordinates: int) -> None:
        self.total: NDArray[np.uint64] = np.zeros(coordinates, dtype=np.uint64)
        self._zeros = bytes(8 * coordinates)
        self._stream = bytearray(8 * coordinates + 15)

    def add_words(self, words: NDArray[np.uint64]) -> None:
        """Add a vector."""
        self.total += words

    def add_mask(self, key: bytes, sign: Literal[1, -1]) -> None:
        """Add the mask of this key, or subtract it."""
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        cipher.update_into(self._zeros, self._stream)
        words = np.frombuffer(self._stream, dtype="<u8", count=len(self.total))
        if sign > 0:
            self.total += words
        else:
            self.total -= words


def agree(secret: X25519PrivateKey, public: bytes) -> bytes:
    """The shared secret of two members; ``ValueError`` for a point of small order."""
    return secret.exchange(X25519PublicKey.from_public_bytes(public))


def public_of(secret: bytes) -> bytes:
    """The X25519 public key of 32 secret bytes."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def commitment_of(seed: bytes) -> bytes:
    """The published commitment to a seed of 256 random bits."""
    return hashlib.sha256(_PROTOCOL + b"seed" + seed).digest()


def seal(shared: bytes, name: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt for the holder of the same shared secret, under a key derived for this name.

    about: public bytes that are authenticated to the receiver as the sender's.
    """
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(_derive(shared, name)).encrypt(nonce, plain, about)


def unseal(shared: bytes, name: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """What was sealed under this name together with these public bytes, or None."""
    try:
        nonce, content = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        return AESGCM(_derive(shared, name)).decrypt(nonce, content, about)
    except InvalidTag:
        return None


def consent_tag(shared: bytes, name: bytes, digest: bytes) -> bytes:
    """The tag with which one member tells another that it consents to the set with this digest."""
    return hmac.digest(_derive(shared, name), digest, "sha256")[:CONSENT_BYTES]


def body_digest(body: bytes) -> bytes:
    """The digest that is signed: Ed25519 reads its message twice, and a vector has 400 kB."""
    return hashlib.sha256(body).digest()


def sign(key: Ed25519PrivateKey, terms: bytes, body: bytes) -> bytes:
    """An identity's signature of a message under these terms."""
    return key.sign(_PROTOCOL + terms + body_digest(body))


def verifies(public: bytes, signature: bytes, terms: bytes, digest: bytes) -> bool:
    """Whether this identity signed the bytes with this ``body_digest`` under these terms."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _PROTOCOL + terms + digest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _derive(secret: bytes, info: bytes) -> bytes:
    """32 bytes of HKDF-SHA256 without salt (RFC 5869): one block is all that is needed."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")

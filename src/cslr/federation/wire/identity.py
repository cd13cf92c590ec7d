"""The client's side: a key of its own, and messages signed with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.arrays import IntArray
from cslr.federation.wire.codec import NONCE_BYTES, Header, Question, encode, fingerprint
from cslr.federation.wire.terms import NO_TERMS

__all__ = ["KEY_WIDTH", "Identity", "key_rows", "registration"]

KEY_WIDTH = 4
"""A public key of 32 bytes as 64-bit integers: the body of a ``join``."""


def registration(federation: str, run: str) -> Question:
    """The question that a ``join`` answers; it comes before the first round."""
    return Question(federation, run, 0, "join", "join", NO_TERMS)


def key_rows(public: bytes) -> IntArray:
    """(1, 4) a public key as the body of a message."""
    rows: IntArray = np.frombuffer(public, dtype="<i8").astype(np.int64)[None]
    return rows


@dataclass(frozen=True)
class Identity:
    """A client's id and its signing key, which never leaves it."""

    client: str
    key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls, client: str) -> Identity:
        """A fresh key from the operating system."""
        return cls(client, Ed25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """32 bytes, for everybody."""
        return self.key.public_key().public_bytes_raw()

    def join(self, federation: str, run: str) -> bytes:
        """A registration: the public key, signed by itself."""
        return self.answer(registration(federation, run), key_rows(self.public))

    def answer(self, question: Question, rows: IntArray) -> bytes:
        """A message with rows (1, D). Keep its bytes for resending: a new message would differ."""
        nonce = os.urandom(NONCE_BYTES)
        shape = (int(rows.shape[0]), int(rows.shape[1]))
        header = Header(question, self.client, fingerprint(self.public), nonce, shape)
        return encode(header, rows, self.key)

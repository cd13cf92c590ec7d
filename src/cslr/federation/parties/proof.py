"""How a node proves which member it is: it signs a fresh random challenge of the server."""

from __future__ import annotations

import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.errors import BadSignature, TruncatedMessage, UnknownClient
from cslr.privacy.secure_sum import SumTerms
from cslr.privacy.secure_sum.masks import body_digest, sign, verifies

__all__ = ["CHALLENGE_BYTES", "prove", "proven"]

CHALLENGE_BYTES = 32
_PURPOSE = b"cslr federation, which member\0"


def prove(identity: Ed25519PrivateKey, terms: SumTerms, number: int, challenge: bytes) -> bytes:
    """A member's number, signed together with the challenge and the terms."""
    if len(challenge) != CHALLENGE_BYTES:
        raise TruncatedMessage(f"a challenge has {CHALLENGE_BYTES} bytes, not {len(challenge)}")
    name = struct.pack("<I", number)
    return name + sign(identity, terms.digest, _PURPOSE + name + challenge)


def proven(terms: SumTerms, challenge: bytes, answer: bytes) -> int:
    """The number of the member that answered."""
    number = int.from_bytes(answer[:4], "little")
    if len(answer) != 68 or number >= len(terms.identities):
        raise UnknownClient("the answer names no member of this federation")
    digest = body_digest(_PURPOSE + answer[:4] + challenge)
    if not verifies(terms.identities[number], answer[4:], terms.digest, digest):
        raise BadSignature(f"the answer is not signed by member {number}")
    return number

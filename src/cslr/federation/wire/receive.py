"""Read one message from a stream: its size is checked first, and there is a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from cslr.errors import SenderTooSlow, TruncatedMessage
from cslr.federation.wire.codec import PREFIX_BYTES, SIGNATURE_BYTES, Limits, announced

__all__ = ["ByteStream", "read_message"]

PIECE: Final = 64 * 2**10
"""Bytes read at once, so that a sender that announces much and sends little uses little memory."""


class ByteStream(Protocol):
    """What a connection offers."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes, as soon as there are any; none at the end.

        A read that may block must raise ``TimeoutError`` itself, as a socket with a timeout does:
        the deadline is only checked between two reads.
        """


def read_message(
    stream: ByteStream,
    limits: Limits,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> bytes:
    """The bytes of the next message, to be decoded.

    Guarantee: nothing is read beyond what the prefix announces, and no more is kept than
    ``limits`` allow, whatever the sender does.
    """
    deadline = clock() + seconds
    prefix = _exactly(stream, PREFIX_BYTES, deadline, clock)
    head, body = announced(prefix, limits)
    return prefix + _exactly(stream, head + body + SIGNATURE_BYTES, deadline, clock)


def _exactly(stream: ByteStream, length: int, deadline: float, clock: Callable[[], float]) -> bytes:
    arrived = bytearray()
    while len(arrived) < length:
        try:
            piece = stream.read(min(PIECE, length - len(arrived)))
        except TimeoutError:
            raise SenderTooSlow(_why(arrived, length, "no more data arrived in time")) from None
        except OSError as error:
            reason = error.strerror or "the connection failed"
            raise TruncatedMessage(_why(arrived, length, reason)) from None
        if not piece:
            raise TruncatedMessage(_why(arrived, length, "the sender closed the connection"))
        arrived += piece
        if clock() > deadline:
            raise SenderTooSlow(_why(arrived, length, "the deadline passed"))
    return bytes(arrived)


def _why(arrived: bytearray, length: int, reason: str) -> str:
    return f"{reason} after {len(arrived)} of {length} bytes; send the whole message again"

"""The server's side of a round: every valid answer is counted exactly once, and nothing else.

An ``Inbox`` takes the messages of one question from registered clients and closes with their sum.
A refusal is a leaf of ``MessageError``, and the round goes on as if the message had never arrived.
The first valid message of a client is kept; the same bytes again are only acknowledged. A
``Register`` does the same for keys, before the first round.

An inbox sees single vectors, so it does not protect clients from the server. Under a secure sum
masked vectors arrive instead, and vectors beyond the clip cannot be recognised. An inbox is for one
thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from cslr.arrays import IntArray
from cslr.errors import StolenIdentity, UnknownClient
from cslr.federation.wire.codec import Limits, Message, decode, fingerprint
from cslr.federation.wire.expected import Expected, admitted, check_header, check_list
from cslr.federation.wire.identity import KEY_WIDTH, registration
from cslr.federation.wire.spool import Spool, is_known, reread
from cslr.privacy.values import Bounded, Summed, plain_sum

__all__ = ["Inbox", "Receipt", "Register"]

Receipt = Literal["accepted", "repeated"]
"""Counted now, or counted before."""


class Inbox:
    """The answers to one question."""

    def __init__(
        self, expected: Expected, clients: Mapping[str, bytes], directory: Path | None = None
    ) -> None:
        """Open the round, or resume it after a crash.

        clients: the public key of every registered client.
        directory: where accepted messages are stored; None: in memory only.
        """
        if expected.question.kind == "join":
            raise ValueError("expected: a join message must go to a Register")
        self.expected = expected
        self._clients = dict(clients)
        self._lists: dict[str, IntArray] = {}
        self._bounded: dict[str, Bounded] = {}
        self._spool = Spool(directory)
        for client, data in self._spool.messages.items():
            message = reread(client, data, self._checked)
            self._keep(message)

    @property
    def closed(self) -> bool:
        """Whether the round is closed: no new message is accepted."""
        return self._spool.closed

    @property
    def received(self) -> tuple[str, ...]:
        """The clients whose answers count, in alphabetical order."""
        return tuple(sorted(self._spool.messages))

    def accept(self, data: bytes) -> Receipt:
        """Count a message, or raise the ``MessageError`` that says why not.

        It is on disk when this returns "accepted".
        """
        message = self._checked(data)
        if is_known(message, data, self._spool):
            return "repeated"
        self._spool.add(message.header.client, data)
        self._keep(message)
        return "accepted"

    def close(self) -> Summed:
        """The sum over all clients that answered; the same after a restart."""
        if self.expected.question.kind == "list":
            raise ValueError("lists are not summed; call close_lists()")
        self._spool.close()
        nobody = np.zeros((1, self.expected.width), dtype=np.int64)
        return plain_sum([admitted(nobody, self.expected.grid), *self._bounded.values()])

    def close_lists(self) -> dict[str, IntArray]:
        """Each client's noised list (D,) in grid steps, in alphabetical order of the clients."""
        if self.expected.question.kind != "list":
            raise ValueError("only lists are returned one by one; call close()")
        self._spool.close()
        return {client: self._lists[client] for client in sorted(self._lists)}

    def _checked(self, data: bytes) -> Message:
        """Decode a message; refused unless sender, question, shape and bounds are right."""
        expected = self.expected
        message = decode(data, expected.limits)
        self._check_sender(message)
        check_header(message.header, expected.question, expected.width)
        if expected.question.kind == "list":
            check_list(message.rows, expected.farthest)
        else:
            admitted(message.rows, expected.grid)
        return message

    def _check_sender(self, message: Message) -> None:
        client = message.header.client
        if client not in self._clients:
            raise UnknownClient(f"{client!r} is not registered; send a join first")
        key = self._clients[client]
        if message.header.signer != fingerprint(key):
            raise StolenIdentity(
                f"{client!r} is registered with another key than the one that signed this message"
            )
        message.verify(key)

    def _keep(self, message: Message) -> None:
        client = message.header.client
        if self.expected.question.kind == "list":
            self._lists[client] = message.rows[0]
        else:
            self._bounded[client] = admitted(message.rows, self.expected.grid)


class Register:
    """The public keys of a federation's clients. The roster of ids is fixed and public."""

    def __init__(
        self, federation: str, run: str, roster: frozenset[str], directory: Path | None = None
    ) -> None:
        self._question = registration(federation, run)
        self._roster = roster
        self._spool = Spool(directory)
        self._keys: dict[str, bytes] = {}
        for client, data in self._spool.messages.items():
            self._keys[client] = key_of(reread(client, data, self._checked))

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The public key of every client that joined."""
        return dict(self._keys)

    @property
    def closed(self) -> bool:
        """Whether the rounds have started: no client can join any more."""
        return self._spool.closed

    def accept(self, data: bytes) -> Receipt:
        """Register a client, or raise the ``MessageError`` that says why not."""
        message = self._checked(data)
        client, key = message.header.client, key_of(message)
        if self._keys.get(client, key) != key:
            raise StolenIdentity(
                f"{client!r} is registered with another key than the one that signed this message"
            )
        if any(key == known and other != client for other, known in self._keys.items()):
            raise StolenIdentity(f"the key of {client!r} is already registered for another client")
        if is_known(message, data, self._spool):
            return "repeated"
        self._spool.add(client, data)
        self._keys[client] = key
        return "accepted"

    def close(self) -> Mapping[str, bytes]:
        """Close registration; returns the keys of the clients of all rounds."""
        self._spool.close()
        return self.keys

    def _checked(self, data: bytes) -> Message:
        message = decode(data, Limits(body=8 * KEY_WIDTH))
        client = message.header.client
        if client not in self._roster:
            raise UnknownClient(
                f"{client!r} is not on the roster of this federation; add the id before it joins"
            )
        # Check the shape first: the body must be a whole key before it can verify the signature.
        check_header(message.header, self._question, KEY_WIDTH)
        key = key_of(message)
        if message.header.signer != fingerprint(key):
            raise StolenIdentity(f"{client!r} sent a key that differs from its signer field")
        message.verify(key)
        return message


def key_of(message: Message) -> bytes:
    """The 32 bytes of a ``join``."""
    return message.rows.astype("<i8").tobytes()

"""Accepted messages on disk, one file each, so that none is lost or counted twice after a crash.

    <client id in hex>.msg    the message, byte for byte
    closed                    written last: the digest of all messages that were counted

A file is complete or absent, and it is on disk before the sender is acknowledged. Messages are
signed, so every byte of them is checked again when the spool is read. Only one server uses a spool
at a time, because it holds the lock of the federation's ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cslr.errors import AlreadySent, MessageError, RoundClosed, SpoolCorrupted
from cslr.federation.wire.codec import Message
from cslr.files import write_atomic

__all__ = ["Spool", "is_known", "reread"]

_CLOSED: Final = "closed"


class Spool:
    """The messages of one round by client; without a directory, in memory alone."""

    def __init__(self, directory: Path | None = None) -> None:
        self.messages: dict[str, bytes] = {}
        self.closed = False
        self._directory = directory
        if directory is not None and directory.is_dir():
            self._read(directory)

    def add(self, client: str, message: bytes) -> None:
        """Durable when it returns."""
        self._write(f"{client.encode().hex()}.msg", message)
        self.messages[client] = message

    def close(self) -> None:
        """Fix the messages that count, also after a restart."""
        if not self.closed:
            self._write(_CLOSED, self._digest())
            self.closed = True

    def _digest(self) -> bytes:
        """The digest of all messages, independent of their order."""
        each = [hashlib.sha256(self.messages[client]).digest() for client in sorted(self.messages)]
        return hashlib.sha256(b"".join(each)).hexdigest().encode()

    def _write(self, name: str, content: bytes) -> None:
        if self._directory is not None:
            write_atomic(self._directory / name, content)

    def _read(self, directory: Path) -> None:
        for path in sorted(directory.iterdir()):
            if path.name.endswith(".part"):
                path.unlink()  # an incomplete write of a crash, never acknowledged
            elif path.suffix == ".msg":
                self.messages[_client_of(path)] = path.read_bytes()
            elif path.name != _CLOSED:
                raise SpoolCorrupted(f"{path} is not a file of a spool directory; move it away")
        closed = directory / _CLOSED
        self.closed = closed.exists()
        if self.closed and closed.read_bytes() != self._digest():
            raise SpoolCorrupted(
                f"the messages in {directory} differ from those counted when the round was "
                "closed; restore them from a backup"
            )


def _client_of(path: Path) -> str:
    try:
        return bytes.fromhex(path.stem).decode("ascii")
    except ValueError:
        raise SpoolCorrupted(f"{path} does not have the name of a message; move it away") from None


def is_known(message: Message, data: bytes, spool: Spool) -> bool:
    """Whether this very message counts already; refused if another does or the round is closed."""
    client = message.header.client
    first = spool.messages.get(client)
    if first == data:
        return True
    if first is not None:
        raise AlreadySent(f"{client!r} has already sent a different message, which is kept")
    if spool.closed:
        raise RoundClosed(f"the message of {client!r} arrived after the round was closed")
    return False


def reread(client: str, data: bytes, checked: Callable[[bytes], Message]) -> Message:
    """A message from the spool, checked as when it came."""
    try:
        message = checked(data)
    except MessageError as error:
        raise SpoolCorrupted(
            f"the spooled message of {client!r} is damaged ({error}); restore it from a backup"
        ) from None
    if message.header.client != client:
        raise SpoolCorrupted(
            f"the spooled message of {client!r} was sent by {message.header.client!r}; restore it "
            "from a backup"
        )
    return message

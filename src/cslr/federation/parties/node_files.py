"""What a node keeps on disk. PRIVATE: the folder is its owner's alone.

node.json       what its operator pinned: charter, roster, allowed sessions, where its rows are
identity.key    the Ed25519 key that signs its answers, made here
ledger.jsonl    its own charges, with keys/ and spoken.json beside it
session.state   the secrets of the secure sum and its latest answer
agreement.safetensors
model/          what was released and learnt, for `cslr predict`
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field

from cslr.errors import ConfigError, MessageTooLarge
from cslr.federation.parties.charter import Charter, Member, Roster, read_model
from cslr.files import PRIVATE_FOLDER, make_directory, write_atomic

__all__ = ["NodeFiles", "PinnedNode", "SavedAnswer"]

_LEAST_FILE: Final = 4096
"""Bytes that any file takes on a disk, so that empty ones are not free."""


class PinnedNode(BaseModel):
    """A node's own file. Nothing in it comes from the server while the federation runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    charter: Charter
    roster: Roster | None = None
    """None: the node has joined, and its operator has not pinned the members yet."""
    most_sessions: int = Field(ge=1)
    """Masked vectors that may ever leave this node."""
    rows: dict[str, str | int] = {}
    """Where its own rows are; read by the program that runs the node."""


@dataclass(frozen=True, repr=False)
class SavedAnswer:
    """The state of the secure sum, and the answer that led to it."""

    state: bytes | None = None
    request: bytes = b""
    """SHA-256 of the request that was answered."""
    answer: bytes = b""

    def as_bytes(self) -> bytes:
        """In one file, so that both are there or none."""
        state = self.state or b""
        head = len(state).to_bytes(8, "little") + self.request.ljust(32, b"\0")
        return head + state + self.answer

    @classmethod
    def from_bytes(cls, content: bytes) -> SavedAnswer:
        """The inverse; the state has a checksum of its own."""
        size = int.from_bytes(content[:8], "little")
        state = content[40 : 40 + size]
        return cls(state or None, content[8:40], content[40 + size :])


@dataclass(frozen=True)
class NodeFiles:
    """The folder of one node."""

    path: Path

    @property
    def node_file(self) -> Path:
        """What its operator pinned."""
        return self.path / "node.json"

    @property
    def model(self) -> Path:
        """Where results go."""
        return self.path / "model"

    def create(self, pinned: PinnedNode) -> Ed25519PrivateKey:
        """A new node with a key of its own; refused where there is one."""
        if self.node_file.exists():
            raise ConfigError(f"{self.path} is a node already; choose another folder")
        make_directory(self.path, PRIVATE_FOLDER)
        identity = Ed25519PrivateKey.generate()
        write_atomic(self.identity_file, identity.private_bytes_raw())
        self.pin(pinned)
        return identity

    def pin(self, pinned: PinnedNode) -> None:
        """Write what the operator agreed to."""
        write_atomic(self.node_file, pinned.model_dump_json(indent=2).encode() + b"\n")

    def pinned(self) -> PinnedNode:
        """What the operator agreed to."""
        if not self.node_file.is_file():
            raise ConfigError(f"{self.path} is not a node; make one with `cslr federation join`")
        return read_model(self.node_file, PinnedNode)

    @property
    def identity_file(self) -> Path:
        """Where the key is that signs this node's answers."""
        return self.path / "identity.key"

    def member(self, name: str, file: Path | None = None) -> Member:
        """This node as a roster names it, by its key or by the one in another file."""
        public = self.identity(file).public_key().public_bytes_raw()
        return Member(name=name, identity=public.hex())

    def identity(self, file: Path | None = None) -> Ed25519PrivateKey:
        """The key that signs this node's answers, or the one in another file."""
        path = file or self.identity_file
        try:
            return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} is missing or damaged ({type(error).__name__})") from None

    def saved(self) -> SavedAnswer:
        """What was written last."""
        path = self.path / "session.state"
        return SavedAnswer.from_bytes(path.read_bytes()) if path.exists() else SavedAnswer()

    def save(self, saved: SavedAnswer) -> None:
        """Durable when it returns."""
        write_atomic(self.path / "session.state", saved.as_bytes())

    def agreement(self, digest: str) -> bytes | None:
        """The agreement with this digest, if it came."""
        path = self.path / "agreement.safetensors"
        content = path.read_bytes() if path.exists() else b""
        return content if hashlib.sha256(content).hexdigest() == digest else None

    def keep_agreement(self, content: bytes) -> None:
        """Write it down; the caller has compared its digest."""
        write_atomic(self.path / "agreement.safetensors", content)

    def keep_result(self, files: dict[str, bytes], most: int) -> None:
        """Files of a finished task, each whole or not at all; the names are checked by the caller.

        ``model.json`` comes last: its being there says that the others are complete. most: bytes
        that all results together may take, with those of earlier messages that stay; names count.
        """
        sizes = {name: len(content) for name, content in files.items()}
        staying = (path for path in self.model.rglob("*") if path.is_file())
        for path in staying:
            sizes.setdefault(path.relative_to(self.model).as_posix(), path.stat().st_size)
        taken = sum(sizes.values()) + _LEAST_FILE * len(sizes)
        if taken > most:
            raise MessageTooLarge(f"with this result {taken} bytes are kept, more than {most}")
        for name in sorted(files, key=lambda name: name == "model.json"):
            write_atomic(self.model / name, files[name], PRIVATE_FOLDER)

    def log(self, line: str) -> None:
        """For the operator's eyes: what was asked, and what was refused and why."""
        make_directory(self.path, PRIVATE_FOLDER)
        with os.fdopen(
            os.open(self.path / "node.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a"
        ) as file:
            file.write(line + "\n")

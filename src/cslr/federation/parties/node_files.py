"""What a node keeps on disk. PRIVATE: the folder is its owner's alone.

node.json       what its operator pinned: charter, roster, allowed sessions, where its rows are
identity.key    the Ed25519 key that signs its answers, made here
ledger.jsonl    its own charges, with keys/ and spoken.json beside it
session.state   the secrets of the secure sum and its latest answer
agreement.safetensors   what the server sent as the agreement
model/          released values and the model, for `cslr predict`
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
"""Bytes that are counted for every file besides its content, so that empty files count, too."""


class PinnedNode(BaseModel):
    """A node's own file. Nothing in it comes from the server while the federation runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    charter: Charter
    roster: Roster | None = None
    """None: the node has joined, but its operator has not pinned the members yet."""
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
        """As one file, so that both or neither are on disk."""
        state = self.state or b""
        head = len(state).to_bytes(8, "little") + self.request.ljust(32, b"\0")
        return head + state + self.answer

    @classmethod
    def from_bytes(cls, content: bytes) -> SavedAnswer:
        """The inverse of ``as_bytes``; the state has a checksum of its own."""
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
        """Make a new node with a key of its own; refused where there is a node already."""
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
        """This node as a roster names it, with its key or the one in another file."""
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
        """The state and answer that were written last."""
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
        """Write the files of a finished task, each atomically; the caller has checked the names.

        ``model.json`` is written last: it shows that the others are complete. most: bytes that all
        results may take, with files of earlier messages, and with ``_LEAST_FILE`` for each file.
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
        """Append a line to the operator's log: questions, refusals and their reasons."""
        make_directory(self.path, PRIVATE_FOLDER)
        with os.fdopen(
            os.open(self.path / "node.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a"
        ) as file:
            file.write(line + "\n")

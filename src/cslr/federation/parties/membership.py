"""The members, on a node's side: pin the roster, accept another one, renew the node's own keys.

Members may leave, join and change their keys between two tasks. A node accepts another roster only
by its operator's command, and only one with a higher number. Charter, noise, budget, ledger and the
count of sessions stay: a change of members gives no node a new budget.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.errors import ConfigError, SumStateCorrupted
from cslr.federation.parties.charter import Charter, Member, Roster, fingerprint
from cslr.federation.parties.node_files import NodeFiles, SavedAnswer
from cslr.files import write_atomic
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.secure_sum.state import ClientState

__all__ = ["pin_roster", "renew_identity", "renewed"]


def renewed(path: Path) -> Path:
    """Where a new key is kept until a roster with it is pinned."""
    return path.with_name(f"next-{path.name}")


def renew_identity(files: NodeFiles) -> Member:
    """Make a new key for a node, which uses it as soon as it has pinned a roster with it."""
    pinned = files.pinned()
    identity = Ed25519PrivateKey.generate()
    write_atomic(renewed(files.identity_file), identity.private_bytes_raw())
    return Member(name=pinned.name, identity=identity.public_key().public_bytes_raw().hex())


def pin_roster(folder: Path, roster: Roster, change: bool = False) -> str:
    """Pin the members' keys; returns their fingerprint, to be compared out of band.

    change: whether this roster may replace another. Refused if the roster does not name the node
    with its own key, or if its number is not higher than that of the pinned one.
    """
    files = NodeFiles(folder)
    pinned = files.pinned()
    roster.terms(pinned.charter)
    keys = _keys_for(files, pinned.name, roster)
    if pinned.roster not in (None, roster):
        _check_change(folder, pinned.roster, roster, change)
        with _locked_ledger(folder, pinned.charter):
            _carry_state(files, (pinned.roster, roster), pinned.charter)
            _take_keys(keys)
            files.pin(pinned.model_copy(update={"roster": roster}))
    else:
        _take_keys(keys)
        files.pin(pinned.model_copy(update={"roster": roster}))
    return fingerprint(roster.canonical())


def _keys_for(files: NodeFiles, name: str, roster: Roster) -> tuple[Path, ...]:
    """The key files to be replaced by new ones: none if the roster has the node's present key."""
    coming = renewed(files.identity_file)
    if files.member(name) in roster.members:
        return ()
    if coming.exists() and files.member(name, coming) in roster.members:
        others = (files.path / "flower.key", files.path / "flower.key.pub")
        return (files.identity_file, *(each for each in others if renewed(each).exists()))
    raise ConfigError(f"the roster does not name {name!r} with the key of this node")


def _take_keys(keys: tuple[Path, ...]) -> None:
    for path in reversed(keys):  # the identity last, so that an interrupted command can be repeated
        os.replace(renewed(path), path)


def _check_change(folder: Path, old: Roster, new: Roster, change: bool) -> None:
    what = new.changes_since(old)
    if not change:
        raise ConfigError(
            f"{folder} has pinned another roster ({what}). If its operator agreed to that, repeat "
            "the command with --change; otherwise somebody may be replacing members"
        )
    if new.number <= old.number:
        raise ConfigError(
            f"roster {new.number} is not later than {old.number}, which {folder} has pinned; ask "
            "the server for the current one"
        )


def _locked_ledger(folder: Path, charter: Charter) -> Ledger:
    """The node's ledger; only one process can open it, so this is refused while the node runs."""
    return Ledger.at(folder / "ledger.jsonl", charter.federation, EphemeralKeys(folder / "keys"))


def _carry_state(files: NodeFiles, rosters: tuple[Roster, Roster], charter: Charter) -> None:
    """Keep of the secure sum's state what holds under other terms: sessions and noise shares used.

    It is written before the roster is pinned, so that an interrupted command can be repeated.
    """
    saved = files.saved().state
    if saved is None:
        return
    old, new = (each.terms(charter).digest for each in rosters)
    try:
        state = ClientState.from_bytes(saved, old)
    except SumStateCorrupted:
        state = ClientState.from_bytes(saved, new)
    files.save(SavedAnswer(state.between_sessions().as_bytes(new)))

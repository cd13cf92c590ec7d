"""Noise keys: random ones that protect, and seeded ones that only reproduce."""

from __future__ import annotations

import errno
import math
import os
import stat

import pytest

from cslr.errors import PrivacyError
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.mechanism import release, settle
from cslr.privacy.plan import Budget
from cslr.seeding import Seeds

CHARGE = Charge("task 0", 0, "replay", 2.0)


def test_a_key_has_256_bits_of_the_operating_system(keys, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(count))
    assert keys.fresh("task 0", 0) == bytes(32)
    assert asked == [32]


def test_no_two_keys_are_alike(keys):
    fresh = {keys.fresh(label, attempt) for label in ("a", "b") for attempt in range(3)}
    assert len(fresh) == 6
    assert keys.fresh("a", 0) not in fresh  # even for the same charge


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_key_is_readable_by_its_owner_alone(keys, umask):
    before = os.umask(umask)
    try:
        keys.fresh("task 0", 0)
    finally:
        os.umask(before)
    [file] = keys.directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.directory.stat().st_mode) == 0o700


def test_a_key_survives_the_process_until_it_is_discarded(keys):
    key = keys.fresh("task 0", 3)
    later = EphemeralKeys(keys.directory)
    assert later.recover("task 0", 3) == (key, b"")
    assert later.recover("task 0", 4) is None
    assert later.recover("task 1", 3) is None
    later.discard("task 0", 3)
    assert later.recover("task 0", 3) is None
    assert list(keys.directory.iterdir()) == []


def test_a_key_is_on_disk_before_it_is_used(keys, monkeypatch):
    synced = []
    original = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file)) or original(file))
    keys.fresh("task 0", 0)
    [file] = keys.directory.iterdir()
    for wanted in (file, keys.directory, keys.directory.parent):
        assert any(os.path.samestat(found, wanted.stat()) for found in synced)


def test_a_key_is_whole_even_if_the_system_writes_a_byte_at_a_time(keys, monkeypatch):
    original = os.write
    monkeypatch.setattr(os, "write", lambda file, content: original(file, content[:1]))
    key = keys.fresh("task 0", 0)
    assert len(key) == 32
    assert keys.recover("task 0", 0) == (key, b"")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "mkdir"])
def test_a_key_that_cannot_be_written_is_a_named_error(keys, monkeypatch, call):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(PrivacyError, match=r"No space left on device\. Nothing was charged"):
        keys.fresh("task 0", 0)


def test_a_key_that_cannot_be_removed_is_a_named_error(keys, monkeypatch):
    keys.fresh("task 0", 0)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "unlink", broken)
    with pytest.raises(PrivacyError, match="could not be removed: Input/output error"):
        keys.discard("task 0", 0)


def test_keys_that_outlived_their_charge_are_found(keys):
    assert keys.left_over([]) == []
    for attempt in range(3):
        keys.fresh("task 0", attempt)
    [left] = keys.left_over([("task 0", 0), ("task 0", 2), ("task 1", 1)])
    assert left.name.startswith("000001-")


def test_discarding_a_key_that_is_not_there_is_no_error(keys):
    keys.discard("task 0", 0)
    assert not keys.directory.exists()


def test_a_leftover_of_a_crash_is_replaced(keys):
    """It was made for a charge that was never written, so no noise came from it."""
    leftover = keys.fresh("task 0", 0)
    key = keys.fresh("task 0", 0)
    assert key != leftover
    assert keys.recover("task 0", 0) == (key, b"")


def test_labels_cannot_escape_the_directory(keys):
    keys.fresh("../../outside/ü\0 " + "x" * 5000, 0)
    assert len(list(keys.directory.iterdir())) == 1


def test_settling_unlinks_the_key(opened, keys, summed):
    ledger = opened()
    released = release(summed, CHARGE, ledger)
    assert len(list(keys.directory.iterdir())) == 1
    settle(released, "task 0", ledger)
    assert list(keys.directory.iterdir()) == []


def test_a_crash_while_settling_leaves_no_key_behind(opened, keys, summed, monkeypatch):
    ledger = opened()
    released = release(summed, CHARGE, ledger)
    monkeypatch.setattr(ledger._chain, "append", crash)
    with pytest.raises(KeyboardInterrupt):
        settle(released, "task 0", ledger)
    assert list(keys.directory.iterdir()) == []


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_seeded_keys_repeat_themselves():
    one, same, other = (SeededKeys(Seeds(seed)) for seed in (13, 13, 17))
    assert one.fresh("task 0", 0) == same.fresh("task 0", 0) == same.recover("task 0", 0)[0]
    assert len(one.fresh("task 0", 0)) == 32
    one.discard("task 0", 0)
    assert one.recover("task 0", 0) == (one.fresh("task 0", 0), b"")
    different = {
        one.fresh("task 0", 0),
        one.fresh("task 0", 1),
        one.fresh("task 1", 0),
        other.fresh("task 0", 0),
    }
    assert len(different) == 4


def test_a_simulation_repeats_its_releases(summed):
    def once(seed: int) -> list[float]:
        federation = Federation("study", Budget(8.0), "simulated")
        ledger = Ledger.in_memory(federation, SeededKeys(Seeds(seed)))
        return release(summed, CHARGE, ledger).value.tolist()

    assert once(13) == once(13)
    assert once(13) != once(17)


def test_enforced_privacy_never_repeats_itself(tmp_path, summed):
    def once(name: str) -> list[float]:
        federation = Federation("clinics", Budget(8.0), "enforced")
        ledger = Ledger.in_memory(federation, EphemeralKeys(tmp_path / name))
        return release(summed, CHARGE, ledger).value.tolist()

    assert once("a") != once("b")


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_seeded_keys_cannot_enforce_anything(path, epsilon):
    """A ledger that says `enforced` would lie if its noise could be recomputed."""
    federation = Federation("clinics", Budget(epsilon), "enforced")
    for open_ in (Ledger.in_memory, lambda *args: Ledger.at(path, *args)):
        with pytest.raises(ValueError, match="seeded noise keys"):
            open_(federation, SeededKeys(Seeds(13)))

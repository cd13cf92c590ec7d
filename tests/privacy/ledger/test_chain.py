"""The file under the ledger: what is written stays, and damage is never taken for a fresh start."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from cslr.errors import LedgerCorrupted, PrivacyError
from cslr.privacy.ledger import chain as chain_module
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.chain import head_of
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget
from tests.privacy.ledger.small_ledger import charge, pay

# -- one writer ----------------------------------------------------------------------------------


def test_a_second_process_is_refused(opened, path, keys):
    opened()
    program = (
        "import sys; from pathlib import Path\n"
        "from cslr.errors import PrivacyError\n"
        "from cslr.privacy.ledger.records import EphemeralKeys\n"
        "from cslr.privacy.ledger.book import Federation, Ledger\n"
        "from cslr.privacy.plan import Budget\n"
        "federation = Federation('clinics', Budget(8.0), 'enforced')\n"
        "try: Ledger.at(Path(sys.argv[1]), federation, EphemeralKeys(Path(sys.argv[2])))\n"
        "except PrivacyError as error: print(error)\n"
        "else: print('opened')\n"
    )
    command = [sys.executable, "-c", program, str(path), str(keys.directory)]

    def second() -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "in use by another process" in second()
    opened().close()
    assert second() == "opened\n"


def test_a_closed_ledger_charges_nothing(opened, path):
    """It must not go on in memory: a charge that is not on disk is no charge."""
    ledger = opened()
    ledger.close()
    before = path.read_bytes()
    with pytest.raises(PrivacyError, match="closed"):
        pay(ledger, charge())
    assert path.read_bytes() == before
    assert ledger.charges == ()
    ledger.close()


def test_leaving_the_block_gives_the_lock_back(path, keys):
    federation = Federation("clinics", Budget(8.0), "enforced")
    for _ in range(2):
        with Ledger.at(path, federation, keys) as ledger:
            pay(ledger, charge())
    assert len(Ledger.read(path).charges) == 2


@pytest.mark.parametrize(
    ("error", "seen", "told"),
    [
        (OSError(errno.EIO, "disk full"), PrivacyError, "disk full"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_after_a_failed_write_only_opening_again_goes_on(
    opened, path, monkeypatch, error, seen, told
):
    """How much reached the disk is unknown; going on could break the chain for good."""
    ledger = opened()
    fsync = os.fsync

    def fail(file: int) -> None:
        if os.path.samestat(os.fstat(file), path.stat()):
            raise error
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(seen, match=told):
            pay(ledger, charge(0))
    with pytest.raises(PrivacyError, match="closed"):
        pay(ledger, charge(1))
    again = opened()
    assert again.charges == (charge(0),)  # it may over-charge, never under-charge
    pay(again, charge(1))
    assert len(Ledger.read(path).charges) == 2


def test_a_forked_process_does_not_write_into_its_parents_ledger(opened, path):
    """It shares the lock, so nothing else would keep the two from writing at once."""
    ledger = opened()
    before = path.read_bytes()
    child = os.fork()
    if not child:
        try:
            pay(ledger, charge())
        except PrivacyError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert path.read_bytes() == before
    pay(ledger, charge())


def test_what_a_killed_process_did_not_sync_is_synced_before_it_is_relied_on(
    opened, path, monkeypatch
):
    pay(opened(), charge())
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file)) or fsync(file))
    opened()
    for wanted in (path, path.parent):
        assert any(os.path.samestat(found, wanted.stat()) for found in synced)


# -- a crash while writing -------------------------------------------------------------------------


def head_line(record: dict) -> bytes:
    return chain_module._head_line(record["n"], record["hash"])


def head_after(content: bytes, records: int) -> bytes | None:
    """The head as it is while the next record is being written."""
    lines = content.splitlines()[:records]
    return head_line(json.loads(lines[-1])) if lines else None


def leave(path, content: bytes, head: bytes | None) -> None:
    """The two files as a crash, or somebody, left them."""
    path.write_bytes(content)
    if head is None:
        head_of(path).unlink(missing_ok=True)
    else:
        head_of(path).write_bytes(head)


def test_a_line_cut_off_by_a_crash_is_dropped_wherever_it_was_cut(
    content, opened, path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of times would take their time
    lines = content.splitlines(keepends=True)
    for place, line in enumerate(lines):
        before = b"".join(lines[:place])
        for cut in {*range(0, len(line), 13), 1, len(line) - 2, len(line) - 1, len(line)}:
            leave(path, before + line[:cut], head_after(content, place))
            ledger = opened()
            whole = place + (cut >= len(line) - 1)  # one that lost but its newline is whole
            kept = [json.loads(each) for each in lines[: max(whole, 1)]]
            if not whole:  # not even opened: it is opened now, as a federation of its own
                assert [record["kind"] for record in ledger.records] == ["open"]
                assert ledger.id != kept[0]["body"]["id"]
                continue
            assert ledger.records == kept
            assert path.read_bytes() == b"".join(lines[:whole])


def test_after_a_dropped_line_the_chain_goes_on(content, opened, path):
    leave(path, content[:-20], head_after(content, 4))
    pay(opened(), charge(1, 5.0))
    assert Ledger.read(path).charges == (charge(0), charge(1, 5.0))


# -- cut, reset, rolled back -----------------------------------------------------------------------


def test_the_head_names_the_newest_record(content, path):
    newest = json.loads(content.splitlines()[-1])
    assert head_of(path).read_text() == f"{newest['n']:012d} {newest['hash']}\n"


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("torn", [0, 25])
def test_records_cut_from_the_end_are_noticed(content, opened, path, left, torn):
    """Also the last record alone, or half of it: the head names it."""
    lines = content.splitlines(keepends=True)
    cut = b"".join(lines[:left]) + lines[left][:torn]
    path.write_bytes(cut)
    with pytest.raises(
        LedgerCorrupted, match=rf"has {left} records, but there were 5.*A new ledger is not"
    ):
        Ledger.read(path)
    with pytest.raises(LedgerCorrupted, match=rf"has {left} records"):
        opened()
    path.write_bytes(content)
    assert len(opened().records) == 5


def test_a_deleted_ledger_does_not_start_at_nothing_spent(content, opened, path):
    path.unlink()
    for _ in range(2):
        with pytest.raises(LedgerCorrupted, match="reset, truncated or replaced by an older copy"):
            opened()


def test_another_chain_of_the_same_length_is_noticed(content, opened, path, tmp_path, keys):
    federation = Federation("clinics", Budget(8.0), "enforced")
    with Ledger.at(tmp_path / "other.jsonl", federation, keys) as other:
        pay(other, *(charge(t, 9.0) for t in range(6)))
    path.write_bytes((tmp_path / "other.jsonl").read_bytes())
    with pytest.raises(LedgerCorrupted, match="does not belong to"):
        opened()


def test_any_flipped_or_missing_byte_of_the_head_is_noticed(content, opened, path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    head = head_of(path).read_bytes()
    flipped = [
        bytes([*head[:i], head[i] ^ bit, *head[i + 1 :]]) for i in range(78) for bit in (1, 128)
    ]
    for damaged in (*flipped, *(head[:i] for i in range(78)), head + b"\n"):
        head_of(path).write_bytes(damaged)
        with pytest.raises(LedgerCorrupted, match="new ledger is not started"):
            opened()
    assert path.read_bytes() == content


def test_an_enforced_ledger_without_its_head_is_refused_unless_nothing_was_charged(
    content, opened, path
):
    leave(path, content, None)
    with pytest.raises(LedgerCorrupted, match=r"ledger\.head is missing"):
        opened()
    leave(path, content.splitlines(keepends=True)[0], None)  # a crash before the head was made
    pay(opened(), charge())
    assert head_of(path).exists()


def test_a_crash_between_a_record_and_its_head_goes_on(content, opened, path):
    leave(path, content, head_after(content, 4))
    ledger = opened()
    assert len(ledger.records) == 5
    pay(ledger, charge(2, 9.0))
    assert head_of(path).read_bytes() == head_line(ledger.records[-1])


def test_a_reader_is_not_misled_by_a_writer_that_goes_on(content, path, monkeypatch):
    """The reader reads the head first; records appended later do no harm."""
    read_bytes, order = type(path).read_bytes, []
    monkeypatch.setattr(type(path), "read_bytes", lambda p: order.append(p.name) or read_bytes(p))
    Ledger.read(path)
    assert order == ["ledger.head", "ledger.jsonl"]


# -- read again ------------------------------------------------------------------------------------


def test_what_was_written_is_read_again_from_the_file(opened, path):
    ledger = opened()
    charges = [charge(task, 9.0 + task) for task in range(5)]
    pay(ledger, *charges)
    assert ledger.charges == tuple(charges)
    assert ledger.records == [json.loads(line) for line in path.read_bytes().splitlines()]
    assert ledger.newest == (6, ledger.records[-1]["hash"])
    assert ledger.opening == ledger.records[0]


@pytest.mark.parametrize("damage", ["cut", "flipped", "replaced", "gone"])
def test_a_file_that_is_changed_while_it_is_in_use_is_not_believed(opened, path, damage):
    """A shorter one would say that less was spent."""
    ledger = opened()
    pay(ledger, charge(0), charge(1))
    receipts = [ledger.receipt(f"task {task}") for task in range(2)]
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = content.replace(b'"sigma":3.0', b'"sigma":9.0')
        path.write_bytes({"cut": content[:-200], "flipped": flipped, "replaced": b"{}"}[damage])
    for look in (
        lambda: ledger.charges,
        lambda: ledger.records,
        lambda: ledger.epsilon("end_to_end", "roster"),
        lambda: ledger.accept("task 1", receipts[1]),
        lambda: ledger.confirm("task 1", "digest"),
    ):
        with pytest.raises(LedgerCorrupted, match=r"changed while it was in use|cannot read"):
            look()


def test_lines_that_another_process_adds_later_are_not_this_ones(opened, path, keys):
    ledger = opened()
    pay(ledger, charge(0))
    ledger.close()
    with Ledger.at(path, ledger.federation, keys) as later:
        pay(later, charge(1, 9.0))
    assert ledger.charges == (charge(0),)
    assert len(later.charges) == 2


def test_a_release_is_found_wherever_it_is_looked_for_first(opened):
    """Receipts and digests, forwards, backwards and again."""
    ledger, digests = opened(), {}
    receipts = {}
    for task in range(12):
        label = f"task {task}"
        pay(ledger, charge(task, 90.0))
        receipts[label] = ledger.receipt(label)
        digests[label] = f"digest of {label}"
        ledger.settle(label, digests[label])
    order = [*receipts, *reversed(receipts), "task 5", "task 5", "task 1", "task 11"]
    for label in order:
        ledger.accept(label, receipts[label])
        ledger.confirm(label, digests[label])
        with pytest.raises(LedgerCorrupted, match="in a different record"):
            ledger.accept("task 3" if label != "task 3" else "task 4", receipts[label])
        with pytest.raises(LedgerCorrupted, match="differs from the one"):
            ledger.confirm(label, "another digest")
    with pytest.raises(LedgerCorrupted, match="has no charge"):
        ledger.confirm("task 12", "digest")
    with pytest.raises(LedgerCorrupted, match="has no charge"):
        ledger.confirm('task 1","attempt', "digest")


# -- damage to the records -------------------------------------------------------------------------


def test_any_flipped_byte_is_noticed(content, path):
    """Also the last newline, which must not pass for a crash, and 1e-05 written 1E-05."""
    missed = []
    for place in range(len(content)):
        for flip in (0x01, 0x07, 0x20, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= flip
            try:
                chain_module._verified(path, bytes(damaged))
            except LedgerCorrupted:
                continue
            missed.append((place, flip, bytes(damaged[place - 5 : place + 5])))
    assert missed == []


def test_a_ledger_with_a_flipped_byte_is_left_as_it_is(content, opened, path):
    for place in (*range(0, len(content), 29), len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 0x01
        path.write_bytes(damaged)
        with pytest.raises(LedgerCorrupted, match="new ledger is not started"):
            opened()
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_a_missing_line_is_noticed(content, opened, path, line):
    lines = content.splitlines(keepends=True)
    damaged = b"".join(lines[:line] + lines[line + 1 :])
    path.write_bytes(damaged)
    with pytest.raises(LedgerCorrupted, match=f"line {line + 1}.*new ledger is not started"):
        opened()
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("damage", ["swapped", "repeated", "inserted", "blank", "zeros", "crlf"])
def test_a_rearranged_ledger_is_noticed(content, opened, path, damage):
    lines = content.splitlines(keepends=True)
    damaged = {
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "repeated": [*lines, lines[-1]],
        "inserted": [*lines[:2], b"{}\n", *lines[2:]],
        "blank": [*lines, b"\n"],
        "zeros": [*lines, bytes(512), b"\n"],
        "crlf": [line.replace(b"\n", b"\r\n") for line in lines],
    }[damage]
    path.write_bytes(b"".join(damaged))
    with pytest.raises(LedgerCorrupted, match="new ledger is not started"):
        opened()
    with pytest.raises(LedgerCorrupted, match="new ledger is not started"):
        Ledger.read(path)
    assert path.read_bytes() == b"".join(damaged)


def test_a_cheaper_charge_with_its_own_hash_mended_breaks_the_chain_after_it(content, opened, path):
    lines = content.splitlines()
    record = json.loads(lines[2])
    record["body"]["sigma"] = 1000.0
    del record["hash"]
    record["hash"] = chain_module._hash(record)
    lines[2] = chain_module.canonical(record).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(LedgerCorrupted, match="line 4"):
        opened()


def test_a_ledger_that_holds_nothing_is_not_read_as_nothing_spent(path):
    for content in (b"", b'{"n": 0'):
        path.write_bytes(content)
        with pytest.raises(LedgerCorrupted, match="no complete record"):
            Ledger.read(path)


def test_a_refused_ledger_is_not_locked(content, opened, path, keys):
    path.write_bytes(content[5:])
    with pytest.raises(LedgerCorrupted, match="new ledger is not started"):
        opened()
    path.write_bytes(content)
    federation = Federation("clinics", Budget(8.0), "enforced")
    with Ledger.at(path, federation, EphemeralKeys(keys.directory)) as ledger:
        assert len(ledger.charges) == 2

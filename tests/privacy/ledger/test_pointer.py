"""One file of rows has one ledger: what ties them, and every way to get a second one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

import cslr.privacy.ledger.pointer as pointer_module
from cslr.errors import CslrError, LedgerCorrupted, LedgerMoved, PrivacyError, SecondLedger
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.fingerprints import OwnRows, fingerprints_in
from cslr.privacy.ledger.pointer import declare_moved, ledger_directory, open_ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget

SHOPS = Federation("shops", Budget(8.0), "enforced")


def rows_at(path: Path, declared: str = "shops: praise, blame") -> OwnRows:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text,label,client\n")
    return OwnRows(path.resolve(), path.stem, declared.encode())


@pytest.fixture
def rows(tmp_path) -> OwnRows:
    return rows_at(tmp_path / "shops.csv")


def spend(rows: OwnRows, directory: Path | None = None) -> Path:
    """A run that charges one release; the directory of its ledger."""
    chosen = ledger_directory(rows, directory)
    with open_ledger(rows, chosen, SHOPS) as ledger:
        ledger.charge(Charge(f"task {len(ledger.charges)}", 0, "replay", 9.0), lambda key: "tag")
    return chosen


def charges_at(directory: Path) -> int:
    return len(Ledger.read(directory / "ledger.jsonl").charges)


def old_ledger(directory: Path) -> None:
    """As it was made before there were pointers."""
    with Ledger.at(directory / "ledger.jsonl", SHOPS, EphemeralKeys(directory / "keys")) as ledger:
        ledger.charge(Charge("task 0", 0, "replay", 9.0), lambda key: "tag")


# -- what is written -------------------------------------------------------------------------------


def test_the_first_ledger_leaves_a_pointer_beside_the_rows(rows, tmp_path):
    directory = spend(rows, tmp_path / "elsewhere")
    said = json.loads(rows.pointer.read_text())
    assert rows.pointer == tmp_path / "shops.cslr-ledger"
    assert said["ledger"] == str(tmp_path / "elsewhere")
    assert said["id"] == Ledger.read(directory / "ledger.jsonl").id
    for path in (rows.pointer, directory / "rows.json"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_pointer_and_fingerprints_are_there_before_anything_is_charged(rows):
    with open_ledger(rows, ledger_directory(rows), SHOPS) as ledger:
        assert rows.pointer.exists()
        assert fingerprints_in(rows.beside) is not None
        assert ledger.charges == ()


def test_runs_on_the_same_rows_add_up_and_rewrite_nothing(rows):
    spend(rows)
    before = {path: path.read_bytes() for path in (rows.pointer, rows.beside / "rows.json")}
    assert spend(rows) == rows.beside
    assert charges_at(rows.beside) == 2
    assert {path: path.read_bytes() for path in before} == before


def test_fingerprints_tell_nothing_without_their_key(rows, tmp_path):
    """The same rows under another key look like others: nobody can try declarations out."""
    spend(rows)
    first = json.loads((rows.beside / "rows.json").read_text())
    for path in (rows.pointer, rows.beside):
        path.rename(tmp_path.parent / f"{tmp_path.name}-{path.name}")
    spend(rows)
    second = json.loads((rows.beside / "rows.json").read_text())
    for name in ("key", "declarations", "file", "written", "place", "checksum"):
        assert first[name] != second[name]


def test_the_file_of_rows_may_be_written_anew_and_its_declaration_corrected(rows):
    spend(rows)
    rows.path.rename(rows.path.with_name("old.tmp"))
    rows.path.write_text("text;label;client\n")
    rows.path.with_name("old.tmp").unlink()
    spend(rows_at(rows.path, "shops: praise, blame, with another delimiter"))
    assert charges_at(rows.beside) == 2
    with pytest.raises(SecondLedger, match="its rows have the same declaration"):
        ledger_directory(rows_at(rows.path.with_name("copy.csv")))


# -- another ledger --------------------------------------------------------------------------------


def test_a_ledger_that_was_named_is_found_beside_the_rows_without_its_pointer(rows, tmp_path):
    spend(rows, tmp_path / "f1")
    rows.pointer.unlink()
    for given in (None, tmp_path / "f2"):
        with pytest.raises(SecondLedger, match="f1: its rows have the same declaration"):
            ledger_directory(rows, given)
    assert spend(rows, tmp_path / "f1") == tmp_path / "f1"
    assert charges_at(tmp_path / "f1") == 2


def test_a_file_that_is_called_like_the_fingerprints_is_no_ledger(rows, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.json").write_text("[]")
    assert spend(rows) == rows.beside


@pytest.mark.parametrize(
    ("first", "second"), [("f1", "f2"), ("f1", "shops.cslr-federation"), (None, "f2")]
)
def test_another_ledger_is_refused_by_name(rows, tmp_path, first, second):
    own = spend(rows, None if first is None else tmp_path / first)
    with pytest.raises(SecondLedger, match=f"the ledger of .* is at {own}"):
        spend(rows, tmp_path / second)
    assert not (tmp_path / second).exists()
    assert spend(rows) == own
    assert spend(rows, own) == own
    assert charges_at(own) == 3


def test_a_link_to_the_rows_has_their_ledger(rows, tmp_path):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "other.csv"
    link.symlink_to(rows.path)
    assert OwnRows(link.resolve(), link.resolve().stem, b"").pointer == rows.pointer


def test_hard_links_are_refused(rows, tmp_path):
    spend(rows)
    os.link(rows.path, tmp_path / "second.csv")
    for path in (rows.path, tmp_path / "second.csv"):
        with pytest.raises(SecondLedger, match=r"has 2 hard links.*Remove the other links"):
            ledger_directory(rows_at(path))
    (tmp_path / "second.csv").unlink()
    spend(rows)


@pytest.mark.parametrize("where", [None, "elsewhere"])
def test_a_copy_beside_the_rows_is_refused(rows, tmp_path, where):
    own = spend(rows, None if where is None else tmp_path / where / "ledger")
    shutil.copy(rows.path, tmp_path / "copy.csv")
    with pytest.raises(SecondLedger, match=f"has a ledger at {own}.*a copy or was renamed"):
        ledger_directory(rows_at(tmp_path / "copy.csv"))
    assert spend(rows_at(tmp_path / "copy.csv"), own) == own  # the remedy: they add up
    assert charges_at(own) == 2


def test_renamed_rows_are_refused_also_with_another_declaration(rows, tmp_path):
    spend(rows)
    rows.path.rename(tmp_path / "later.csv")
    for declared in ("shops: praise, blame", "something else"):
        with pytest.raises(SecondLedger, match=r"later\.csv has a ledger at .*shops"):
            ledger_directory(rows_at(tmp_path / "later.csv", declared))
    with (tmp_path / "later.csv").open("a") as file:
        file.write("more,rows,here\n")
    with pytest.raises(SecondLedger, match="the ledger of this file under another name"):
        ledger_directory(rows_at(tmp_path / "later.csv", "something else"))


def test_renamed_rows_are_refused_where_others_took_their_name(rows, tmp_path):
    spend(rows)
    rows.path.rename(tmp_path / "march.csv")
    rows_at(tmp_path / "shops.csv")
    with pytest.raises(SecondLedger, match="the ledger of this file under another name"):
        ledger_directory(rows_at(tmp_path / "march.csv", "something else"))


def test_the_number_of_a_deleted_file_may_be_used_again(rows, tmp_path):
    """File systems give it to the next file: other rows, as long as the ledger's own are there."""
    spend(rows)
    rows.path.rename(tmp_path / "others.csv")  # the same inode, as if it had been given out again
    os.utime(tmp_path / "others.csv", ns=(1, 1))
    rows_at(tmp_path / "shops.csv")
    others = rows_at(tmp_path / "others.csv", "something else")
    assert spend(others) == others.beside


def test_other_rows_in_the_same_directory_have_a_ledger_of_their_own(rows, tmp_path):
    spend(rows)
    others = rows_at(tmp_path / "clinics.csv", "clinics: knee, eye")
    assert spend(others) == tmp_path / "clinics.cslr-federation"
    assert (charges_at(rows.beside), charges_at(others.beside)) == (1, 1)


def test_the_ledger_of_other_rows_is_refused(rows, tmp_path):
    own = spend(rows)
    others = rows_at(tmp_path / "far" / "clinics.csv", "clinics: knee, eye")
    with pytest.raises(SecondLedger, match="belongs to other rows"):
        spend(others, own)


def test_two_processes_cannot_both_begin_the_first_ledger(rows, tmp_path):
    """One is between its checks and its pointer while the other starts."""
    honest = pointer_module._tie

    def meanwhile(*arguments: object) -> None:
        with pytest.raises(PrivacyError, match="in use by another process"):
            open_ledger(rows, tmp_path / "f2", SHOPS)
        honest(*arguments)

    with patch.object(pointer_module, "_tie", meanwhile):
        spend(rows, tmp_path / "f1")
    with pytest.raises(SecondLedger, match="is at"):
        open_ledger(rows, tmp_path / "f2", SHOPS)


# -- a ledger that is lost, moved or copied --------------------------------------------------------


def test_a_pointer_whose_ledger_is_missing_refuses(rows):
    shutil.rmtree(spend(rows))
    with pytest.raises(LedgerMoved, match="a new ledger at ε = 0 is not started"):
        ledger_directory(rows)


def test_a_ledger_removed_from_its_directory_is_not_started_anew(rows):
    spend(rows)
    rows.pointer.unlink()
    for name in ("ledger.jsonl", "ledger.head"):
        (rows.beside / name).unlink()
    with pytest.raises(LedgerMoved, match=r"the ledger that was in .* is missing. Restore it"):
        ledger_directory(rows)


def test_a_ledger_begun_anew_in_the_same_place_is_refused(rows):
    spend(rows)
    for name in ("ledger.jsonl", "ledger.head"):
        (rows.beside / name).unlink()
    old_ledger(rows.beside)
    with pytest.raises(SecondLedger, match="it was replaced or started again"):
        open_ledger(rows, rows.beside, SHOPS)
    assert charges_at(rows.beside) == 1


def test_a_moved_ledger_is_used_once_that_is_said(rows, tmp_path):
    spend(rows)
    rows.beside.rename(tmp_path / "ledgers")
    with pytest.raises(LedgerMoved, match="cslr ledger moved"):
        spend(rows, tmp_path / "ledgers")
    assert declare_moved(tmp_path / "ledgers") == [rows.pointer]
    assert spend(rows) == tmp_path / "ledgers"
    assert charges_at(tmp_path / "ledgers") == 2
    assert declare_moved(tmp_path / "ledgers") == [rows.pointer]  # again: nothing changes


def test_rows_and_ledger_moved_together_are_used_once_that_is_said(tmp_path):
    spend(rows_at(tmp_path / "here" / "shops.csv"))
    (tmp_path / "here").rename(tmp_path / "there")
    rows = rows_at(tmp_path / "there" / "shops.csv")
    with pytest.raises(LedgerMoved, match=f"cslr ledger moved {rows.beside}"):
        ledger_directory(rows)
    declare_moved(rows.beside)
    assert spend(rows) == rows.beside
    assert charges_at(rows.beside) == 2


def test_a_ledger_moved_far_from_its_rows_needs_their_name(rows, tmp_path):
    far = tmp_path / "far" / "away"
    far.parent.mkdir()
    spend(rows)
    rows.beside.rename(far)
    with pytest.raises(LedgerMoved, match="name its rows with --data FILE"):
        declare_moved(far)
    declare_moved(far, rows.pointer)
    assert spend(rows) == far


def test_a_copied_directory_is_refused_and_is_no_moved_one(tmp_path):
    spend(rows_at(tmp_path / "here" / "shops.csv"))
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    rows = rows_at(tmp_path / "copy" / "shops.csv")
    with pytest.raises(SecondLedger, match="keep copies of a ledger in another directory"):
        ledger_directory(rows)
    with pytest.raises(SecondLedger, match=r"where the ledger still exists: .* is a copy"):
        declare_moved(rows.beside)
    rows.pointer.unlink()
    with pytest.raises(LedgerMoved, match="moved or copied"):
        ledger_directory(rows)


def test_a_ledger_that_is_tied_to_no_rows_need_not_be_declared_moved(tmp_path):
    old_ledger(tmp_path / "old")
    with pytest.raises(LedgerMoved, match="run with --federation"):
        declare_moved(tmp_path / "old")


# -- earlier versions, crashes, disks --------------------------------------------------------------


def test_an_old_ledger_is_adopted_at_the_next_run(rows, tmp_path):
    old_ledger(tmp_path / "old")
    assert spend(rows, tmp_path / "old") == tmp_path / "old"
    assert charges_at(tmp_path / "old") == 2
    with pytest.raises(SecondLedger, match="is at"):
        spend(rows, tmp_path / "new")


def test_an_old_ledger_beside_the_rows_is_the_one(rows, tmp_path):
    old_ledger(rows.beside)
    with pytest.raises(SecondLedger, match=r"is at .*shops\.cslr-federation"):
        spend(rows, tmp_path / "new")
    assert spend(rows) == rows.beside
    assert charges_at(rows.beside) == 2


@pytest.mark.parametrize("written", [0, 1])
def test_a_crash_before_the_pointer_is_taken_up_by_the_next_run(rows, tmp_path, written):
    """After the ledger, or also after its fingerprints; nothing was charged by then."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    name = ("_tie", "_write_pointer")[written]
    with patch.object(pointer_module, name, crash), pytest.raises(KeyboardInterrupt):
        spend(rows, tmp_path / "f1")
    assert (tmp_path / "f1" / "rows.json").exists() == bool(written)
    assert not rows.pointer.exists()
    assert charges_at(tmp_path / "f1") == 0
    assert spend(rows, tmp_path / "f1") == tmp_path / "f1"
    with pytest.raises(SecondLedger, match="is at"):
        spend(rows, tmp_path / "f2")


def test_a_crash_before_the_pointer_leaves_the_choice_of_a_ledger(rows, tmp_path):
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with patch.object(pointer_module, "_write_pointer", crash), pytest.raises(KeyboardInterrupt):
        spend(rows, tmp_path / "f1")
    spend(rows, tmp_path / "f2")
    with pytest.raises(SecondLedger, match="is at"):
        spend(rows, tmp_path / "f1")
    assert charges_at(tmp_path / "f1") == 0


@pytest.mark.parametrize("module", ["pointer", "fingerprints"])
def test_where_the_pointer_cannot_be_written_nothing_is_charged(rows, module):
    """As in a directory that is read-only."""
    failing = OSError(30, "Read-only file system")
    with (
        patch(f"cslr.privacy.ledger.{module}.write_atomic", side_effect=failing),
        pytest.raises(PrivacyError, match=r"Read-only file system.*nothing was charged"),
    ):
        spend(rows)
    assert charges_at(rows.beside) == 0
    spend(rows)


def test_pointer_and_fingerprints_changed_anywhere_are_refused(rows):
    spend(rows)
    unnoticed = []
    for path in (rows.pointer, rows.beside / "rows.json"):
        whole = path.read_bytes()
        damaged = [whole[:cut] for cut in range(0, len(whole), 7)]
        for place in range(0, len(whole), 3):
            damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        for content in damaged:
            path.write_bytes(content)
            try:
                open_ledger(rows, rows.beside, SHOPS).close()
                unnoticed.append((path.name, content))
            except CslrError:
                pass
        path.write_bytes(whole)
    (rows.beside / "rows.json").unlink()
    with pytest.raises(LedgerCorrupted, match=r"rows\.json is missing"):
        ledger_directory(rows)
    assert [name for name, content in unnoticed if name == "rows.json"] == []
    # The name of the rows in a pointer is a hint; what names the ledger is checked.
    assert all(b'"rows":"shops.csv"' not in content for _, content in unnoticed)

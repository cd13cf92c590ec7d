"""A damaged ledger is refused: it never says less than was spent, and is never begun anew."""

from __future__ import annotations

import pytest

from cslr.errors import CslrError, LedgerCorrupted
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys

from .damage import flips, told, truncations, unnoticed

pytestmark = pytest.mark.xdist_group("crash")


@pytest.fixture
def federation(cases, tmp_path):
    """A copy of a finished run's federation: the ledger and whatever lies beside it."""
    known = cases["sum"]
    for name, content in known.files.items():
        if name.startswith("rows.cslr-federation/"):
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return tmp_path / "rows.cslr-federation"


def opened(federation):
    """The records as the next run would find them, and as anybody reads them."""
    path = federation / "ledger.jsonl"
    read = Ledger.read(path)
    with Ledger.at(path, read.federation, EphemeralKeys(federation / "keys")) as ledger:
        return [*ledger.records], [*read.records]


def dropped_last(sound):
    """Whether of ``sound`` only an incomplete last record is gone."""
    records, _ = sound

    def is_fine(damaged, found):
        torn = not damaged.endswith(b"\n")
        return (
            torn
            and found == (records[:-1], records[:-1])
            and damaged.count(b"\n") == len(records) - 1
        )

    return is_fine


def damages_of(content, most):
    return [*truncations(content, most), *flips(content, most)]


def test_a_ledger_with_a_record_less_or_a_bit_changed_is_refused(federation):
    path = federation / "ledger.jsonl"
    damages = damages_of(path.read_bytes(), 60)
    fine = dropped_last(opened(federation))
    assert unnoticed(path, damages, lambda: opened(federation), fine) == []


@pytest.mark.trust
def test_a_ledger_cut_or_changed_anywhere_is_refused(federation, card):
    path = federation / "ledger.jsonl"
    damages = damages_of(path.read_bytes(), 10**9)
    fine = dropped_last(opened(federation))
    wrong = unnoticed(path, damages, lambda: opened(federation), fine)
    card(
        "corrupted ledger",
        "every truncation and flip detected",
        told(wrong, len(damages)),
        not wrong,
    )
    assert wrong == []


def test_whole_records_cut_from_the_end_are_noticed(federation):
    path = federation / "ledger.jsonl"
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    accepted = []
    for count in range(len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        try:
            opened(federation)
        except CslrError:
            continue
        accepted.append(count)
    assert accepted == []


def test_what_lies_beside_a_ledger_is_checked_too(federation):
    """Every other file of the federation, cut and changed at any byte, or gone."""
    wrong = []
    for path in sorted(federation.rglob("*")):
        if path.is_file() and path.name != "ledger.jsonl":
            damages = damages_of(path.read_bytes(), 200)
            wrong += unnoticed(path, damages, lambda: opened(federation))
    assert wrong == []


def test_a_ledger_put_back_to_an_older_copy_is_refused(federation, cases):
    """As after a restore from a backup, or when a ledger is removed to begin anew."""
    path = federation / "ledger.jsonl"
    content = path.read_bytes()
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:4]))
    with pytest.raises(LedgerCorrupted, match="older copy"):
        opened(federation)
    path.unlink()
    known = Ledger.read(_written(path, content)).federation
    path.unlink()
    with pytest.raises(LedgerCorrupted, match="has 0 records"):
        Ledger.at(path, known, EphemeralKeys(federation / "keys")).close()


def _written(path, content):
    path.write_bytes(content)
    return path

"""A federation's ledger is its own: ids, receipts, and ledgers from before there were any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cslr.errors import LedgerCorrupted
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger, Receipt
from cslr.privacy.ledger.chain import Chain, head_of
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.mechanism import finish, recall, release, settle
from cslr.privacy.plan import Budget
from cslr.seeding import Seeds

CHARGE = Charge("task 0", 0, "replay", 3.0)
FEDERATION = Federation("clinics", Budget(8.0), "enforced")


def study(name: str, seed: int) -> Ledger:
    return Ledger.in_memory(Federation(name, Budget(8.0), "simulated"), SeededKeys(Seeds(seed)))


def test_no_two_enforced_federations_share_an_id(tmp_path):
    ids = set()
    for name in "abc":
        keys = EphemeralKeys(tmp_path / name / "keys")
        with Ledger.at(tmp_path / name / "ledger.jsonl", FEDERATION, keys) as ledger:
            ids.add(ledger.id)
    assert len(ids) == 3


def test_an_id_stays_when_the_ledger_is_opened_again(opened, path):
    before = opened().id
    assert opened().id == before == Ledger.read(path).id
    assert len(bytes.fromhex(before)) == 16


def test_a_simulation_has_the_same_id_every_time_and_no_other_has():
    assert study("a", 13).records == study("a", 13).records
    assert len({study("a", 13).id, study("a", 17).id, study("b", 13).id}) == 3


def test_records_are_numbered_without_a_gap(opened, summed):
    ledger = opened()
    settle(release(summed, CHARGE, ledger), "task 0", ledger)
    assert [record["n"] for record in ledger.records] == [0, 1, 2]


# -- receipts --------------------------------------------------------------------------------------


def test_a_receipt_names_the_record_that_paid(opened, summed):
    ledger = opened()
    release(summed, CHARGE, ledger)
    record = ledger.records[-1]
    assert ledger.receipt("task 0") == Receipt(ledger.id, record["n"], record["hash"])
    assert Receipt.from_text(ledger.receipt("task 0").as_text()) == ledger.receipt("task 0")
    ledger.accept("task 0", ledger.receipt("task 0"))


def test_a_release_found_again_after_a_crash_has_the_receipt_it_had(opened, summed):
    ledger = opened()
    release(summed, CHARGE, ledger)
    first = ledger.receipt("task 0")
    again = opened()
    with pytest.raises(ValueError, match="was not charged since"):
        again.receipt("task 0")
    finish(CHARGE, again)
    assert again.receipt("task 0") == first


def test_of_two_sums_under_one_label_each_has_its_own_receipt(opened, summed, other):
    ledger = opened()
    release(summed, CHARGE, ledger)
    first = ledger.receipt("task 0")
    release(other, CHARGE, ledger)
    assert ledger.receipt("task 0").number == first.number + 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"federation": "0" * 32}, "to another federation, 0000"),
        ({"number": 2}, "record 2, but the ledger is shorter"),
        ({"number": -1}, "but the ledger is shorter"),
        ({"number": 0}, "a different record 0"),
        ({"hash": "0" * 64}, "a different record 1"),
        (None, "has no receipt"),
    ],
)
def test_a_receipt_of_another_ledger_is_refused(opened, summed, change, named):
    ledger = opened()
    release(summed, CHARGE, ledger)
    receipt = None if change is None else replace(ledger.receipt("task 0"), **change)
    with pytest.raises(LedgerCorrupted, match=f"{named}.*'clinics' was started again"):
        ledger.accept("task 0", receipt)


def test_the_receipt_of_one_task_does_not_pass_for_another(opened, summed):
    ledger = opened()
    release(summed, CHARGE, ledger)
    with pytest.raises(LedgerCorrupted, match="a different record 1"):
        ledger.accept("task 1", ledger.receipt("task 0"))


# -- other versions --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 3, None])
def test_the_ledger_of_another_format_is_refused_by_name(path, keys, version):
    chain = Chain.at(path)
    chain.append("open", {"version": version, "name": "clinics"})
    chain.close()
    for open_ in (Ledger.read, lambda path: Ledger.at(path, FEDERATION, keys)):
        with pytest.raises(LedgerCorrupted, match=f"a ledger of format {version}; .* reads format"):
            open_(path)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("charge", {"label": "task 0"}),
        ("charge", {"label": [], "round": 0, "part": "replay", "sigma": 1.0, "attempt": 0}),
        ("charge", {"label": "a", "round": 0, "part": "replay", "sigma": -1.0, "attempt": 0}),
        ("charge", {"label": "a", "round": 0, "part": "replay", "sigma": 1e-300, "attempt": 0}),
        ("settled", {"label": "task 0", "attempt": 0, "digest": ""}),
        ("plan", {}),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(opened, path, kind, body):
    opened().close()
    chain = Chain.at(path)
    chain.append(kind, body)
    chain.close()
    for open_ in (Ledger.read, lambda path: opened()):
        with pytest.raises(LedgerCorrupted, match="record 1 of the ledger is invalid"):
            open_(path)


def test_a_vector_kept_under_a_reset_ledger_is_refused_even_if_its_label_is_open_again(
    opened, path, summed, other
):
    """Without a receipt, an open charge for another sum would have been taken for its own."""
    ledger = opened()
    kept, receipt = release(summed, CHARGE, ledger).value, ledger.receipt("task 0")
    ledger.close()
    path.unlink()
    head_of(path).unlink()
    anew = opened()
    release(other, CHARGE, anew)
    recall(kept, "task 0", anew)  # the digest alone does not tell
    with pytest.raises(LedgerCorrupted, match="to another federation"):
        anew.accept("task 0", receipt)

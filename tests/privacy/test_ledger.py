"""The account book: what is written stays written, and damage is never taken for a fresh start."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import uuid

import pytest

from cslr.errors import BudgetExceeded, LedgerCorrupted, PlanChanged, PrivacyError
from cslr.privacy import chain as chain_module
from cslr.privacy.accounting import Charge, gaussian_epsilon
from cslr.privacy.keys import EphemeralKeys
from cslr.privacy.ledger import Federation, Ledger
from cslr.privacy.mechanism import release, settle
from cslr.privacy.plan import Budget, calibrate

DELTA = 1e-5


def charge(task: int = 0, sigma: float | None = 3.0, **changes: object) -> Charge:
    return Charge(
        **{"label": f"task {task}", "round": task, "part": "replay", "sigma": sigma, **changes}
    )


def pay(ledger: Ledger, *charges: Charge) -> None:
    """Each for a sum of its own."""
    for each in charges:
        ledger.charge(each, lambda key: uuid.uuid4().hex)


def spent_by(*sigmas: float) -> float:
    return gaussian_epsilon(math.sqrt(sum(sigma**-2 for sigma in sigmas)), DELTA)


@pytest.fixture
def content(opened, path, summed) -> bytes:
    """A small ledger with a record of every kind, a float with an exponent, and an umlaut."""
    ledger = opened()
    ledger.fix_plan(calibrate(Budget(8.0), 4, cap=2), {"encoder": "für-alle", "bound": 0.2})
    settle(release(summed, charge(), ledger), "task 0", ledger)
    pay(ledger, charge(1))
    ledger.close()
    return path.read_bytes()


# -- what it says --------------------------------------------------------------------------------


def test_a_new_ledger_says_who_is_protected_and_how(opened, path):
    opened(epsilon=4.0)
    [line] = path.read_text().splitlines()
    record = json.loads(line)
    assert (record["n"], record["kind"], record["previous"]) == (0, "open", "0" * 64)
    assert record["body"] == {
        "version": 1,
        "name": "clinics",
        "unit": "client",
        "adjacency": "zero-out",
        "budget": {"epsilon": 4.0, "delta": DELTA, "adversary": "roster"},
        "privacy": "enforced",
    }


def test_nothing_charged_is_nothing_spent(opened):
    assert opened().epsilon("end_to_end", "roster") == 0


def test_charges_are_found_again_as_they_were_made(opened):
    charges = (charge(0), charge(1, 4.5, q=0.3), charge(2, part="head"))
    pay(opened(epsilon=100.0), *charges)
    ledger = opened(epsilon=100.0)
    assert ledger.charges == charges
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(spent_by(3.0, 4.5, 3.0))
    assert ledger.epsilon("replay", "roster") == pytest.approx(spent_by(3.0, 4.5))


def test_a_charge_commits_to_its_key_without_showing_it(opened, path, keys):
    key = opened().charge(charge(), lambda key: "tag")
    assert key == keys.recover("task 0", 0)
    assert key.hex() not in path.read_text()
    assert json.loads(path.read_text().splitlines()[1])["body"]["commitment"] != key.hex()


def test_a_key_that_is_not_the_one_committed_to_is_never_used_again(opened, keys):
    """Even where the tag does not tell, because it does not depend on the key."""
    opened().charge(charge(), lambda key: "tag")
    [file] = keys.directory.iterdir()
    file.write_bytes(bytes(32))
    ledger = opened()
    assert ledger.charge(charge(), lambda key: "tag") != bytes(32)
    assert len(ledger.charges) == 2


def test_two_runs_on_one_ledger_add_up(opened):
    for run in (1, 2, 3):
        ledger = opened(epsilon=100.0)
        pay(ledger, charge(0), charge(1))
        expected = spent_by(*[3.0] * 2 * run)
        assert ledger.epsilon("end_to_end", "roster") == pytest.approx(expected)


def test_a_ledger_in_memory_counts_the_same(opened, keys):
    federation = Federation("clinics", Budget(8.0), "enforced")
    ledger = Ledger.in_memory(federation, keys)
    pay(ledger, charge(0), charge(1))
    pay(opened(), charge(0), charge(1))
    assert ledger.epsilon("replay", "roster") == opened().epsilon("replay", "roster")


def test_reading_a_ledger_changes_nothing_and_charges_nothing(content, path):
    ledger = Ledger.read(path)
    assert [record["kind"] for record in ledger.records] == [
        "open",
        "plan",
        "charge",
        "settled",
        "charge",
    ]
    assert ledger.federation == Federation("clinics", Budget(8.0), "enforced")
    with pytest.raises(PrivacyError, match="opened for reading"):
        pay(ledger, charge(2))
    assert path.read_bytes() == content


def test_reading_a_ledger_that_is_not_there_is_refused(path):
    with pytest.raises(LedgerCorrupted, match="cannot be read"):
        Ledger.read(path)
    assert not path.exists()


# -- the budget ----------------------------------------------------------------------------------


def test_a_charge_beyond_the_budget_is_refused_and_nothing_is_written(opened, path, keys):
    ledger = opened(epsilon=4.0)
    pay(ledger, charge(0), charge(1))
    before, made = path.read_bytes(), sorted(keys.directory.iterdir())
    spent = ledger.epsilon("end_to_end", "roster")
    with pytest.raises(BudgetExceeded, match=r"'task 9'.*'clinics'.*budget of 4.*spent: 1\.87"):
        pay(ledger, charge(9, 1.2))
    assert path.read_bytes() == before
    assert sorted(keys.directory.iterdir()) == made
    assert ledger.epsilon("end_to_end", "roster") == spent


def test_a_refused_charge_leaves_room_for_a_smaller_one(opened):
    ledger = opened(epsilon=4.0)
    with pytest.raises(BudgetExceeded):
        pay(ledger, charge(0, 0.5))
    pay(ledger, charge(0, 3.0))
    assert ledger.charges == (charge(0, 3.0),)


def test_a_plan_is_spent_to_the_last_release_and_not_one_further(opened):
    ledger = opened(epsilon=4.0)
    plan = calibrate(Budget(4.0), 5)
    pay(ledger, *(plan.charge(f"task {t}", t) for t in range(5)))
    with pytest.raises(BudgetExceeded):
        pay(ledger, plan.charge("task 5", 5))


def test_a_second_run_beyond_the_budget_is_refused(opened):
    plan = calibrate(Budget(4.0), 2)
    pay(opened(epsilon=4.0), plan.charge("task 0", 0), plan.charge("task 1", 1))
    with pytest.raises(BudgetExceeded):
        pay(opened(epsilon=4.0), plan.charge("task 0", 0))


def test_sampling_lowers_the_cost_only_if_the_budget_is_against_the_public(opened, path):
    sampled = [charge(t, 0.9, q=0.3) for t in range(2)]
    assert spent_by(0.9, 0.9) > 6
    with pytest.raises(BudgetExceeded):
        pay(opened(epsilon=6.0), *sampled)
    path.unlink()
    ledger = opened(epsilon=6.0, adversary="public")
    pay(ledger, *sampled)
    assert ledger.epsilon("replay", "public") < 6 < ledger.epsilon("replay", "roster")


def test_a_head_without_noise_is_refused_by_a_finite_budget(opened):
    with pytest.raises(BudgetExceeded):
        pay(opened(), charge(0, None, part="head"))


# -- the plan and its cap ------------------------------------------------------------------------


def test_the_same_plan_again_is_fine(opened, path):
    for _ in range(2):
        opened().fix_plan(calibrate(Budget(8.0), 4), {"bound": 0.2})
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("plan", "public", "named"),
    [
        (calibrate(Budget(8.0), 4, cap=1), {"bound": 0.2}, r"plan\.cap \(4 -> 1\), plan\.sigma"),
        (calibrate(Budget(8.0), 5, cap=4), {"bound": 0.2}, r"plan\.releases \(4 -> 5\)\."),
        (calibrate(Budget(8.0), 4, q=0.5), {"bound": 0.2}, r"plan\.q \(1\.0 -> 0\.5\)\."),
        (calibrate(Budget(7.0), 4), {"bound": 0.2}, r"plan\.budget\.epsilon \(8\.0 -> 7\.0\)"),
        (calibrate(Budget(8.0), 4), {"bound": 0.3}, r"public\.bound \(0\.2 -> 0\.3\)\."),
        (calibrate(Budget(8.0), 4), {}, r"public\.bound \(0\.2 -> None\)\."),
    ],
)
def test_a_changed_plan_is_refused_naming_what_changed(opened, path, plan, public, named):
    opened().fix_plan(calibrate(Budget(8.0), 4), {"bound": 0.2})
    before = path.read_bytes()
    with pytest.raises(PlanChanged, match="'clinics'.*differs in: " + named):
        opened().fix_plan(plan, public)
    assert path.read_bytes() == before


def test_another_budget_on_the_same_file_is_refused(opened, path):
    opened(epsilon=4.0)
    before = path.read_bytes()
    with pytest.raises(PlanChanged, match=r"budget\.epsilon \(4\.0 -> 8\.0\)"):
        opened(epsilon=8.0)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("federation", "named"),
    [
        (Federation("banks", Budget(4.0), "enforced"), "name"),
        (Federation("clinics", Budget(4.0), "simulated"), "privacy"),
        (Federation("clinics", Budget(4.0, 1e-6), "enforced"), "delta"),
    ],
)
def test_the_ledger_of_another_federation_is_refused(opened, path, keys, federation, named):
    opened(epsilon=4.0).close()
    with pytest.raises(PlanChanged, match=named):
        Ledger.at(path, federation, keys)


def test_a_cap_counts_the_rounds_a_client_may_be_in(opened):
    ledger = opened()
    ledger.fix_plan(calibrate(Budget(8.0), 6, cap=2), {})
    pay(ledger, *(charge(t) for t in range(6)))
    assert ledger.cap == 2
    assert ledger.epsilon("replay", "roster") == pytest.approx(spent_by(3.0, 3.0))


def test_a_task_released_twice_lifts_the_cap(opened):
    """The cap holds for one pass over the stream; in a second run every client may speak again."""
    ledger = opened(epsilon=100.0)
    ledger.fix_plan(calibrate(Budget(8.0), 3, cap=1), {})
    pay(ledger, *(charge(t) for t in (0, 1, 2, 0)))
    assert ledger.epsilon("replay", "roster") == pytest.approx(spent_by(*[3.0] * 4))


def test_a_plan_fixed_after_a_release_caps_nothing(opened):
    """Else a late cap would make earlier releases cheaper than they were."""
    ledger = opened(epsilon=100.0)
    pay(ledger, charge(0), charge(1))
    ledger.fix_plan(calibrate(Budget(8.0), 4, cap=1), {})
    assert ledger.cap is None
    assert ledger.epsilon("replay", "roster") == pytest.approx(spent_by(3.0, 3.0))


def test_the_cap_on_tasks_does_not_cap_the_rounds_of_a_head(opened):
    ledger = opened(epsilon=100.0)
    ledger.fix_plan(calibrate(Budget(8.0), 4, cap=1), {})
    pay(ledger, *(charge(t, part="head") for t in range(50)))
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(spent_by(*[3.0] * 50))


# -- one writer ----------------------------------------------------------------------------------


def test_a_second_process_is_refused(opened, path, keys):
    opened()
    program = (
        "import sys; from pathlib import Path\n"
        "from cslr.errors import PrivacyError\n"
        "from cslr.privacy.keys import EphemeralKeys\n"
        "from cslr.privacy.ledger import Federation, Ledger\n"
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


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_after_a_failed_write_only_opening_again_goes_on(opened, path, monkeypatch, error):
    """How much reached the disk is unknown; going on could break the chain for good."""
    ledger = opened()
    fsync = os.fsync

    def fail(file: int) -> None:
        if os.path.samestat(os.fstat(file), path.stat()):
            raise error
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(type(error)):
            pay(ledger, charge(0))
    with pytest.raises(PrivacyError, match="closed"):
        pay(ledger, charge(1))
    again = opened()
    assert again.charges == (charge(0),)  # it may over-charge, never under-charge
    pay(again, charge(1))
    assert len(Ledger.read(path).charges) == 2


# -- damage --------------------------------------------------------------------------------------


def test_a_line_cut_off_by_a_crash_is_dropped_wherever_it_was_cut(
    content, opened, path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand times would take its time
    records = [json.loads(line) for line in content.splitlines()]
    whole = [i for i, byte in enumerate(content) if byte == ord("\n")]
    last_record = range(whole[-2] - 1, len(content))
    for cut in (*range(0, whole[-2], 7), *last_record):
        path.write_bytes(content[:cut])
        complete = sum(end <= cut for end in whole)  # a record that lost but its newline is whole
        ledger = opened()
        assert ledger.records == records[: max(complete, 1)]
        assert path.read_bytes() == b"".join(content.splitlines(keepends=True)[: max(complete, 1)])


def test_after_a_dropped_line_the_chain_goes_on(content, opened, path):
    path.write_bytes(content[:-20])
    pay(opened(), charge(1, 5.0))
    assert Ledger.read(path).charges == (charge(0), charge(1, 5.0))


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
        with pytest.raises(LedgerCorrupted, match="not started anew"):
            opened()
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_a_missing_line_is_noticed(content, opened, path, line):
    lines = content.splitlines(keepends=True)
    damaged = b"".join(lines[:line] + lines[line + 1 :])
    path.write_bytes(damaged)
    with pytest.raises(LedgerCorrupted, match=f"line {line + 1}.*not started anew"):
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
    with pytest.raises(LedgerCorrupted):
        opened()
    with pytest.raises(LedgerCorrupted):
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
    with pytest.raises(LedgerCorrupted):
        opened()
    path.write_bytes(content)
    federation = Federation("clinics", Budget(8.0), "enforced")
    with Ledger.at(path, federation, EphemeralKeys(keys.directory)) as ledger:
        assert len(ledger.charges) == 2

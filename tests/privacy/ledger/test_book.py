"""The account book: what is written stays written, and damage is never taken for a fresh start."""

from __future__ import annotations

import json
import math
import re

import pytest

from cslr.errors import BudgetExceeded, LedgerCorrupted, PlanChanged, PrivacyError
from cslr.privacy.accounting import gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.chain import head_of
from cslr.privacy.plan import Budget, calibrate
from tests.privacy.ledger.small_ledger import charge, pay

DELTA = 1e-5


def spent_by(*sigmas: float) -> float:
    return gaussian_epsilon(math.sqrt(sum(sigma**-2 for sigma in sigmas)), DELTA)


# -- what it says --------------------------------------------------------------------------------


def test_a_new_ledger_says_who_is_protected_and_how(opened, path):
    opened(epsilon=4.0)
    [line] = path.read_text().splitlines()
    record = json.loads(line)
    assert (record["n"], record["kind"], record["previous"]) == (0, "open", "0" * 64)
    assert re.fullmatch("[0-9a-f]{32}", record["body"].pop("id"))
    assert record["body"] == {
        "version": 2,
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
    assert key == keys.recover("task 0", 0)[0]
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
    with pytest.raises(PrivacyError, match="opened read-only"):
        pay(ledger, charge(2))
    assert path.read_bytes() == content


def test_reading_a_ledger_that_is_not_there_is_refused(path):
    with pytest.raises(LedgerCorrupted, match="cannot read"):
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
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        pay(ledger, charge(0, 0.5))
    pay(ledger, charge(0, 3.0))
    assert ledger.charges == (charge(0, 3.0),)


def test_a_plan_is_spent_to_the_last_release_and_not_one_further(opened):
    ledger = opened(epsilon=4.0)
    plan = calibrate(Budget(4.0), 5)
    pay(ledger, *(plan.charge(f"task {t}", t) for t in range(5)))
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        pay(ledger, plan.charge("task 5", 5))


def test_a_second_run_beyond_the_budget_is_refused(opened):
    plan = calibrate(Budget(4.0), 2)
    pay(opened(epsilon=4.0), plan.charge("task 0", 0), plan.charge("task 1", 1))
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        pay(opened(epsilon=4.0), plan.charge("task 0", 0))


def test_sampling_lowers_the_cost_only_if_the_budget_is_against_the_public(opened, path):
    sampled = [charge(t, 0.9, q=0.3) for t in range(2)]
    assert spent_by(0.9, 0.9) > 6
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        pay(opened(epsilon=6.0), *sampled)
    path.unlink()
    head_of(path).unlink()
    ledger = opened(epsilon=6.0, adversary="public")
    pay(ledger, *sampled)
    assert ledger.epsilon("replay", "public") < 6 < ledger.epsilon("replay", "roster")


def test_a_head_without_noise_is_refused_by_a_finite_budget(opened):
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
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
    """The cap holds for one pass over the stream; a second run may ask every client again."""
    ledger = opened(epsilon=100.0)
    ledger.fix_plan(calibrate(Budget(8.0), 3, cap=1), {})
    pay(ledger, *(charge(t) for t in (0, 1, 2, 0)))
    assert ledger.epsilon("replay", "roster") == pytest.approx(spent_by(*[3.0] * 4))


def test_a_plan_fixed_after_a_release_caps_nothing(opened):
    """Otherwise a late cap would make earlier releases cheaper than they were."""
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

"""`cslr ledger verify`: what it accepts, what it refuses, and which accountants agree."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.privacy import accounting
from cslr.privacy.accounting import Charge, epsilon_of
from cslr.privacy.ledger import accountants as opinions_module
from cslr.privacy.ledger.accountants import recount
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.chain import head_of
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.ledger.verify import Verification, verify
from cslr.privacy.plan import Budget, calibrate
from cslr.seeding import Seeds


@pytest.fixture(autouse=True)
def only_ours(monkeypatch):
    """The others are installed for the long evidence only."""
    for module in ("opacus", "opacus.accountants.analysis", "prv_accountant"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def spent(path):
    """Writes an enforced ledger: ``spent(charges, settled, adversary, cap)``."""

    def write(charges, settled=True, adversary="roster", cap=None):
        federation = Federation("clinics", Budget(60.0, adversary=adversary), "enforced")
        with Ledger.at(path, federation, EphemeralKeys(path.parent / "keys")) as ledger:
            if cap is not None:
                ledger.fix_plan(calibrate(Budget(8.0), 4, cap=cap), {})
            for number, charge in enumerate(charges):
                ledger.charge(charge, lambda key, number=number: str(number))
                if settled:
                    ledger.settle(charge.label, "digest")
        return path

    return write


def replay(task: int, sigma: float | None = 0.9, q: float = 1.0) -> Charge:
    return Charge(f"task {task}", task, "replay", sigma, q)


def failed(found: Verification) -> list[str]:
    return [check.name for check in found.checks if not check.holds]


def says(found: Verification, scope: str, adversary: str) -> dict[str, bool | None]:
    [cost] = [c for c in found.costs if (c.scope, c.adversary) == (scope, adversary)]
    return {opinion.accountant: opinion.agrees for opinion in cost.opinions}


def test_a_sound_ledger_passes_and_missing_accountants_are_only_named(spent):
    found = verify(spent([replay(0), replay(1, 0.8)]))
    assert found.holds
    assert failed(found) == []
    assert says(found, "replay", "roster") == {
        "PLD": True,
        "RDP": True,
        "Opacus": None,
        "PRV": None,
    }
    missing = [o.says for c in found.costs for o in c.opinions if o.accountant in ("Opacus", "PRV")]
    assert set(missing) == {"not installed"}


@pytest.mark.parametrize(
    "charges",
    [
        [replay(t, 0.7, 0.3) for t in range(4)],
        [replay(0, None)],
        [Charge("update", 0, "head", 2.0)],
        [],
    ],
    ids=["sampled", "without noise", "head only", "nothing"],
)
def test_every_kind_of_ledger_passes(spent, path, charges):
    if any(charge.sigma is None for charge in charges):
        federation = Federation("study", Budget(math.inf), "simulated")
        with Ledger.at(path, federation, SeededKeys(Seeds(13))) as ledger:
            ledger.charge(charges[0], lambda key: "")
    else:
        spent(charges, adversary="public")
    found = verify(path)
    assert found.holds
    assert len(found.costs) == 6


def test_a_broken_chain_fails_and_nothing_else_is_said(spent):
    path = spent([replay(0)])
    path.write_bytes(path.read_bytes().replace(b'"sigma":0.9', b'"sigma":9.0'))
    found = verify(path)
    assert failed(found) == ["chain"]
    assert "line 2" in found.checks[0].finding
    assert found.costs == ()


def test_records_cut_from_the_end_fail(spent):
    path = spent([replay(0), replay(1)])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    found = verify(path)
    assert failed(found) == ["chain"]
    assert "has 3 records, but there were 5" in found.checks[0].finding


def test_a_missing_head_fails(spent):
    path = spent([replay(0)])
    head_of(path).unlink()
    assert failed(verify(path)) == ["head"]


def test_open_charges_are_told_and_their_keys_may_be_there(spent, path):
    found = verify(spent([replay(0), replay(1)], settled=False))
    assert found.holds
    told = {check.name: check.finding for check in found.checks}
    assert "2 charges, 0 settled, 2 open: repeat the command" in told["charges"]
    assert len(list((path.parent / "keys").iterdir())) == 2


def test_a_key_that_outlived_its_release_fails(spent, path):
    spent([replay(0)])
    EphemeralKeys(path.parent / "keys").fresh("task 0", 0)
    found = verify(path)
    assert failed(found) == ["keys"]
    assert "remove them: 000000-" in {c.name: c.finding for c in found.checks}["keys"]


def test_a_key_whose_charge_was_never_written_is_no_failure(spent, path):
    spent([replay(0)])
    EphemeralKeys(path.parent / "keys").fresh("task 1", 1)
    found = verify(path)
    assert found.holds
    assert "1 never used" in {c.name: c.finding for c in found.checks}["keys"]


def test_a_wrong_epsilon_is_noticed_by_ours_and_named(spent, monkeypatch):
    path = spent([replay(t) for t in range(4)])
    honest = Ledger.epsilon
    for factor in (0.5, 0.99, 1.01, 2.0):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "epsilon", lambda self, *w, f=factor: f * honest(self, *w))
            found = verify(path)
        assert not found.holds
        assert says(found, "replay", "roster")["PLD"] is False


# -- counting again --------------------------------------------------------------------------------

CHARGES = st.lists(
    st.builds(
        Charge,
        label=st.sampled_from(["a", "b", "c"]),
        round=st.integers(0, 3),
        part=st.just("replay"),
        sigma=st.sampled_from([1.0, 2.0, 5.0]),
        q=st.just(1.0),
        task=st.one_of(st.none(), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(CHARGES, st.one_of(st.none(), st.integers(1, 4)))
def test_counting_again_finds_the_same_cost_without_sampling(charges, cap):
    rounds = recount(charges, False, cap)
    mu = math.sqrt(math.fsum(count * sigma**-2 for (sigma, _), count in rounds.items()))
    cost = epsilon_of(charges, 1e-5, "roster", cap=cap)
    assert cost == pytest.approx(epsilon_of([replay(0, 1 / mu)], 1e-5, "roster"), rel=1e-9)


@pytest.mark.parametrize("cap", [None, 1, 2])
@pytest.mark.parametrize("unlike", [False, True])
def test_counting_again_finds_the_same_rounds_with_sampling(monkeypatch, cap, unlike):
    """Three tasks of four sums behind a coin and two updates; the last is not finished."""
    charges = []
    for task in range(3):
        sigma = 3.0 + (task == 0 and unlike)
        charges += [Charge(f"{task} {name}", task, "replay", 2.0, 0.3, task) for name in "abcd"]
        charges += [
            Charge(f"{task} update {n}", 10 * (task + 1) + n, "head", sigma, 0.2, task)
            for n in range(2 - (task == 2))
        ]
    asked: list[Counter] = []
    monkeypatch.setattr(
        accounting, "pld_epsilon", lambda rounds, *_: asked.append(Counter(rounds)) or 1.0
    )
    epsilon_of(charges, 1e-5, "public", cap=cap)
    assert asked == [recount(charges, True, cap)]
    # Unlike tasks cannot be put in order under sampling, so all of them count.
    assert asked[0].total() == (8 if cap is None or unlike else 3 * cap)


def test_releases_behind_one_coin_are_one_round():
    charges = [Charge(name, 0, "replay", 2.0, 0.3) for name in "abcd"]
    assert recount(charges, True, None) == {(1.0, 0.3): 1}
    assert recount([*charges, charges[0]], True, None) == {(1.0, 0.3): 1, (2.0, 0.3): 1}


def test_a_release_without_noise_cannot_be_counted():
    with pytest.raises(ValueError, match="a release has no noise"):
        recount([replay(0, None)], False, None)


# -- the program -----------------------------------------------------------------------------------


def test_the_program_says_that_all_is_well(spent, cslr, path):
    spent([replay(0)])
    code, out, _ = cslr("ledger", "verify", str(path.parent))
    assert code == 0
    assert "All checks passed." in out
    assert "not installed" in out
    code, out, _ = cslr("ledger", "verify", str(path), "--json")
    [found] = json.loads(out)
    assert code == 0
    assert found["holds"] is True
    assert [check["name"] for check in found["checks"]][:2] == ["chain", "head"]
    assert {cost["epsilon"] for cost in found["epsilon"] if cost["adversary"] == "server"} == {None}


def test_a_failed_check_is_exit_code_3_and_a_users_mistake_2(spent, cslr, path, tmp_path):
    head_of(spent([replay(0)])).unlink()
    code, out, _ = cslr("ledger", "verify", str(path))
    assert code == 3
    assert "Verification failed." in out
    (tmp_path / "empty").mkdir()
    code, _, err = cslr("ledger", "verify", str(tmp_path / "empty"))
    assert code == 2
    assert "contains no ledger" in err


def test_the_plain_report_still_tells_what_was_spent(spent, cslr, path):
    spent([replay(0), replay(1)], settled=False)
    code, out, _ = cslr("ledger", str(path), "--json")
    [report] = json.loads(out)
    assert code == 0
    assert report["id"] == Ledger.read(path).id
    assert [charge["settled"] for charge in report["charges"]] == [False, False]
    assert cslr("ledger", str(path))[0] == 0


def test_the_shared_orders_are_among_ours():
    assert set(opinions_module._SHARED_ORDERS) <= set(opinions_module.RDP_ORDERS)


@pytest.mark.parametrize(
    ("unit", "cap", "said"), [("person", 1, "1 task"), ("client", 2, "2 tasks")]
)
def test_the_cap_of_the_plan_is_said_of_the_unit_that_is_hidden(path, unit, cap, said):
    federation = Federation("clinics", Budget(8.0, unit=unit), "enforced")
    with Ledger.at(path, federation, EphemeralKeys(path.parent / "keys")) as ledger:
        ledger.fix_plan(calibrate(Budget(8.0, unit=unit), 4, cap=cap), {})
    plan = next(check for check in verify(path).checks if check.name == "plan")
    assert plan.finding.endswith(f"a {unit} contributes to at most {said}")

"""What is refused before anything is read or released, and what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.streams import load_stream
from cslr.errors import BudgetExceeded, ConfigError, PlanChanged
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.protocol.evaluation import LABEL
from cslr.runs.directory import SeedDirectory
from cslr.runs.embedded import SettledConfig
from cslr.runs.learn import check_affordable
from cslr.runs.prepare import (
    check_evaluation,
    check_people,
    check_privacy,
    check_upgrade,
)

PERSON = {"privacy.unit": "person"}
ENFORCED = {"privacy.mode": "enforced", "privacy.federation": "federation"}
PRIVATE = {"privacy.evaluate": "private"}


def settled(*given: dict[str, object], **more: object) -> SettledConfig:
    settings = {name: value for each in given for name, value in each.items()}
    return SettledConfig.of(load_config(None, {**settings, **more}))


@pytest.fixture(scope="module")
def desk():
    """A stream whose test rows belong to clients."""
    stream = load_stream("desk", None)
    return replace(stream, test=replace(stream.test, clients=np.zeros(len(stream.test), int)))


# -- the method and the unit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**ENFORCED, "method": "joint"}, "'joint' reads rows without noise"),
        ({**ENFORCED, "method": "dp-joint"}, "needs the rows of all clients in one place"),
        ({**ENFORCED, "head.kind": "federated"}, "sends updates without noise"),
        ({**ENFORCED, "replay.release": "list"}, "reveals which clients hold rows"),
        ({**ENFORCED, "stream.poisoning": "oppose-0.1"}, "requires a private method and simulated"),
        ({"method": "joint", "stream.poisoning": "oppose-0.1"}, "requires a private method"),
        ({"method": "fedcil", "stream.poisoning": "oppose-0.1"}, "does not study hostile clients"),
        ({**PERSON, "method": "fedcil"}, "cannot hide one person"),
        ({**PERSON, "replay.release": "list"}, "a list comes under its sender's name"),
        ({**PERSON, "stream.poisoning": "oppose-0.1"}, "not about people inside them"),
        ({"method": "joint", "encoders": ["minilm"], "upgrade": 1}, "no releases to carry over"),
    ],
)
def test_settings_that_contradict_the_promise_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        check_privacy(settled(given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        ENFORCED,
        PERSON,
        {"method": "joint"},
        {"method": "dp-joint"},
        {"method": "fedcil"},
        {"head.kind": "federated"},
        {"replay.release": "list"},
        {"stream.poisoning": "oppose-0.1"},
        {"stream.poisoning": "oppose-0"},
        {**ENFORCED, "stream.poisoning": "oppose-0"},
        {"encoders": ["minilm"], "upgrade": 1},
    ],
    ids=str,
)
def test_other_settings_are_not(given):
    check_privacy(settled(given))


def test_sampling_of_a_person_in_several_clients_is_refused_where_it_is_accounted(desk):
    stream, public = replace(desk, clients_per_person=2), {"privacy.adversary": "public"}
    with pytest.raises(ConfigError, match="use --q 1 or adversary = 'roster'"):
        check_people(settled(PERSON, public, {"privacy.participation": 0.9}), stream)
    check_people(settled(PERSON, public), stream)
    check_people(settled(PERSON, {"privacy.participation": 0.9}), stream)
    check_people(settled(public, {"privacy.participation": 0.9}), stream)
    check_people(settled(PERSON, public, {"privacy.participation": 0.9}), desk)


def test_a_person_in_several_clients_cannot_be_counted_in_one(desk):
    stream = replace(desk, clients_per_person=2)
    with pytest.raises(ConfigError, match="counts a person's answers in one client"):
        check_people(settled(PERSON, PRIVATE), stream)
    check_people(settled(PERSON, PRIVATE), desk)
    check_people(settled(PRIVATE), stream)


# -- evaluation and upgrade ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "joint"}, "requires a method with a privacy budget"),
        ({"privacy.epsilon": float("inf")}, "requires a finite ε"),
        ({"head.kind": "federated"}, "requires a finite ε"),
        ({"encoders": ["minilm"], "replay.coordinates": "relative"}, "all clients run one encoder"),
    ],
)
def test_a_private_evaluation_needs_a_finite_epsilon_and_one_encoder(desk, given, words):
    with pytest.raises(ConfigError, match=words):
        check_evaluation(settled(PRIVATE, given), desk)
    check_evaluation(settled({"privacy.evaluate": "shown"}, given), desk)


def test_a_private_evaluation_needs_test_rows_of_clients(desk):
    check_evaluation(settled(PRIVATE), desk)
    nobodys = replace(desk, test=replace(desk.test, clients=None))
    with pytest.raises(ConfigError, match="those of 'desk' do not"):
        check_evaluation(settled(PRIVATE), nobodys)
    check_evaluation(settled(), nobodys)


def test_an_upgrade_comes_after_at_most_all_tasks():
    config = load_config(None, {"encoders": ["minilm"], "upgrade": 3})
    check_upgrade(config, 3)
    with pytest.raises(ConfigError, match="the stream has only 2 tasks; set upgrade to at most 2"):
        check_upgrade(config, 2)


# -- the budget ------------------------------------------------------------------------------------

BUDGET = Budget(4.0)


@pytest.fixture
def ledger(tmp_path):
    federation = Federation("clinics", BUDGET, "enforced")
    with Ledger.at(tmp_path / "ledger.jsonl", federation, EphemeralKeys(tmp_path / "k")) as opened:
        yield opened


@pytest.fixture
def kept(tmp_path) -> SeedDirectory:
    return SeedDirectory(tmp_path / "run" / "seed-13")


def charged(ledger, plan, *tasks):
    ledger.fix_plan(plan, {})
    for task in tasks:
        ledger.charge(plan.charge(f"task {task}", task), lambda key: "")
        ledger.settle(f"task {task}", "digest")


def test_a_run_that_fits_is_not_refused(ledger, kept):
    plan = calibrate(BUDGET, 3)
    check_affordable(ledger, plan, kept)
    charged(ledger, plan)
    check_affordable(ledger, plan, kept)


def test_the_same_run_again_exceeds_the_budget(ledger, kept):
    plan = calibrate(BUDGET, 3)
    charged(ledger, plan, 0, 1, 2)
    with pytest.raises(BudgetExceeded, match=r"3 releases would bring 'clinics' to ε = .*of 4 \("):
        check_affordable(ledger, plan, kept)


def test_releases_that_were_kept_or_are_open_are_not_due_again(ledger, kept):
    plan = calibrate(BUDGET, 3)
    charged(ledger, plan, 0, 1)
    ledger.charge(plan.charge("task 2", 2), lambda key: "")  # interrupted
    for task in (0, 1):
        kept.save(f"task {task}", np.ones(3))
    check_affordable(ledger, plan, kept)
    ledger.settle("task 2", "digest")
    with pytest.raises(BudgetExceeded, match="this run's 1 releases"):
        check_affordable(ledger, plan, kept)


def test_an_evaluation_is_due_until_it_is_in_the_trace(ledger, kept):
    plan = calibrate(BUDGET, 2, schedule=Schedule(evaluation=1))
    charged(ledger, plan, 0, 1)
    ledger.charge(plan.evaluation_charge(LABEL), lambda key: "")
    ledger.settle(LABEL, "digest")
    for task in (0, 1):
        kept.save(f"task {task}", np.ones(3))
    check_affordable(ledger, plan, kept, evaluated=True)
    with pytest.raises(BudgetExceeded, match="this run's 1 releases"):
        check_affordable(ledger, plan, kept)


def test_gradient_rounds_are_not_begun_again_where_the_budget_ends_within_them(tmp_path, kept):
    """With a cap a person pays for one task of a run, but for every run: there is no cap left."""
    plan = calibrate(Budget(4.0), 2, cap=1, schedule=Schedule(replay=0, head=3))
    federation = Federation("clinics", Budget(8.0), "enforced")
    with Ledger.at(tmp_path / "l.jsonl", federation, EphemeralKeys(tmp_path / "k")) as ledger:
        ledger.fix_plan(plan, {})
        for task in (0, 1):
            for number in range(3):
                label = f"task {task} update {number}"
                ledger.charge(plan.head_charge(label, task, number), lambda key: "")
                ledger.settle(label, "digest")
        assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, rel=0.01)
        with pytest.raises(BudgetExceeded, match="6 releases would bring 'clinics' to ε = 9"):
            check_affordable(ledger, plan, kept)


def test_a_run_of_several_releases_a_task_is_due_until_it_has_begun(ledger, kept):
    plan = calibrate(BUDGET, 2, schedule=Schedule(replay=0, head=2))
    ledger.fix_plan(plan, {})
    for charge in plan.charges():
        ledger.charge(charge, lambda key: "")
        ledger.settle(charge.label, "digest")
    with pytest.raises(BudgetExceeded, match="this run's 4 releases"):
        check_affordable(ledger, plan, kept)
    kept.path.mkdir(parents=True)
    check_affordable(ledger, plan, kept)


def test_another_plan_than_the_fixed_one_is_refused_with_its_settings(ledger, kept):
    charged(ledger, calibrate(BUDGET, 3, cap=2), 0)
    with pytest.raises(PlanChanged, match=r"earlier run: 3 tasks for ε = 4, q = 1, cap = 2\."):
        check_affordable(ledger, calibrate(BUDGET, 3), kept)

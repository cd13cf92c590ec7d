"""Which plan is audited: of flags, a configuration or a ledger."""

from __future__ import annotations

import pytest

from cslr.audit.plans import Shape, plan_of_config, plan_of_ledger, shape_of_stream
from cslr.config import Config, PrivacyConfig, StreamConfig
from cslr.errors import ConfigError
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.runs.embedded import SettledConfig
from cslr.seeding import Seeds


def test_a_configuration_gives_the_plan_its_run_would_fix():
    config = Config(privacy=PrivacyConfig(epsilon=3.0, cap=2))
    completed, shape = shape_of_stream(config)
    audited = plan_of_config(completed, shape)
    assert shape == Shape(tasks=4, labels=1, clients=shape.clients, people=shape.people)
    assert shape.people > shape.clients
    assert audited.plan == calibrate(Budget(3.0), 4, cap=2)
    assert audited.clients == shape.clients
    assert audited.dimension == 384
    assert audited.one_sum


def test_clients_of_a_configuration_win_over_those_of_the_stream():
    config = Config(stream=StreamConfig(clients=7))
    assert plan_of_config(SettledConfig.of(config), Shape(2, 1, 20)).clients == 7


def test_a_method_of_several_releases_has_its_schedule():
    audited = plan_of_config(SettledConfig.of(Config(method="cslr-paper")), Shape(2, 1, 20))
    assert audited.plan.schedule == Schedule(replay=4, lists=1)
    assert not audited.one_sum


def test_a_method_that_reads_nothing_privately_has_nothing_to_audit():
    with pytest.raises(ConfigError, match="zero-shot"):
        plan_of_config(SettledConfig.of(Config(method="zero-shot")), Shape(2, 1, 20))


def ledger_with(path, plan=None, public=None):
    with Ledger.at(path, Federation("f", Budget(4.0), "simulated"), SeededKeys(Seeds(1))) as ledger:
        if plan is not None:
            ledger.fix_plan(plan, public or {})


def test_a_ledger_gives_back_the_very_plan_it_fixed(tmp_path):
    plan = calibrate(Budget(4.0), 3, q=0.5, cap=2, schedule=Schedule(1, 1, 2), head_q=0.25)
    ledger_with(tmp_path / "l.jsonl", plan, {"modes": 6, "dimension": 64, "clients": 9})
    audited = plan_of_ledger(tmp_path / "l.jsonl")
    assert audited.plan == plan
    assert (audited.clients, audited.labels, audited.dimension) == (9, 2, 64)


def test_a_ledger_without_a_plan_is_told(tmp_path):
    ledger_with(tmp_path / "l.jsonl")
    with pytest.raises(ConfigError, match="no plan"):
        plan_of_ledger(tmp_path / "l.jsonl")

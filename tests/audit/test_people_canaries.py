"""Where a plan hides a person, the canaries of its audit are people."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from cslr.audit import one_run, synthetic_context
from cslr.audit.canaries import BEYOND, CohortWithCanaries
from cslr.audit.plans import plan_of_ledger
from cslr.cli.main import app
from cslr.methods.cslr import agree
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import _SEAL, Grid
from cslr.protocol.round import sum_ask
from cslr.seeding import Seeds


def context_of(clients_per_person=1, people=60):
    plan = calibrate(Budget(4.0, unit="person"), 2, cap=1)
    return synthetic_context(plan, people, 2, 12, Seeds(101), clients_per_person)


@pytest.mark.parametrize("clients_per_person", [1, 2, 3])
def test_a_canary_moves_a_sum_by_the_whole_bound_of_a_person(clients_per_person):
    context = context_of(clients_per_person)
    agreement = agree(context)
    assert agreement.clients_per_person == clients_per_person
    ask = sum_ask(agreement.request(0, context.tasks[0]))
    honest = context.open_cohort(0)
    grid = Grid(agreement.bounds[0], share=clients_per_person)
    assert grid == ask.grid
    direction = np.zeros((1, ask.request.layout.size))
    direction[0, 3] = BEYOND * grid.bound
    with_canary = CohortWithCanaries(honest, direction, grid).total(ask).total(_SEAL)
    moved = np.linalg.norm(with_canary - honest.total(ask).total(_SEAL))
    assert grid.steps - clients_per_person <= moved <= grid.steps


@pytest.mark.parametrize("clients_per_person", [1, 2])
def test_a_plan_of_people_is_not_refuted(clients_per_person):
    outcome = one_run(context_of(clients_per_person), canaries=40)
    for bound in (outcome.white, outcome.black):
        assert bound.claimed == pytest.approx(4.0, rel=1e-6)
        assert bound.holds


def test_canaries_that_leave_the_clip_out_in_one_client_are_noticed():
    context = context_of(clients_per_person=2)
    agreement = agree(context)
    whole = Grid(agreement.bounds[0])  # as if one client held all of the person
    direction = np.zeros((1, agreement.request(0, context.tasks[0]).layout.size))
    cohort = CohortWithCanaries(context.open_cohort(0), direction, whole)
    with pytest.raises(ValueError, match="same grid"):
        cohort.total(sum_ask(agreement.request(0, context.tasks[0])))


def test_the_audit_says_whom_the_plan_hides():
    flags = ["--unit", "person", "--people", "40", "--tasks", "2", "--labels", "1"]
    flags += ["--dimension", "8", "--runs", "50", "--canaries", "10", "--json"]
    done = CliRunner().invoke(app, ["audit", *flags])
    assert done.exit_code == 0, done.output
    plain = json.loads(done.stdout)
    assert plain["unit"] == "person"
    assert plain["clients"] == 40
    assert plain["plan"]["cap"] == 1


def test_people_without_the_unit_are_refused():
    done = CliRunner().invoke(app, ["audit", "--people", "40"])
    assert done.exit_code != 0
    assert "--people goes with --unit person" in str(done.exception or done.output)


def test_a_configuration_may_say_that_the_unit_is_a_person(tmp_path):
    config = tmp_path / "people.toml"
    config.write_text('[stream]\nname = "clinic"\n[privacy]\nunit = "person"\n')
    flags = ["--people", "40", "--tasks", "2", "--labels", "1", "--dimension", "8"]
    flags += ["--runs", "50", "--canaries", "10", "--json"]
    done = CliRunner().invoke(app, ["audit", str(config), *flags])
    assert done.exit_code == 0, done.output
    plain = json.loads(done.stdout)
    assert (plain["unit"], plain["clients"]) == ("person", 40)


def test_a_ledger_of_people_is_audited_with_its_people(tmp_path):
    context = context_of(clients_per_person=2)
    agreement = agree(context)
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.at(path, context.ledger.federation, SeededKeys(Seeds(101)))
    ledger.fix_plan(context.plan, agreement.public_facts())
    audited = plan_of_ledger(path)
    assert audited.plan.budget.unit == "person"
    assert audited.clients_per_person == 2
    assert replace(audited.plan, budget=context.plan.budget) == context.plan

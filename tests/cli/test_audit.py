"""``cslr audit`` as a user meets it."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import cslr.privacy.mechanism as mechanism
from cslr.cli.audit import REFUTED, audit_command
from cslr.errors import ConfigError
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.seeding import Seeds

SMALL = ("--tasks", "2", "--labels", "2", "--dimension", "20", "--runs", "20", "--canaries", "40")


@pytest.fixture(scope="module")
def audit():
    """Call the verb: its result, with ``exception`` where a user's mistake was refused."""
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command("audit")(audit_command)
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_a_table_shows_each_bound_beside_the_claim(audit):
    done = audit(*SMALL, "--epsilon", "2")
    assert done.exit_code == 0
    claim = "ε = 2 for a client at δ = 1e-05"
    for words in ("mechanism", "white box", "black box", claim, "holds", "evidence"):
        assert words in done.stdout


def test_figures_are_written_where_they_are_wanted(audit, tmp_path):
    done = audit(*SMALL, "--json", "--out", str(tmp_path / "out"))
    plain = json.loads(done.stdout)
    assert json.loads((tmp_path / "out" / "audit.json").read_text()) == plain
    assert (tmp_path / "out" / "audit.png").read_bytes().startswith(b"\x89PNG")
    assert plain["holds"] is True
    assert plain["plan"]["budget"]["epsilon"] == 4.0
    assert [each["canaries"] for each in plain["bounds"]] == [0, 40, 40]
    assert plain["bounds"][0]["runs"] == 20


def test_the_same_seed_says_the_same(audit):
    first, again = (audit(*SMALL, "--json", "--seed", "5").stdout for _ in range(2))
    assert first == again


@pytest.mark.parametrize(("what", "count"), [("mechanism", 1), ("pipeline", 2)])
def test_one_attack_can_be_chosen(audit, what, count):
    plain = json.loads(audit(*SMALL, "--json", "--what", what).stdout)
    assert [each["what"].split(",")[0] for each in plain["bounds"]] == [what] * count


def test_a_broken_promise_is_said_loudly(audit, monkeypatch):
    real = mechanism.noise_in_steps
    monkeypatch.setattr(mechanism, "noise_in_steps", lambda *a: real(*a) / 50)
    done = audit(*SMALL, "--what", "mechanism", "--runs", "200")
    assert done.exit_code == REFUTED == 3
    assert "REFUTED" in done.stdout
    assert "Do not release anything" in done.stdout


def test_the_plan_of_a_configuration_is_audited(audit, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[privacy]\nepsilon = 3.0\ncap = 1\n[replay]\ndimension = 16\n")
    done = audit(str(file), "--runs", "5", "--canaries", "20", "--json")
    plain = json.loads(done.stdout)
    assert plain["name"] == "clinic"
    assert plain["plan"]["sigma"] == calibrate(Budget(3.0), 4, cap=1).sigma
    assert (plain["labels"], plain["dimension"]) == (1, 16)


def fixed_ledger(directory, plan):
    federation = Federation("ours", Budget(4.0), "simulated")
    directory.mkdir()
    with Ledger.at(directory / "ledger.jsonl", federation, SeededKeys(Seeds(1))) as ledger:
        ledger.fix_plan(plan, {"modes": 4, "dimension": 16, "clients": 6})


def test_the_plan_of_a_ledger_is_audited(audit, tmp_path):
    plan = calibrate(Budget(4.0), 2, cap=1)
    fixed_ledger(tmp_path / "federation", plan)
    arguments = ("--runs", "5", "--canaries", "20", "--json")
    for place in (tmp_path / "federation", tmp_path / "federation" / "ledger.jsonl"):
        plain = json.loads(audit("--ledger", str(place), *arguments).stdout)
        assert plain["plan"] == json.loads(json.dumps(plan.as_dict()))
        assert (plain["name"], plain["clients"], plain["labels"]) == ("ours", 6, 2)


def test_a_plan_of_several_releases_has_its_mechanism_audited(audit, tmp_path):
    plan = calibrate(Budget(4.0), 2, schedule=Schedule(replay=1, lists=1))
    fixed_ledger(tmp_path / "federation", plan)
    place = ("--ledger", str(tmp_path / "federation"))
    plain = json.loads(audit(*place, "--runs", "5", "--json").stdout)
    assert [each["what"] for each in plain["bounds"]] == ["mechanism"]
    refused = audit(*place, "--what", "pipeline")
    assert isinstance(refused.exception, ConfigError)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--what", "nothing"), "--what"),
        (("--runs", "0"), "--runs"),
        (("--canaries", "1"), "--canaries"),
        (("--confidence", "1"), "--confidence"),
        (("--tasks", "0"), "--tasks"),
        (("--labels", "-1"), "--labels"),
        (("--ledger", "nowhere"), "nowhere"),
        (("--ledger", "x", "--epsilon", "2"), "--ledger"),
        (("--epsilon", "-1"), "epsilon"),
        (("--cap", "9"), "cap"),
        (("--q", "2"), "participation"),
    ],
)
def test_a_mistake_is_told_by_name(audit, arguments, named):
    done = audit(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert named in str(done.exception)


def test_help_teaches(audit):
    text = audit("--help").stdout
    for words in ("canaries", "exit code 3", "No row is read", "cslr audit --epsilon 4"):
        assert words in text

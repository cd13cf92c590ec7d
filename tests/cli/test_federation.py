"""`cslr federation`: what is refused, and what a status says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cslr.cli import federation
from cslr.federation.parties.charter import Charter, read_model
from cslr.privacy.secure_sum.terms import LEAST_MEMBERS, MOST_MEMBERS

pytestmark = pytest.mark.xdist_group("cli")
CLINICS = Path(__file__).parents[2] / "examples" / "clinics"


def test_without_the_extra_the_command_names_it(cslr, monkeypatch):
    monkeypatch.setattr(federation, "find_spec", lambda name: None)
    code, _, err = cslr("federation", "status", "nowhere")
    assert code == 2
    assert "pip install 'cslr[flower]'" in err


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(federation, "find_spec", lambda name: object())


def test_a_status_is_read_by_people_and_programs(cslr, tmp_path, installed):
    code, _, err = cslr("federation", "status", str(tmp_path))
    assert code == 2
    assert "has no run yet" in err
    state = {
        "phase": "mask",
        "release": "task 1",
        "members": ["berlin", "paris"],
        "tasks": 1,
        "epsilon": {"roster": 2.5, "server": None},
    }
    (tmp_path / "status.json").write_text(json.dumps(state))
    code, out, _ = cslr("federation", "status", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(out) == state
    code, out, _ = cslr("federation", "status", str(tmp_path))
    assert code == 0
    assert "mask" in out
    assert "berlin, paris" in out
    assert "2.500 against roster" in out
    assert "∞ against server" in out
    assert "the rest" not in out
    state |= {"promised": 8.0, "spare": 1}
    (tmp_path / "status.json").write_text(json.dumps(state))
    assert "the rest" not in cslr("federation", "status", str(tmp_path))[1]
    (tmp_path / "status.json").write_text(json.dumps({**state, "phase": "finished"}))
    out = cslr("federation", "status", str(tmp_path))[1]
    assert "2.500 of 8 against roster" in out
    assert "the rest is for repeated sessions (--spare 1)" in out


def test_nothing_running_is_no_error(cslr, tmp_path, installed):
    assert cslr("federation", "down", str(tmp_path))[:2] == (0, "nothing is running\n")


def test_what_a_join_needs_is_named(cslr, tmp_path, installed):
    pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")
    code, _, err = cslr("federation", "join", str(tmp_path / "node"), "--name", "berlin")
    assert code == 2
    assert "--offer, --name" in err


def test_a_node_that_is_none_is_refused(cslr, tmp_path, installed):
    pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")
    code, _, err = cslr("federation", "node", str(tmp_path))
    assert code == 2
    assert "is not a node" in err
    code, _, err = cslr("federation", "init", str(tmp_path / "f"), "--stream", "ag-news")
    assert code == 2
    assert "clinic, desk, ward" in err


@pytest.fixture
def flower(installed):
    pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--epsilon", "2", "--epsilon 2.0 contradicts {path}, which declares epsilon = 4.0"),
        ("--delta", "1e-3", "--delta 0.001 contradicts {path}, which declares delta = 1e-05"),
        ("--nodes", "5", "--nodes 5 contradicts {path}, which declares clients = 4"),
        ("--tasks", "1", "--tasks 1 contradicts {path}, which declares 2 tasks"),
        ("--unit", "client", "--unit client: {path} promises to hide one person"),
        ("--stream", "ward", "--stream ward and --declaration {path} are two sources"),
    ],
)
def test_an_option_that_contradicts_the_declaration_is_refused(
    cslr, tmp_path, flower, option, value, why
):
    path = CLINICS / "clinics.cslr.toml"
    given = ("federation", "init", "f", "--declaration", str(path), option, value)
    code, _, err = cslr(*given)
    assert code == 2
    assert why.format(path=path) in err
    assert not (tmp_path / "f").exists()


def test_an_option_that_equals_the_declaration_is_allowed(cslr, tmp_path, flower):
    equal = ("--epsilon", "4", "--delta", "1e-5", "--unit", "person", "--nodes", "4", "--tasks")
    path = str(CLINICS / "clinics.cslr.toml")
    code, out, _ = cslr("federation", "init", "f", "--declaration", path, *equal, "2")
    assert code == 0
    assert "n = 4, t = 3, c = 1, ε = 4 for one person" in out
    # What a node gives is looked at before it joins.
    join = ("federation", "join", "node", "--offer", "f/offer", "--name", "ulm")
    code, _, err = cslr(*join, "--data", "missing.csv")
    assert code == 2
    assert "missing.csv" in err
    header, *lines = (CLINICS / "clinics.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "bad.csv").write_text("\n".join([header, "x" + lines[0].replace(",", ",y")]))
    code, _, err = cslr(*join, "--data", "bad.csv")
    assert code == 2
    assert "not as declared; correct the file\n" in err
    code, _, err = cslr(*join, "--part", "0")
    assert code == 2
    assert "have rows of their own; give --data FILE" in err
    assert not (tmp_path / "node").exists()


def test_without_a_declaration_the_usual_promise_is_made(cslr, tmp_path, flower):
    assert cslr("federation", "init", "f", "--stream", "clinic", "--tasks", "1")[0] == 0
    charter = read_model(tmp_path / "f/offer/charter.json", Charter)
    assert (charter.epsilon, charter.delta, charter.unit) == (8.0, 1e-5, "person")
    assert charter.members == 5
    join = ("federation", "join", "node", "--offer", "f/offer", "--name", "ulm")
    code, _, err = cslr(*join, "--part", "5")
    assert code == 2
    assert "--part 5: nodes of 'clinic' share out" in err
    assert "give --part N, from 0 to 4" in err
    code, _, err = cslr(*join, "--data", "own.csv")
    assert code == 2
    assert "own.csv: nodes of 'clinic' share out" in err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("try --epsilon 0", "epsilon: must be greater than 0, not 0"),
        ("try --tasks 0", "'--tasks': 0 is not in the range"),
        ("try --stream ward --nodes -1", "'--nodes': -1 is not in the range"),
        ("try --seconds -1", "'--seconds': -1.0 is not in the range"),
        ("try --stream none", "use `cslr federation init FOLDER --declaration FILE`"),
        ("init f --stream ward --epsilon 0", "epsilon: must be greater than 0, not 0"),
        ("init f --stream ward --delta 2", "delta: must lie strictly between 0 and 1, not 2"),
        ("init f --tasks 0", "'--tasks': 0 is not in the range"),
        ("init f --port 99999999", "'--port': 99999999 is not in the range"),
        ("init f --nodes 10001", "'--nodes': 10001 is not in the range"),
        ("init f --seed -1", "'--seed': -1 is not in the range"),
        ("run f --seconds 0", "'--seconds': 0.0 is not in the range"),
    ],
)
def test_a_number_that_is_out_of_range_is_refused(cslr, tmp_path, flower, given, why):
    code, _, err = cslr("federation", *given.split())
    assert code == 2
    assert why in " ".join(err.replace("│", " ").split())
    assert not (tmp_path / "f").exists()


def test_the_most_nodes_are_those_of_a_secure_sum():
    assert (federation._LEAST, federation._MOST) == (LEAST_MEMBERS, MOST_MEMBERS)


def test_a_trial_leaves_a_folder_that_is_in_use_alone(cslr, tmp_path, flower):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("")
    code, _, err = cslr("federation", "try", "--folder", "used")
    assert code == 2
    assert "--folder used exists already and is not an empty folder; give another one" in err
    assert [each.name for each in (tmp_path / "used").iterdir()] == ["file"]


def test_a_finished_run_says_how_to_predict(cslr, tmp_path, flower, monkeypatch):
    from cslr.runs.deployment import server_machine
    from cslr.runs.deployment.serving import Served

    monkeypatch.setattr(server_machine, "run_server", lambda *given: None)
    monkeypatch.setattr(Served, "status", lambda self, on_line: None)
    assert cslr("federation", "run", "f")[:2] == (
        0,
        'done: cslr predict f/server/run --text "..."\n',
    )

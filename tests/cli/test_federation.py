"""`cslr federation`: what is refused, and what a status says."""

from __future__ import annotations

import json

import pytest

from cslr.cli import federation


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

"""The server's machine without Flower: what it starts, waits for, tells, and leaves behind."""

from __future__ import annotations

import inspect
import json
import os
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.errors import ConfigError
from cslr.federation.parties.charter import Charter, CharterTask, Member, Roster
from cslr.runs.deployment import server_machine
from cslr.runs.deployment.server_machine import (
    Application,
    address_of,
    make_server_keys,
    run_server,
    serve,
)
from cslr.runs.deployment.serving import PATIENCE, Served, Status

CHARTER = Charter(
    name="hospitals",
    family="classification",
    labels=("a", "b"),
    tasks=(CharterTask(name="one", labels=(0, 1)),),
    encoder="none",
    agreement="0" * 64,
    declaration="0" * 64,
    unit="person",
    epsilon=4.0,
    delta=1e-5,
    cap=1,
    units=100,
    members=3,
    threshold=3,
    colluders=1,
    spare=1,
    coordinates=10,
    noise=5.0,
)
NAMES = ("bonn", "kiel", "ulm")


@pytest.fixture
def served(tmp_path):
    """A federation of three members at a port of this machine."""
    folder = tmp_path / "hospitals"
    (folder / "offer").mkdir(parents=True)
    (folder / "members").mkdir()
    CHARTER.save(folder / "offer" / "charter.json")
    found, members = Served(folder), []
    for name in NAMES:
        members.append(Member(name=name, identity=name.encode().hex().ljust(64, "0")))
        applied = Application(member=members[-1], flower=f"key of {name}")
        (folder / "members" / f"{name}.json").write_text(applied.model_dump_json())
    Roster.of(CHARTER, tuple(members)).save(folder / "offer" / "roster.json")
    make_server_keys(found, "127.0.0.1", 9092)
    return found


@pytest.fixture
def flower(monkeypatch):
    """What is asked of Flower, which is not there."""
    asked: list[tuple] = []

    def noted(name):
        return lambda *given: asked.append((name, *given))

    def command(*given):
        asked.append(("superlink", *given))
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    clock = SimpleNamespace(sleep=lambda seconds: asked.append(("sleep", seconds)))
    replaced = {"superlink_command": command, "time": clock, "empty_bundle": lambda: b"empty"}
    for name in ("wait_for_port", "register_node", "start_run", "serve_task", "learn_remotely"):
        replaced[name] = noted(name)
    for name, each in replaced.items():
        monkeypatch.setattr(server_machine, name, each)
    return asked


def test_a_server_says_where_it_listens_and_whose_authority_signs(served):
    offer, keys = served.path / "offer", served.path / "server" / "tls"
    assert address_of(offer) == "127.0.0.1:9092"
    assert (offer / "ca.crt").read_bytes() == (keys / "ca.crt").read_bytes()
    assert {file.name for file in keys.iterdir()} >= {"ca.crt", "server.crt", "server.key"}
    assert (served.path / "server").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [None, "{}", "no JSON"])
def test_an_offer_without_an_address_is_an_error_that_names_it(tmp_path, content):
    if content is not None:
        (tmp_path / "address.json").write_text(content)
    with pytest.raises(ConfigError, match=f"{tmp_path} has no address of the server"):
        address_of(tmp_path)


def test_while_a_server_serves_programs_can_see_it_and_afterwards_nothing_is_left(served, flower):
    folder, said, turns = served.path / "server", [], []

    def going_on() -> bool:
        assert int((folder / "serve.pid").read_text()) == os.getpid()
        assert (folder / "serving").exists()
        turns.append(len(turns))
        return len(turns) < 3

    serve(served, going_on, said.append)
    assert said == ["serving hospitals at 127.0.0.1:9092"]
    assert not (folder / "serve.pid").exists()
    assert not (folder / "serving").exists()
    database = folder / "logs" / "flower.db"
    assert flower[0] == ("superlink", "127.0.0.1", 9092, folder / "tls", database)
    assert [each for each in flower if each[0] == "sleep"] == [("sleep", 0.5)] * 2


def test_a_server_lets_flower_know_the_key_of_everybody_that_applied(served, flower):
    serve(served, lambda: False, lambda line: None)
    waited, *registered = flower[1:]
    assert waited[:2] == ("wait_for_port", "127.0.0.1:9092")
    authority = served.path / "server" / "tls" / "ca.crt"
    expected = [("register_node", "127.0.0.1:9092", authority, f"key of {name}") for name in NAMES]
    assert registered == expected


def test_a_server_that_is_stopped_in_the_middle_leaves_no_sign_of_serving(served, flower):
    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(served, interrupted, lambda line: None)
    left = {file.name for file in (served.path / "server").iterdir()}
    assert not left & {"serve.pid", "serving"}


@pytest.mark.parametrize(
    ("given", "bundle", "needed", "wait"),
    [
        ({}, b"empty", 3, 300.0),
        ({"present": 2, "bundle": b"other", "wait": 7.0}, b"other", 2, 7.0),
    ],
)
def test_a_run_starts_at_the_servers_address_and_learns_once_its_nodes_are_there(
    served, flower, monkeypatch, given, bundle, needed, wait
):
    waited = []
    monkeypatch.setattr(server_machine, "_wait_for", lambda *of: waited.append(of[1:]))
    monkeypatch.setattr(server_machine, "GridTransport", lambda *of: of)
    status = Status(served.path / "status.json", NAMES)
    run_server(served, status, 20.0, **given)
    authority = served.path / "offer" / "ca.crt"
    started, task = flower
    assert started == ("start_run", "127.0.0.1:9092", authority, bundle)
    name, address, certificate, main, seconds = task
    assert (name, address, certificate, seconds) == ("serve_task", started[1], authority, wait)
    told = json.loads(status.path.read_text())
    assert (told["phase"], told["address"]) == ("starting", "127.0.0.1:9092")
    main("a grid")
    assert waited == [(needed, status, wait)]
    transport = ("a grid", served.roster.terms(served.charter))
    assert flower[2:] == [("learn_remotely", served, transport, status, 20.0)]


def test_a_server_waits_for_its_nodes_as_long_at_first_as_before_each_session():
    assert inspect.signature(run_server).parameters["wait"].default == PATIENCE

"""A node's machine without Flower: what it starts, how it goes on, and what its operator sees."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.errors import ConfigError
from cslr.federation.parties.membership import renewed
from cslr.runs.deployment import node_machine, server_machine
from cslr.runs.deployment.node_machine import join_machine, renew_machine, run_node
from cslr.runs.deployment.source import source_of_stream


class FakeNode:
    """A node as far as its machine looks at it."""

    def __init__(self, path) -> None:
        self.files = SimpleNamespace(path=path, log=path / "log.jsonl")
        self.pinned = SimpleNamespace(name="ulm", rows={"part": 1})
        self.charter, self.answer = "the charter", "its answer"
        self.read = self.closed = 0

    @property
    def population(self) -> None:
        self.read += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def node(tmp_path, monkeypatch):
    found = FakeNode(tmp_path / "ulm")
    found.files.path.mkdir()
    (found.files.path / "address.json").write_text(json.dumps({"address": "server:9092"}))
    source = source_of_stream("clinic", 2, "minilm", 13)
    (found.files.path / "source.json").write_text(source.model_dump_json())
    monkeypatch.setattr(node_machine, "open_node", lambda folder: found)
    return found


@pytest.fixture
def flower(monkeypatch):
    """What is asked of Flower, which is not there."""
    asked: list[tuple] = []

    def command(*given):
        asked.append(("supernode", *given))
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    def noted(name):
        return lambda *given: asked.append((name, *given))

    clock = SimpleNamespace(sleep=lambda seconds: asked.append(("sleep", seconds)))
    replaced = {"supernode_command": command, "time": clock, "free_port": lambda: 4711}
    replaced |= {"client_app": lambda *given: given}
    for name in ("wait_for_port", "answer_tasks"):
        replaced[name] = noted(name)
    for name, each in replaced.items():
        monkeypatch.setattr(node_machine, name, each)
    return asked


def turns(count: int):
    """Goes on so many times."""
    left = iter([True] * count)
    return lambda: next(left, False)


def test_a_node_answers_over_a_supernode_of_its_own(node, flower):
    said: list[str] = []
    run_node(node.files.path, turns(1), said.append)
    assert said == ["ulm: reading rows", "ulm: ready"]
    folder = node.files.path
    started, waited, answered = flower
    assert started == ("supernode", "server:9092", folder, 4711)
    assert waited[:2] == ("wait_for_port", "127.0.0.1:4711")
    runtime = folder / "runtime" / "ca.crt"
    app = ("its answer", folder / "log.jsonl")
    assert answered[:-1] == ("answer_tasks", "127.0.0.1:4711", runtime, app)
    assert (node.read, node.closed) == (1, 1)


def test_a_machine_joins_with_keys_of_its_own(tmp_path, monkeypatch):
    offer, folder = tmp_path / "offer", tmp_path / "ulm"
    for path in (offer, folder):
        path.mkdir()
    for file in ("ca.crt", "address.json"):
        (offer / file).write_text(file)
    made: list[tuple] = []
    replaced = {
        "Application": SimpleNamespace,
        "read_offer": lambda path: path,
        "join": lambda *given: given,
        "make_node_key": lambda path: path,
        "make_authority": lambda *given: made.append(given),
        "make_certificate": lambda *given: made.append(given),
        "_applied": lambda folder, application: application,
    }
    for name, each in replaced.items():
        monkeypatch.setattr(node_machine, name, each)
    application = join_machine(offer, folder, "ulm", {"part": 1}, 7)
    assert application.member == (offer, folder, "ulm", {"part": 1}, 7)
    assert application.flower == folder / "flower.key"
    assert (folder / "ca.crt").read_text() == "ca.crt"
    assert (folder / "address.json").read_text() == "address.json"
    runtime = folder / "runtime"
    hosts = ("127.0.0.1", "localhost")
    assert made == [(runtime, "ulm local"), (runtime, "runtime", hosts, runtime)]


def test_a_nodes_new_keys_lie_beside_the_old_ones_until_they_are_pinned(tmp_path, monkeypatch):
    replaced = {
        "Application": SimpleNamespace,
        "renew_identity": lambda files: files.path,
        "make_node_key": lambda path: path,
        "_applied": lambda folder, application: application,
    }
    for name, each in replaced.items():
        monkeypatch.setattr(node_machine, name, each)
    application = renew_machine(tmp_path)
    assert application.member == tmp_path
    assert application.flower == renewed(tmp_path / "flower.key")
    assert application.flower.parent == tmp_path


def test_a_node_goes_on_answering_while_its_supernode_runs_and_it_may(node, flower, monkeypatch):
    found: list[bool] = []
    monkeypatch.setattr(
        node_machine, "answer_tasks", lambda *given: found.extend(given[-1]() for _ in range(2))
    )
    run_node(node.files.path, turns(2), lambda line: None)
    assert found == [True, False]


def test_a_node_that_the_server_does_not_know_yet_tries_again(node, flower, monkeypatch):
    said: list[str] = []

    def refused(*given: object) -> None:
        raise ConfigError("the SuperNode is gone")

    monkeypatch.setattr(node_machine, "answer_tasks", refused)
    run_node(node.files.path, turns(2), said.append)
    again = [line for line in said if "trying again" in line]
    assert len(again) == 2
    assert again[0].startswith("ulm: the SuperNode is gone. The server is not there")
    slept = [each[1] for each in flower if each[0] == "sleep"]
    assert [f"trying again in {seconds:g} s" in again[0] for seconds in slept] == [True, True]
    assert 1.0 <= slept[0] <= 5.0
    assert node.closed == 1


def test_a_node_that_fails_otherwise_still_gives_its_ledger_free(node, flower, monkeypatch):
    def broken(*given: object) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(node_machine, "answer_tasks", broken)
    with pytest.raises(OSError, match="no disk"):
        run_node(node.files.path, turns(1), lambda line: None)
    assert node.closed == 1


def test_a_result_is_measured_beside_the_answers_and_shown_on_this_screen(
    node, flower, monkeypatch, tmp_path
):
    said: list[str] = []
    begun: list[SimpleNamespace] = []

    class Beside:
        """A thread that runs at once."""

        def __init__(self, target, args, daemon) -> None:
            self.daemon, self.start = daemon, lambda: target(*args)
            begun.append(self)

    def accuracy(source, charter, rows, model) -> str:
        return f"{source.stream} of {charter}, {rows}, {model.name}"

    monkeypatch.setattr(node_machine, "own_accuracy", accuracy)
    monkeypatch.setattr(node_machine, "Thread", Beside)
    run_node(node.files.path, turns(0), said.append)
    node.on_result(tmp_path / "model")
    assert said[-1] == "ulm: clinic of the charter, {'part': 1}, model"
    assert begun[0].daemon, "a figure that nobody waits for does not keep a node from ending"


def test_both_sides_give_flower_the_same_time_to_begin():
    assert node_machine._START == server_machine._START

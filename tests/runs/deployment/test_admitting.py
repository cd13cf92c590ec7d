"""The server's members: who applied, who is new, who is gone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.errors import ConfigError
from cslr.federation.flower.certificates import make_node_key
from cslr.federation.parties.charter import Charter, CharterTask, Member
from cslr.federation.parties.membership import pin_roster, renewed
from cslr.federation.parties.node_files import NodeFiles, PinnedNode
from cslr.runs.deployment.node_machine import renew_machine
from cslr.runs.deployment.server_machine import Application, _wait_for, admit, make_server_keys
from cslr.runs.deployment.serving import Served, Status

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
    members=5,
    threshold=3,
    colluders=1,
    spare=1,
    coordinates=10,
    noise=5.0,
)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "hospitals"
    (folder / "offer").mkdir(parents=True)
    (folder / "members").mkdir()
    CHARTER.save(folder / "offer" / "charter.json")
    return Served(folder)


def apply(served: Served, name: str) -> None:
    identity = name.encode().hex().ljust(64, "0")
    application = Application(member=Member(name=name, identity=identity), flower="a key")
    (served.path / "members" / f"{name}.json").write_text(application.model_dump_json())


def names(roster) -> list[str]:
    return [member.name for member in roster.members]


def test_members_are_as_many_as_planned_or_as_the_operator_says(served):
    for name in ("ulm", "bonn", "kiel"):
        apply(served, name)
    with pytest.raises(ConfigError, match=r"has 3 members, and .* room for 5.*--members 3"):
        admit(served)
    with pytest.raises(ConfigError, match="--members 3"):
        admit(served, 4)
    roster = admit(served, 3)
    assert (names(roster), roster.number) == (["bonn", "kiel", "ulm"], 1)
    assert admit(served) == roster


def test_who_leaves_and_joins_is_named_and_must_be_confirmed(served):
    for name in ("ulm", "bonn", "kiel", "jena", "trier"):
        apply(served, name)
    assert admit(served).number == 1
    database = served.path / "server" / "logs" / "flower.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"keys of former members")
    (served.path / "members" / "ulm.json").unlink()
    apply(served, "worms")
    with pytest.raises(ConfigError, match=r"joined: worms; left: ulm.*--members 5"):
        admit(served)
    assert database.exists()
    roster = admit(served, 5)
    assert roster.number == 2
    assert served.roster == roster == admit(served)
    assert not database.exists()
    for name in ("bonn", "kiel", "jena"):
        (served.path / "members" / f"{name}.json").unlink()
    with pytest.raises(ConfigError, match="3 to 5 members"):
        admit(served, 2)


def test_a_renewed_node_uses_both_new_keys_from_the_next_roster_on(served, tmp_path):
    files = NodeFiles(tmp_path / "node")
    files.create(PinnedNode(name="ulm", charter=CHARTER, most_sessions=3))
    make_node_key(files.path / "flower.key")
    old = files.member("ulm"), (files.path / "flower.key").read_bytes()
    for name in ("bonn", "kiel"):
        apply(served, name)

    def admitted(application: Application):
        (served.path / "members" / "ulm.json").write_text(application.model_dump_json())
        return admit(served, 3)

    first = admitted(Application(member=old[0], flower="a key"))
    pin_roster(files.path, first)
    application = renew_machine(files.path)
    sent = (files.path / "ulm.member.json").read_text()
    assert Application.model_validate_json(sent) == application
    assert files.member("ulm") == old[0] != application.member
    second = admitted(application)
    assert second.changes_since(first) == "new key: ulm"
    pin_roster(files.path, second, change=True)
    assert files.member("ulm") == application.member
    assert (files.path / "flower.key").read_bytes() != old[1]
    assert (files.path / "flower.key.pub").read_text().strip() == application.flower
    assert not renewed(files.path / "flower.key").exists()


def test_the_servers_certificate_is_renewed_under_the_same_authority(served):
    from cslr.runs.deployment.server_machine import make_server_certificate

    make_server_keys(served, "127.0.0.1", 9092)
    keys = served.path / "server" / "tls"
    authority, certificate = (keys / "ca.crt").read_bytes(), (keys / "server.crt").read_bytes()
    make_server_certificate(served, "127.0.0.1")
    assert (keys / "ca.crt").read_bytes() == authority
    assert (keys / "server.crt").read_bytes() != certificate


class Present:
    """A transport whose members come one after the other."""

    def __init__(self, *there: set[int]) -> None:
        self.there = iter(there)

    def present(self) -> set[int]:
        return next(self.there)


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """The status of a server that waits, what it says, and how long it slept; a clock of ours."""
    said: list[str] = []
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr("cslr.runs.deployment.server_machine.time", clock)
    return Status(tmp_path / "status.json", ("anna", "bert", "carla"), said.append), said, slept


def test_a_server_waits_until_enough_members_are_there(waiting):
    status, said, slept = waiting
    _wait_for(Present(set(), set(), {2}, {2, 0}), 2, status, 30.0)
    assert said == [f"waiting for nodes: {count} of 2 are there" for count in (0, 1)]
    assert slept == [0.5, 0.5, 0.5]
    kept = json.loads(status.path.read_text())
    assert (kept["phase"], kept["members"]) == ("waiting", ["carla"])


def test_a_server_gives_up_after_its_time(waiting):
    status, _, slept = waiting
    with pytest.raises(ConfigError, match="only 1 of 2 nodes came within 3 s"):
        _wait_for(Present(*[{1}] * 9), 2, status, 3.0)
    assert 3.0 < sum(slept) < 4.0

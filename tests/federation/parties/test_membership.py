"""Members that leave, join and change their keys between tasks; no budget starts again."""

from __future__ import annotations

import pytest

from cslr.errors import BadSignature, ConfigError, PrivacyError, SessionsSpent, UnknownMember
from cslr.federation.parties.charter import Roster, fingerprint
from cslr.federation.parties.membership import pin_roster, renew_identity, renewed
from cslr.federation.parties.node import Node
from cslr.federation.parties.node_files import PinnedNode
from cslr.federation.parties.proof import prove, proven
from cslr.methods.cslr import stages
from tests.federation.parties.machines import Machines, N, held_by


def learn_a_task(federation: Machines, keep) -> None:
    """The next task by a server that begins now."""
    before = len(keep.kept)
    context, _ = federation.server(keep)
    with context.ledger:
        for number, stage in enumerate(stages(context)):
            stage()
            if number == before + 1:
                break


def newcomer(federation: Machines, number: int):
    """A node that joins a federation which has begun."""
    files = federation.files(number)
    files.create(PinnedNode(name=f"node-{number}", charter=federation.charter, most_sessions=20))
    files.keep_agreement(federation.agreement)
    return files.member(f"node-{number}")


def change(federation: Machines, roster: Roster) -> None:
    """Stop all nodes, let those of a roster pin it, and start these again."""
    for number in list(federation.transport.nodes):
        if federation.transport.nodes[number] is not None:
            federation.end(number)
    federation.transport.nodes = {}
    for place, member in enumerate(roster.members):
        folder = federation.folder / member.name
        assert pin_roster(folder, roster, change=True) == fingerprint(roster.canonical())
        part = int(member.name.split("-")[1]) % N
        rows = held_by(federation.context.clients, part, federation.charter.unit)
        files = federation.files(int(member.name.split("-")[1]))
        federation.transport.nodes[place] = Node(files, lambda rows=rows: rows)
    federation.roster = roster


def test_one_leaves_one_joins_and_one_has_a_new_key_between_two_tasks(machines, drawer):
    federation = machines()
    learn_a_task(federation, drawer)
    old_key = federation.files(2).identity()
    fresh = renew_identity(federation.files(2))
    stay = [member for member in federation.roster.members if member.name in ("node-0", "node-1")]
    stay += [member for member in federation.roster.members if member.name == "node-3"]
    members = (*stay, fresh, newcomer(federation, 5))
    roster = Roster.of(federation.charter, members, number=2)
    told = "joined: node-5; left: node-4; new key: node-2"
    assert roster.changes_since(federation.roster) == told
    old = federation.roster
    change(federation, roster)
    learn_a_task(federation, drawer)
    assert drawer.kept.keys() == {"task 0", "task 1"}
    # Numbers follow the names: 0, 1, 2, 3 and node-5 at place 4.
    assert [federation.spent(place) for place in range(4)] == [["task 0", "task 1"]] * 4
    assert federation.spent(4) == ["task 1"]
    assert federation.node(0).client.sessions_left == 20 - 2
    # The old key of node-2 proves nothing any more, nor does the member that left.
    terms = roster.terms(federation.charter)
    challenge = bytes(32)
    with pytest.raises(BadSignature, match="not signed by member 2"):
        proven(terms, challenge, prove(old_key, terms, 2, challenge))
    left = federation.files(4).identity()
    with pytest.raises(BadSignature, match="not signed by member 4"):
        proven(terms, challenge, prove(left, terms, 4, challenge))
    assert not renewed(federation.files(2).identity_file).exists()
    with pytest.raises(ConfigError, match="not later than 2"):
        pin_roster(federation.folder / "node-1", old, change=True)


def test_other_members_are_pinned_by_command_and_while_the_node_is_down(machines, drawer):
    federation = machines()
    folder = federation.folder / "node-1"
    roster = Roster.of(federation.charter, federation.roster.members[:4], number=2)
    with pytest.raises(ConfigError, match=r"another roster \(left: node-4\).*--change"):
        pin_roster(folder, roster)
    with pytest.raises(PrivacyError, match="in use by another process"):
        pin_roster(folder, roster, change=True)
    federation.end(1)
    pin_roster(folder, roster, change=True)
    assert pin_roster(folder, roster) == fingerprint(roster.canonical())
    with pytest.raises(ConfigError, match="does not name 'node-4'"):
        pin_roster(federation.folder / "node-4", roster, change=True)


def test_a_change_of_members_gives_no_new_sessions(machines, drawer):
    federation = machines()
    federation.end(0)
    files = federation.files(0)
    files.pin(files.pinned().model_copy(update={"most_sessions": 1}))
    federation.start(0)
    learn_a_task(federation, drawer)
    change(federation, Roster.of(federation.charter, federation.roster.members, number=2))
    learn_a_task(federation, drawer)
    refused = {(member, type(error)) for _, member, error in federation.transport.refused}
    assert refused == {(0, SessionsSpent)}


def test_an_interrupted_change_is_repeated(machines, drawer, monkeypatch):
    federation = machines()
    learn_a_task(federation, drawer)
    federation.end(3)
    roster = Roster.of(federation.charter, federation.roster.members[:4], number=2)
    folder = federation.folder / "node-3"
    files = federation.files(3)

    def killed(self, pinned):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(files), "pin", killed)
        with pytest.raises(KeyboardInterrupt):
            pin_roster(folder, roster, change=True)
    pin_roster(folder, roster, change=True)
    node = Node(files, lambda: federation.context.clients)
    assert node.client.sessions_left == 19
    node.close()


def test_a_new_key_is_not_used_before_a_roster_names_it(machines):
    federation = machines()
    member = renew_identity(federation.files(1))
    assert federation.files(1).member("node-1") == federation.roster.members[1] != member
    federation.end(1)
    federation.start(1)
    with pytest.raises(UnknownMember, match="not among those"):
        _with_key_of(federation, renewed(federation.files(1).identity_file))


def _with_key_of(federation: Machines, file) -> None:
    from cslr.privacy.secure_sum import SumClient

    SumClient(federation.roster.terms(federation.charter), federation.files(1).identity(file), 3)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_rosters_have_at_least_t_and_at_most_n_members(machines, count):
    federation = machines()
    members = [*federation.roster.members, newcomer(federation, 5)][:count]
    with pytest.raises(ConfigError, match="4 to 5 members"):
        Roster.of(federation.charter, tuple(members), number=2)

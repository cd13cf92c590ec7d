"""A node's folder: what its operator pinned when it joined, and what opening it refuses."""

from __future__ import annotations

import pytest

from cslr.errors import ConfigError
from cslr.federation.parties.charter import Charter, CharterTask, Roster, read_model
from cslr.federation.parties.membership import pin_roster
from cslr.federation.parties.node_files import NodeFiles
from cslr.federation.parties.question import digest_of
from cslr.runs.deployment import joining
from cslr.runs.deployment.joining import Offer, join, open_node
from cslr.runs.deployment.source import Source, source_of_stream

AGREEMENT = b"what was agreed on"
SOURCE = source_of_stream("clinic", 2, "minilm", 13)
CHARTER = Charter(
    name="hospitals",
    family="classification",
    labels=("a", "b"),
    tasks=(CharterTask(name="one", labels=(0, 1)),),
    encoder="none",
    agreement=digest_of(AGREEMENT),
    declaration=SOURCE.digest,
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
OFFER = Offer(CHARTER, SOURCE, AGREEMENT)


@pytest.mark.parametrize(("sessions", "most"), [(None, CHARTER.sessions), (7, 7)])
def test_a_node_keeps_what_its_operator_agreed_to(tmp_path, sessions, most):
    folder = tmp_path / "ulm"
    member = join(OFFER, folder, "ulm", {"part": 1}, sessions)
    files = NodeFiles(folder)
    pinned = files.pinned()
    assert (pinned.name, pinned.charter, pinned.rows) == ("ulm", CHARTER, {"part": 1})
    assert pinned.most_sessions == most
    assert pinned.roster is None
    assert files.member("ulm") == member == read_model(folder / "member.json", type(member))
    assert read_model(folder / "source.json", Source) == SOURCE
    assert files.agreement(CHARTER.agreement) == AGREEMENT


@pytest.fixture
def ulm(tmp_path):
    """A node of three, with its roster pinned."""
    members = [join(OFFER, tmp_path / name, name, {"part": 1}) for name in ("ulm", "bonn", "kiel")]
    pin_roster(tmp_path / "ulm", Roster.of(CHARTER, tuple(members)))
    return tmp_path / "ulm"


def test_an_open_node_reads_its_rows_and_grades_its_head_as_it_was_told(ulm, monkeypatch):
    monkeypatch.setattr(joining, "rows_of_node", lambda *of: ("rows", *of))
    monkeypatch.setattr(joining, "graded_rows", lambda *of: ("graded", *of))
    node = open_node(ulm)
    try:
        assert node.population == ("rows", SOURCE, CHARTER, {"part": 1})
        expected = ("graded", SOURCE, CHARTER, {"part": 1}, node.files.model, "a head")
        assert node.grade("a head") == expected
    finally:
        node.close()


def test_a_node_whose_declaration_was_exchanged_does_not_open(ulm):
    other = source_of_stream("clinic", 1, "minilm", 13)
    (ulm / "source.json").write_text(other.model_dump_json())
    with pytest.raises(ConfigError, match=r"source\.json is not the one that was agreed on"):
        open_node(ulm)

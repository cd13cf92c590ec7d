"""A federation from its founding to predictions on a node, on the embedded streams, in one process.

All tests here share one embedding cache, so they run in one worker.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cslr.errors import BadField, ConfigError, TermsDiffer
from cslr.federation.parties.charter import Member, Roster, fingerprint
from cslr.federation.parties.coordinator import Event, Reply
from cslr.federation.parties.membership import pin_roster
from cslr.federation.parties.question import digest_of
from cslr.federation.parties.result_files import pack_result, unpack_result
from cslr.privacy.ledger.book import Ledger
from cslr.runs.deployment.founding import Wanted, found, usual_colluders, usual_threshold
from cslr.runs.deployment.joining import (
    join,
    open_node,
    read_offer,
    verify_agreement,
)
from cslr.runs.deployment.node_figures import graded_rows, own_accuracy
from cslr.runs.deployment.node_rows import rows_of_node
from cslr.runs.deployment.serving import (
    Served,
    Status,
    _send_agreement,
    _send_result,
    learn_remotely,
)
from cslr.runs.deployment.source import source_of_declaration, source_of_stream
from cslr.runs.predict import ModelFacts, load_predictor
from tests.federation.parties.machines import InProcess

pytestmark = pytest.mark.xdist_group("cli")
N = 5
CLINICS = Path(__file__).parents[3] / "examples" / "clinics"


@pytest.fixture(autouse=True)
def shared_cache(cache, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))


def wanted(source, members: int = N, **more) -> Wanted:
    colluders = usual_colluders(members)
    threshold = usual_threshold(members, colluders)
    sizes = (members, threshold, colluders, 1)
    return Wanted("clinics", source, *sizes, 8.0, 1e-5, "person", **more)


def founded(folder, source, rows, **more) -> Served:
    """A federation whose members have all joined."""
    served = Served(folder)
    asked = wanted(source, len(rows), **more)
    if (declared := source.declared()) is not None:
        asked = replace(asked, epsilon=declared.privacy.epsilon)
    found(asked).save(folder / "offer")
    offer = read_offer(folder / "offer")
    members = [join(offer, folder / f"node-{i}", f"node-{i}", each) for i, each in enumerate(rows)]
    roster = Roster.of(offer.charter, tuple(members))
    roster.save(folder / "offer" / "roster.json")
    for number in range(len(rows)):
        assert pin_roster(folder / f"node-{number}", roster) == fingerprint(roster.canonical())
    return served


def test_the_usual_threshold_leaves_no_two_sets_of_survivors():
    sizes = [
        (n, usual_threshold(n, usual_colluders(n)), usual_colluders(n)) for n in (3, 5, 20, 99)
    ]
    assert sizes == [(3, 3, 1), (5, 4, 1), (20, 14, 2), (99, 66, 9)]


def test_an_embedded_stream_is_learnt_and_every_node_can_predict(tmp_path):
    source = source_of_stream("clinic", 2, "minilm", 13)
    served = founded(tmp_path, source, [{"part": part} for part in range(N)])
    nodes = {number: open_node(tmp_path / f"node-{number}") for number in range(N)}
    lines: list[str] = []
    status = served.status(lines.append)
    learn_remotely(served, InProcess(nodes), status, 5.0)
    spent = Ledger.read(tmp_path / "server" / "ledger.jsonl")
    assert [charge.label for charge in spent.charges] == ["task 0", "task 1"]
    told = json.loads(status.path.read_bytes())
    assert told["phase"] == "finished"
    assert told["tasks"] == 2
    assert (told["promised"], told["spare"]) == (8.0, 1)
    assert told["epsilon"]["server"] == told["epsilon"]["roster"] < 8.0
    assert any("unmask" in line for line in lines)
    (answer,) = load_predictor(nodes[3].files.model).answers(["My heart beats far too fast."])
    assert answer.choices[0].label == "heart"
    line = own_accuracy(source, served.charter, {"part": 3}, nodes[3].files.model)
    assert float(line.split(" % right")[0]) > 80
    for node in nodes.values():
        assert len(node.ledger.charges) == 2
        assert (node.files.model / "seed-13" / "task-1.safetensors").read_bytes() == (
            served.run / "seed-13" / "task-1.safetensors"
        ).read_bytes()
        node.close()


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "evil/model"},
        {"encoder_id": "another"},
        {"others": {"evil/model": "another"}},
        {"labels": ("a", "b")},
        {"tasks": {"another": (0,)}},
        {"seeds": (13, 14)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_model_of_other_terms_is_not_kept_for_predictions(tmp_path, change):
    """`cslr predict` on a node loads the encoder that the model names, and shows it texts."""
    source = source_of_stream("clinic", 2, "minilm", 13)
    served = founded(tmp_path, source, [{"part": part} for part in range(3)])
    charter, node = served.charter, open_node(tmp_path / "node-0")
    tasks = {task.name: task.labels for task in charter.tasks[:1]}
    facts = ("cslr", charter.family, "class", charter.labels, tasks, "minilm", charter.encoder)
    good = ModelFacts(*facts, (13,))
    for number, model in enumerate((good, replace(good, **change))):
        (tmp_path / str(number)).mkdir()
        model.save(tmp_path / str(number))
    sent = [
        pack_result({"model.json": (tmp_path / number / "model.json").read_bytes()})
        for number in "01"
    ]
    node.answer("result", sent[0])
    with pytest.raises(TermsDiffer, match="another encoder, other labels or other tasks"):
        node.answer("result", sent[1])
    with pytest.raises(BadField, match="damaged"):
        node.answer("result", pack_result({"model.json": b"{}"}))
    kept = (node.files.model / "model.json").read_bytes()
    node.close()
    assert kept == (tmp_path / "0" / "model.json").read_bytes()


def test_what_nodes_hold_together_is_the_stream():
    source = source_of_stream("clinic", 2, "minilm", 13)
    charter = found(wanted(source)).charter
    parts = [rows_of_node(source, charter, {"part": part}) for part in range(N)]
    stream = source.with_rows()
    assert sum(len(part.z) for part in parts) == len(stream.train)
    assert sum(part.count for part in parts) == charter.units
    addresses = np.concatenate([part.addresses for part in parts])
    assert len(set(addresses.tolist())) == len(addresses)


def test_a_server_has_no_row(tmp_path):
    stream = source_of_stream("clinic", None, "minilm", 13).without_rows()
    assert len(stream.train) == len(stream.test) == 0
    assert len(stream.tasks) == 4


def clinics(folder) -> list[dict[str, str]]:
    """The four clinics of the example, each with a file of its own."""
    folder.mkdir()
    header, *lines = (CLINICS / "clinics.csv").read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("clinic")
    names = sorted({line.split(",")[place] for line in lines})
    for number, name in enumerate(names):
        own = [line for line in lines if line.split(",")[place] == name][:24]
        (folder / f"{number}.csv").write_text("\n".join([header, *own]) + "\n", encoding="utf-8")
    return [{"data": str(folder / f"{number}.csv")} for number in range(len(names))]


def test_own_rows_are_learnt_from_and_test_rows_are_counted_within_the_budget(tmp_path):
    rows = clinics(tmp_path / "rows")
    source = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    served = founded(tmp_path, source, rows, evaluation=True)
    nodes = {number: open_node(tmp_path / f"node-{number}") for number in range(len(rows))}
    tasks = set(range(len(served.charter.tasks)))
    assert set(np.unique(nodes[0].population.tasks)) <= tasks
    assert len(nodes[0].population.z) > 10
    status = served.status()
    learn_remotely(served, InProcess(nodes), status, 5.0)
    told = json.loads(status.path.read_bytes())
    assert len(told["evaluation"]["accuracy"]) == len(tasks)
    assert told["epsilon"]["server"] == told["epsilon"]["roster"] <= 4.0
    head = digest_of((nodes[1].files.model / "seed-13" / "head.safetensors").read_bytes())
    graded = nodes[1].grade(head)
    assert 0 < len(graded.right) == len(graded.units) < 24
    assert not len(nodes[1].grade("another head").right)
    for node in nodes.values():
        assert [charge.label for charge in node.ledger.charges][-1] == "evaluation"
        assert not (node.files.model / "seed-13" / "evaluation.safetensors").exists()
        node.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 15}, "--head rounds learns from the rows of the current task alone"),
        ({"evaluation": True}, "--evaluate private counts right answers on test rows of nodes"),
    ],
)
def test_what_nodes_could_not_answer_is_refused_at_the_founding(change, message):
    source = source_of_stream("clinic", 2, "minilm", 13)
    with pytest.raises(ConfigError, match=message):
        found(wanted(source, **change))


def test_a_private_evaluation_counts_people_of_one_node(tmp_path):
    text = (CLINICS / "clinics.cslr.toml").read_text(encoding="utf-8")
    text = text.replace("people = 450", "people = 450\nclients_per_person = 2")
    once = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    source = once.model_copy(update={"declaration": text})
    with pytest.raises(ConfigError, match="counts a person's answers in one node"):
        found(replace(wanted(source, 4, evaluation=True), epsilon=4.0))


def test_an_offer_whose_parts_do_not_belong_together_is_refused(tmp_path):
    found(wanted(source_of_stream("clinic", 2, "minilm", 13))).save(tmp_path / "offer")
    source_of_stream("clinic", 1, "minilm", 13)
    other = source_of_stream("clinic", 1, "minilm", 13).model_dump_json()
    (tmp_path / "offer" / "source.json").write_text(other)
    with pytest.raises(ConfigError, match="do not belong together"):
        read_offer(tmp_path / "offer")


def test_an_agreement_is_verified_against_what_it_was_made_from(tmp_path):
    source = source_of_stream("clinic", 2, "minilm", 13)
    found(wanted(source)).save(tmp_path / "offer")
    offer = read_offer(tmp_path / "offer")
    verify_agreement(offer)
    other = found(wanted(source_of_stream("clinic", 2, "minilm", 17)))
    with pytest.raises(ConfigError, match=r"different: .*seed"):
        verify_agreement(replace(offer, agreement=other.agreement))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 8.0}, "one person with ε = 8 .* declared is one person with ε = 4"),
        ({"delta": 1e-3}, "δ = 0.001; declared is"),
        ({"unit": "client"}, "hides one client"),
    ],
)
def test_an_offer_that_promises_less_than_is_declared_is_refused(tmp_path, change, message):
    source = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    asked = replace(wanted(source, 4), **{"epsilon": 4.0, **change})
    found(asked).save(tmp_path / "offer")
    with pytest.raises(ConfigError, match=message):
        read_offer(tmp_path / "offer")


def test_an_agreement_that_clips_for_fewer_nodes_than_declared_is_refused(tmp_path):
    """With --verify it would be found too; the clip protects, so it is always compared."""
    text = (CLINICS / "clinics.cslr.toml").read_text(encoding="utf-8")
    once = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    twice = text.replace("people = 450", "people = 450\nclients_per_person = 2")
    shared = once.model_copy(update={"declaration": twice})
    asked = replace(wanted(once, 4), epsilon=4.0)
    founded = found(asked)
    charter = founded.charter.model_copy(update={"declaration": shared.digest})
    replace(founded, source=shared, charter=charter).save(tmp_path / "offer")
    with pytest.raises(ConfigError, match="in 2 nodes, but the offer clips as for 1"):
        read_offer(tmp_path / "offer")
    corrected = found(replace(asked, source=shared))
    corrected.save(tmp_path / "corrected")
    assert read_offer(tmp_path / "corrected").source == shared
    # Answers on test rows are counted as for one node.
    counted = found(replace(asked, evaluation=True))
    charter = counted.charter.model_copy(update={"declaration": shared.digest})
    other = replace(corrected, charter=charter)
    other = replace(
        other, charter=charter.model_copy(update={"agreement": digest_of(other.agreement)})
    )
    other.save(tmp_path / "counted")
    with pytest.raises(ConfigError, match="counts right answers as for one"):
        read_offer(tmp_path / "counted")


def test_a_node_that_is_the_unit_has_rows_of_one_client(tmp_path):
    (rows, *_) = clinics(tmp_path / "rows")
    path = Path(rows["data"])
    declared = (CLINICS / "clinics.cslr.toml").read_text(encoding="utf-8")
    for line in ("people = 450\n", "rows_per_person = 2\n", 'unit = "person"\n'):
        declared = declared.replace(line, "")
    source = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    source = source.model_copy(update={"declaration": declared})
    charter = found(replace(wanted(source, 4), unit="client", epsilon=4.0)).charter
    assert len(np.unique(rows_of_node(source, charter, rows).clients)) == 1
    header, first, *more = path.read_text(encoding="utf-8").splitlines()
    cells = first.split(",")
    cells[header.split(",").index("clinic")] = "another"
    cells[header.split(",").index("patient")] = "somebody"
    path.write_text("\n".join([header, ",".join(cells), *more]) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="rows of 2 clients, but the node as a whole"):
        rows_of_node(source, charter, rows)


def test_a_roster_without_the_nodes_own_key_is_not_pinned(tmp_path):
    source = source_of_stream("clinic", 2, "minilm", 13)
    found(wanted(source, 3)).save(tmp_path / "offer")
    offer = read_offer(tmp_path / "offer")
    members = [join(offer, tmp_path / f"node-{i}", f"node-{i}", {"part": i}) for i in range(3)]
    false = Member(name="node-1", identity="ab" * 32)
    with pytest.raises(ConfigError, match="does not name 'node-1'"):
        pin_roster(tmp_path / "node-1", Roster.of(offer.charter, (members[0], false, members[2])))
    roster = Roster.of(offer.charter, tuple(members))
    pin_roster(tmp_path / "node-1", roster)
    other = Roster.of(offer.charter, (Member(name="node-0", identity="cd" * 32), *members[1:]))
    with pytest.raises(ConfigError, match="pinned another roster"):
        pin_roster(tmp_path / "node-1", other)
    with pytest.raises(ConfigError, match="no roster yet"):
        open_node(tmp_path / "node-0")
    with pytest.raises(ConfigError, match="is a node already"):
        join(offer, tmp_path / "node-0", "node-0", {})


def test_what_happens_is_a_line_and_a_file_without_anything_else(tmp_path):
    said: list[str] = []
    status = Status(tmp_path / "status.json", ("anna", "bert", "carla"), said.append)
    status.note(Event("started"))
    status.note(Event("masked", "task 0", 3, (2, 0), "1 is away"))
    assert said == ["started   ", "task 0   masked    carla, anna · 1 is away"]
    kept = json.loads((tmp_path / "status.json").read_text())
    assert (kept["phase"], kept["release"], kept["session"]) == ("masked", "task 0", 3)
    assert kept["members"] == ["carla", "anna"]
    log = [(line["what"], line["members"]) for line in kept["log"]]
    assert log == [("started", []), ("masked", ["carla", "anna"])]
    assert all(line["time"] == round(line["time"], 1) for line in kept["log"])


def test_a_node_with_another_head_grades_no_row(tmp_path):
    graded = graded_rows(None, None, {}, tmp_path, head="of another run")
    assert [len(each) for each in (graded.right, graded.tasks, graded.units)] == [0, 0, 0]
    assert graded.right.dtype == np.bool_


def test_test_rows_of_no_client_are_nobody_and_graded_for_nobody(tmp_path, monkeypatch):
    """As one unit they mix people: one with rows in another unit, too, could move a sum by 2S."""
    rows = clinics(tmp_path / "rows")
    source = source_of_declaration(CLINICS / "clinics.cslr.toml", "minilm", 13)
    served = founded(tmp_path, source, rows)
    nodes = {number: open_node(tmp_path / f"node-{number}") for number in range(len(rows))}
    learn_remotely(served, InProcess(nodes), served.status(), 5.0)
    model = nodes[1].files.model
    head = digest_of((model / "seed-13" / "head.safetensors").read_bytes())
    before = graded_rows(source, served.charter, rows[1], model, head)
    assert len(before.units)
    short = ModelFacts.load(model)
    replace(short, tasks=dict(list(short.tasks.items())[:1])).save(model)
    assert not len(graded_rows(source, served.charter, rows[1], model, head).units)
    short.save(model)
    path = Path(rows[1]["data"])
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    clinic, split = header.split(",").index("clinic"), header.split(",").index("split")
    for number, line in enumerate(lines):
        cells = line.split(",")
        if cells[split] == "test" and '"' not in line:
            cells[clinic] = ""
        lines[number] = ",".join(cells)
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    after = graded_rows(source, served.charter, rows[1], model, head)
    assert len(after.units) < len(before.units)
    assert (after.units >= 0).all()
    for node in nodes.values():
        node.close()


# -- what is sent to nodes -------------------------------------------------------------------------


class Recording:
    """A transport that notes what is sent; the members in ``without`` have no agreement yet."""

    def __init__(self, there: set[int], without: set[int] = frozenset()) -> None:
        self.there, self.without = there, without
        self.sent: list[tuple[str, dict[int, bytes], float]] = []

    def present(self) -> frozenset[int]:
        return frozenset(self.there)

    def ask(self, route: str, bodies: dict[int, bytes], seconds: float) -> dict[int, Reply]:
        self.sent.append((route, dict(bodies), seconds))
        return {
            member: Reply(b"\0" if member in self.without and not body else b"\1")
            for member, body in bodies.items()
        }


def test_the_agreement_goes_to_the_nodes_that_do_not_have_it(tmp_path):
    """It is megabytes: the others are asked for one byte, with a fifth of the time."""
    (tmp_path / "offer").mkdir()
    (tmp_path / "offer" / "agreement.safetensors").write_bytes(b"agreed")
    transport = Recording({0, 1, 3}, without={1, 3})
    _send_agreement(Served(tmp_path), transport, 2.0)
    asked, sent = transport.sent
    assert asked == ("agreement", {0: b"", 1: b"", 3: b""}, 2.0)
    assert sent == ("agreement", {1: b"agreed", 3: b"agreed"}, 10.0)


def test_a_result_is_sent_without_what_was_counted_on_test_rows(tmp_path):
    files = ["config.json", "model.json", "trace.jsonl"]
    files += [f"seed-13/{name}.safetensors" for name in ("head", "task-0", "evaluation")]
    (tmp_path / "seed-13").mkdir()
    for name in files:
        (tmp_path / name).write_bytes(name.encode())
    transport = Recording({0, 2})
    _send_result(tmp_path, 13, transport, 2.0)
    ((route, bodies, seconds),) = transport.sent
    assert (route, sorted(bodies), seconds) == ("result", [0, 2], 10.0)
    assert bodies[0] == bodies[2]
    names = ["config.json", "model.json", "seed-13/head.safetensors", "seed-13/task-0.safetensors"]
    assert unpack_result(bodies[0]) == {name: name.encode() for name in names}

"""What a hostile server sends beyond the moves of the secure sum, and how a node refuses it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

import cslr.federation.parties.node as node_module
from cslr.errors import (
    BadField,
    BadSignature,
    ConfigError,
    MalformedMessage,
    MessageError,
    MessageTooLarge,
    OutOfTurn,
    SumAborted,
    TermsDiffer,
    TruncatedMessage,
    UnknownClient,
    WrongKind,
    WrongShape,
)
from cslr.federation.parties.asking import asked, pack_statistics, release_of
from cslr.federation.parties.charter import Charter, Member, Roster, fingerprint
from cslr.federation.parties.node import ROUTES
from cslr.federation.parties.proof import proven
from cslr.federation.parties.question import (
    framed,
    opened,
    pack_agreement,
    unframed,
    unpack_agreement,
)
from cslr.federation.parties.refusals import CODES, FAILED, code_of, meaning_of
from cslr.federation.parties.result_files import pack_result, unpack_result
from cslr.methods.cslr import agree
from cslr.privacy import values
from cslr.protocol.round import sum_ask
from tests.federation.parties.machines import N


def gradient(task: int, number: int, weights: np.ndarray | None = None) -> bytes:
    """A question for a gradient."""
    arrays = {"weights": np.zeros((13, 4)) if weights is None else weights}
    arrays |= {"centre": np.zeros(12), "size": np.ones(1)}
    return save(arrays, {"kind": "gradient", "task": str(task), "round": str(number)})


def changed(federation, keep, change):
    """Learn with a server whose mask question is changed; all refusals."""

    def tamper(route, member, body):
        if route != "mask":
            return body
        question, request = unframed(body)
        return framed(change(question), request)

    federation.transport.tamper, federation.attempts = tamper, 1
    with pytest.raises(SumAborted, match="only 0 members sent"):
        federation.learn(keep)
    assert all(federation.spent(number) == [] for number in range(N)), "refused before charging"
    return {type(error) for _, _, error in federation.transport.refused}


def test_a_question_about_another_task_is_refused_and_costs_nothing(machines, drawer):
    def another(question):
        return pack_statistics(1, opened(question, len(question))[0]["means"])

    federation = machines()
    assert changed(federation, drawer, another) == {TermsDiffer}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda q: pack_statistics(9, np.zeros((2, 8))), BadField),
        (lambda q: pack_statistics(0, np.full((2, 8), np.nan)), BadField),
        (lambda q: pack_statistics(0, np.full((2, 8), 1e200)), BadField),
        (lambda q: pack_statistics(0, np.zeros((3, 8))), WrongShape),
        (lambda q: pack_statistics(0, np.zeros((2, 7))), WrongShape),
        (lambda q: save({"means": np.zeros((2, 8))}, {"kind": "list", "task": "0"}), BadField),
        (lambda q: save({"means": np.zeros((2, 8))}, {"kind": "statistics"}), BadField),
        (lambda q: gradient(task=0, number=0), TermsDiffer),
        (lambda q: save({"tasks": np.array([2.0])}, {"kind": "evaluation"}), TermsDiffer),
        (lambda q: b"pickle", MalformedMessage),
        (lambda q: b"", MalformedMessage),
    ],
)
def test_a_question_that_does_not_fit_is_refused_and_costs_nothing(machines, drawer, change, error):
    assert changed(machines(), drawer, change) == {error}


def test_the_columns_of_a_gradient_follow_from_the_charter_alone(machines):
    """A server names a task; which columns it trains the node knows by itself."""
    node = machines("tagging", rounds=2).node(0)
    inputs, outputs = len(node.agreement.space.centre), node.agreement.family.outputs
    arrays = {"weights": np.zeros((inputs + 1, outputs))}
    arrays |= {"centre": np.zeros(inputs), "size": np.ones(1)}
    for task, trained in enumerate(([1, 2], [3, 4, 5, 6])):
        names = {"kind": "gradient", "task": str(task), "round": "0"}
        plain = asked(save(arrays, names), node.charter, node.agreement)
        np.testing.assert_array_equal(plain.ask.request.trained, trained)
        assert plain.release.coordinates == (inputs + 1) * len(trained)
        assert plain.task == task
        for columns in (np.array(trained, dtype=np.float64), np.arange(7.0), np.arange(40.0)):
            with pytest.raises(BadField, match="is not one that this node answers"):
                asked(save({**arrays, "trained": columns}, names), node.charter, node.agreement)
        narrow = {**arrays, "weights": arrays["weights"][:, trained]}
        with pytest.raises(WrongShape, match="do not fit"):
            asked(save(narrow, names), node.charter, node.agreement)


def test_a_gradient_of_more_columns_than_agreed_is_refused(machines):
    """A charter that sets δ aside for the first task alone."""
    node = machines("tagging", rounds=2).node(0)
    inputs, outputs = len(node.agreement.space.centre), node.agreement.family.outputs
    arrays = {"weights": np.zeros((inputs + 1, outputs))}
    arrays |= {"centre": np.zeros(inputs), "size": np.ones(1)}
    few = node.charter.model_copy(update={"coordinates": 2 * (inputs + 1)})
    questions = [save(arrays, {"kind": "gradient", "task": t, "round": "0"}) for t in "01"]
    assert asked(questions[0], few, node.agreement).release.coordinates == few.coordinates
    with pytest.raises(TermsDiffer, match="coordinates"):
        asked(questions[1], few, node.agreement)


def steep(node, size: float) -> bytes:
    """Overflows for a row whose fourth coordinate is above ``size``, and for no other."""
    inputs, outputs = len(node.agreement.space.centre), node.agreement.family.outputs
    weights = np.zeros((inputs + 1, outputs))
    weights[3, 0] = 1.79e308
    arrays = {"weights": weights, "centre": np.zeros(inputs), "size": np.array([size])}
    return save(arrays, {"kind": "gradient", "task": "0", "round": "0"})


def test_a_question_cannot_overflow_for_some_rows_and_not_for_others(machines, drawer):
    """Whether the node answers would be an exact bit about its rows, without charge and noise."""
    federation = machines(rounds=2)
    node = federation.node(0)
    rows = node.population.z[node.population.tasks == 0]
    largest = float(rows[:, 3].max())
    for size in (largest / 2, largest * 2):
        question = steep(node, size)
        assert changed(federation, drawer, lambda _, asked=question: asked) == {BadField}
        federation.transport.refused.clear()
    tiny = steep(node, 1e-300).replace(np.float64(1.79e308).tobytes(), np.float64(1.0).tobytes())
    with pytest.raises(WrongShape, match="do not fit"):
        asked(tiny, node.charter, node.agreement)


def test_a_node_that_cannot_answer_sends_zeros_and_noise(machines, drawer):
    """A failure may depend on rows, so the server must not see that there was one."""
    federation = machines()
    node = federation.node(0)
    node.population.z[:] = np.nan
    assert len(federation.learn(drawer)[0]) == 3
    assert federation.transport.refused == []
    assert federation.spent(0) == federation.spent(1)
    assert "zeros in place of an answer" in (node.files.path / "node.log").read_text()


@pytest.mark.parametrize("failing", [(0,), (0, 3)])
def test_a_unit_that_cannot_answer_does_not_silence_the_others(machines, failing):
    """Otherwise one person's rows could change the sum by far more than the bound."""
    federation = machines()
    node = federation.node(0)
    means = node.agreement.request(0, federation.context.tasks[0]).prototypes.mean
    question = asked(pack_statistics(0, means), node.charter, node.agreement)
    people = node.population
    others = ~np.isin(people.clients, failing)
    kept = {name: getattr(people, name)[others] for name in ("z", "labels", "tasks", "clients")}
    node.__dict__["population"] = replace(people, **kept)
    without = node._own_sum(question).total(values._SEAL)
    node.__dict__["population"] = people
    people.z[~others] = np.nan
    with np.errstate(all="ignore"):
        said = node._own_sum(question).total(values._SEAL)
    assert np.array_equal(said, without)
    assert said.any()


def test_a_head_that_test_rows_do_not_fit_is_answered_with_zeros(machines):
    """A server sends the head: one that fails for rows of some task must not tell whose."""
    node = machines(evaluation=True).node(0)

    def failing(head):
        raise IndexError("index 1 is out of bounds for axis 0 with size 1")

    node.grade = failing
    question = save({"tasks": np.array([2.0])}, {"kind": "evaluation", "head": "0" * 64})
    said = node._own_sum(asked(question, node.charter, node.agreement))
    assert not said.total(values._SEAL).any()
    assert "zeros in place of an answer" in (node.files.path / "node.log").read_text()


def test_a_lower_sigma_is_refused_and_costs_nothing(machines, drawer):
    federation = machines()
    context, coordinator = federation.server(drawer)
    with context.ledger:
        agreement = agree(context)
        request = agreement.request(0, context.tasks[0])
        ask = sum_ask(request)
        release = release_of(ask, federation.charter.noise / 2)
        question = pack_statistics(0, request.prototypes.mean)
        charge = context.plan.charge("task 0", 0)
        with pytest.raises(SumAborted, match="only 0 members sent"):
            coordinator.total(release, question, charge, context.ledger)
    assert {type(error) for _, _, error in federation.transport.refused} == {TermsDiffer}
    assert federation.spent(0) == []


def test_another_agreement_than_the_pinned_one_is_refused(machines, drawer):
    federation = machines()
    node = federation.node(0)
    assert node.answer("agreement", b"") == b"\1"
    other = bytearray(federation.agreement)
    other[-1] ^= 1
    with pytest.raises(TermsDiffer, match="another agreement"):
        node.answer("agreement", bytes(other))
    assert node.answer("agreement", b"") == b"\1"
    (federation.files(1).path / "agreement.safetensors").unlink()
    federation.end(1)
    federation.start(1)
    assert federation.node(1).answer("agreement", b"") == b"\0"
    with pytest.raises(OutOfTurn, match="agreement"):
        federation.node(1).agreement  # noqa: B018


def test_the_agreement_travels_to_the_last_bit(machines):
    federation = machines()
    there = unpack_agreement(federation.agreement)
    here = agree(federation.context)
    assert pack_agreement(there) == federation.agreement
    assert there.space.digest() == here.space.digest()
    assert (there.bounds, there.kept, there.resolution) == (here.bounds, here.kept, here.resolution)
    with pytest.raises(MalformedMessage, match="agreement is not as expected"):
        unpack_agreement(pack_statistics(0, np.zeros((2, 8))))


def test_a_charter_that_promises_more_than_its_noise_gives_is_refused(machines):
    charter = machines().charter
    weak = Charter.model_validate({**charter.model_dump(), "noise": charter.noise * 0.99})
    with pytest.raises(ConfigError, match="needs"):
        weak.plan  # noqa: B018
    assert charter.plan.sigma == charter.noise


def test_terms_depend_on_every_word_of_the_charter(machines):
    federation = machines()
    other = Charter.model_validate({**federation.charter.model_dump(), "spare": 1})
    with pytest.raises(ConfigError, match="another charter"):
        federation.roster.terms(other)
    roster = Roster.of(other, federation.roster.members)
    assert roster.terms(other).digest != federation.roster.terms(federation.charter).digest
    with pytest.raises(ConfigError, match="4 to 5 members"):
        Roster.of(other, federation.roster.members[:3])
    twice = (*federation.roster.members[:3], federation.roster.members[0])
    with pytest.raises(ConfigError, match="different names"):
        Roster.of(other, twice)
    assert len(fingerprint(other.canonical()).split()) == 5


def test_who_is_not_on_the_roster_proves_nothing(machines):
    federation = machines()
    terms, challenge = federation.roster.terms(federation.charter), bytes(32)
    answer = federation.node(3).answer("hello", challenge)
    assert proven(terms, challenge, answer) == 3
    with pytest.raises(BadSignature, match="not signed by member 3"):
        proven(terms, b"\1" * 32, answer)
    with pytest.raises(BadSignature, match="not signed by member 4"):
        proven(terms, challenge, (4).to_bytes(4, "little") + answer[4:])
    with pytest.raises(UnknownClient, match="names no member"):
        proven(terms, challenge, (9).to_bytes(4, "little") + answer[4:])
    with pytest.raises(TruncatedMessage, match="32 bytes, not 5"):
        federation.node(3).answer("hello", b"short")


def test_an_unknown_route_or_a_message_on_another_route_is_refused(machines):
    node = machines().node(0)
    with pytest.raises(WrongKind, match="no question 'run'"):
        node.answer("run", b"")
    for route in ROUTES:
        if route not in ("agreement", "result"):
            with pytest.raises(MessageError, match=r"no message of|32 bytes") as caught:
                node.answer(route, b"\0" * 40)
            assert code_of(caught.value) != FAILED


def test_a_result_cannot_be_written_elsewhere(machines):
    node = machines().node(0)
    good = {"config.json": b"{}", "model.json": b"{}", "seed-13/head.safetensors": b"h"}
    assert unpack_result(pack_result(good)) == good
    node.answer("result", pack_result(good))
    assert (node.files.model / "seed-13" / "head.safetensors").read_bytes() == b"h"
    for name in ("../node.json", "/etc/passwd", "seed-13/../../x", "head.py", "config.json/x"):
        with pytest.raises(BadField, match="a file that is not expected"):
            node.answer("result", pack_result({name: b"x"}))
    with pytest.raises(TruncatedMessage, match="ends within a file"):
        unpack_result(pack_result(good)[:-1])


def test_results_cannot_fill_a_disk(machines, monkeypatch):
    """Each result is small and has new file names; their total is bounded, too."""
    monkeypatch.setattr(node_module, "_MOST_RESULT", 1000)
    monkeypatch.setattr(node_module, "_FILES_OF_RESULT", 3 * 4096)
    node = machines().node(0)
    kept = [pack_result({f"seed-{seed}/head.safetensors": b"h" * 300}) for seed in range(4)]
    for each in (*kept[:3], *kept[:3]):
        node.answer("result", each)
    with pytest.raises(MessageTooLarge, match="bytes are kept, more than"):
        node.answer("result", kept[3])
    with pytest.raises(MessageTooLarge, match="bytes are kept, more than"):
        node.answer("result", pack_result({"seed-9/head.safetensors": b""}))
    assert len(list(node.files.model.rglob("*.safetensors"))) == 3


def test_codes_tell_nothing_of_rows():
    assert code_of(ValueError("Marie Holt")) == FAILED
    assert code_of(ConfigError("/home/marie")) == FAILED
    assert len({code for code, _ in CODES.values()}) == len(CODES)
    assert "log" in meaning_of(FAILED)
    assert meaning_of(12) == "the node pinned other terms"


def test_a_name_that_could_be_a_path_is_no_member():
    with pytest.raises(ValueError, match="name"):
        Member(name="../a", identity="0" * 64)

"""Nodes on other machines give the bits of a simulation that draws the same noise shares."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cslr.errors import BadField, PrivacyError, SumAborted, TermsDiffer, WrongShape
from cslr.federation.parties import node as node_module
from cslr.federation.parties.asking import release_of
from cslr.federation.parties.remote import RemoteCohort
from cslr.federation.simulation import Population
from cslr.methods.cslr import stages
from cslr.methods.gradient_rounds import CLIP, start_rule
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.values import _SEAL, Noised
from cslr.protocol.evaluation import GRID, LABEL, Exam, Graded, answers_of
from cslr.protocol.ports import Ask, NoisedCohort
from cslr.protocol.updates import UpdateId, update_ask
from cslr.runs.measure import counted_by
from tests.federation.parties.machines import N

EXAM = Ask(LABEL, "evaluation", Exam(2), GRID)


class SharesClients:
    """A simulation of the same clients that draws the very shares the nodes drew."""

    def __init__(self, population: Population, terms, keys) -> None:
        self.population, self.terms, self.keys = population, terms, keys
        self.count = population.count

    def cohort(self, task, taking_part, cap, cap_memory=None, alone=False):
        outer, inner = self, self.population.cohort(task, taking_part, cap, cap_memory, True)

        class Cohort:
            def noised(self, ask, charge, ledger):
                release = release_of(ask, charge.sigma)
                total = inner.total(ask).total(_SEAL)
                scale = outer.terms.share_scale(release)
                for key in outer.keys[ask.label]:
                    total = total + draw_share(scale, release.coordinates, key)
                survivors = tuple(range(len(outer.keys[ask.label])))
                multiplier = outer.terms.multiplier(release, len(survivors))
                return Noised(total, release.grid, charge.sigma, multiplier, survivors, _SEAL)

        return Cohort()


@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
@pytest.mark.parametrize(
    ("unit", "rounds"),
    [
        ("client", 0),
        ("person", 0),
        ("person", 2),
        pytest.param("client", 2, marks=pytest.mark.slow),
    ],
    ids=["client", "person", "person-gradients", "client-gradients"],
)
def test_bit_equal_to_a_simulation_with_the_same_shares(
    machines, drawn, make_drawer, tmp_path, family, unit, rounds
):
    federation, kept, again = machines(family, unit, rounds=rounds), make_drawer(), make_drawer()
    fitted, ledger, _ = federation.learn(kept)
    terms = federation.roster.terms(federation.charter)
    clients = SharesClients(federation.context.clients, terms, drawn)
    other = Ledger.in_memory(federation.charter.federation, EphemeralKeys(tmp_path / "other"))
    context = replace(
        federation.context,
        clients=clients,
        plan=federation.charter.plan,
        ledger=other,
        keep=again,
    )
    simulated = [stage() for stage in stages(context)]
    updates = {f"task {task} update {number}" for task in (0, 1) for number in range(rounds)}
    assert kept.kept.keys() == (updates or {"task 0", "task 1"})
    for label, vector in kept.kept.items():
        assert np.array_equal(vector, again.kept[label])
    for name, array in fitted[-1].artefacts["head"].items():
        assert np.array_equal(array, simulated[-1].artefacts["head"][name])
    assert [charge.carried for charge in ledger.charges] == [c.carried for c in other.charges]


def graded(federation, number: int, head: str) -> Graded:
    """Test rows of two people of a node: of one about both tasks, of the other about one."""
    assert head == "the head's digest"
    right = np.array([True, number != 1, False])
    return Graded(right, np.array([0, 1, 0]), np.array([7, 7, 8]))


@pytest.mark.parametrize("rounds", [0, 2], ids=["statistics", "gradients"])
def test_right_answers_are_counted_within_the_budget(machines, drawer, drawn, rounds):
    federation = machines(cap=1, evaluation=True, rounds=rounds)
    for number in range(N):
        federation.node(number).grade = partial(graded, federation, number)
    context, coordinator = federation.server(drawer)
    with context.ledger as ledger:
        list(stages(context))
        cohort = RemoteCohort(coordinator, "the head's digest")
        counted = counted_by(lambda: cohort, context)
        assert ledger.epsilon("end_to_end", "server") <= federation.charter.epsilon
    sums = sum(answers_of(graded(federation, n, cohort.head), EXAM)._rows.sum(0) for n in range(N))
    keys, scale = drawn["evaluation"], federation.charter.plan.evaluation_sigma
    terms = federation.roster.terms(federation.charter)
    release = release_of(EXAM, scale)
    noise = sum(draw_share(terms.share_scale(release), 4, key) for key in keys)
    assert drawer.kept["evaluation"] == pytest.approx(GRID.decode(sums + noise))
    assert counted["sigma"] == pytest.approx(scale)
    assert len(counted["accuracy"]) == 2
    assert all(federation.spent(number)[-1] == "evaluation" for number in range(N))


def test_a_node_without_test_rows_counts_zeros_and_noise(machines, drawer, drawn):
    federation = machines(evaluation=True)
    context, coordinator = federation.server(drawer)
    with context.ledger:
        counted = counted_by(lambda: RemoteCohort(coordinator, "any"), context)
    assert len(drawn["evaluation"]) == N
    assert counted["accuracy"] == [None, None]  # nothing but noise: too little weight to tell


@pytest.mark.parametrize(("task", "number", "error"), [(0, 2, TermsDiffer), (5, 0, BadField)])
def test_a_round_that_was_not_agreed_on_is_refused_and_costs_nothing(
    machines, drawer, task, number, error
):
    federation = machines(rounds=2)
    context, coordinator = federation.server(drawer)
    with context.ledger as ledger:
        question = start_rule(context).question()
        ask = update_ask(UpdateId(task, number, context.clients.count), question, CLIP)
        charge = context.plan.head_charge(ask.label, 0, 0)
        with pytest.raises(SumAborted, match="only 0 members sent"):
            RemoteCohort(coordinator).noised(ask, charge, ledger)
    assert {type(each) for _, _, each in federation.transport.refused} == {error}
    assert federation.spent(0) == []


def test_a_larger_clip_or_other_weights_are_refused_and_cost_nothing(machines, drawer):
    federation = machines(rounds=2)
    context, coordinator = federation.server(drawer)
    with context.ledger as ledger:
        question = start_rule(context).question()
        update = UpdateId(0, 0, context.clients.count)
        charge = context.plan.head_charge(update.label, 0, 0)
        for bad in (
            update_ask(update, question, 2 * CLIP),
            update_ask(update, replace(question, weights=question.weights[:-1]), CLIP),
            update_ask(update, replace(question, weights=question.weights * np.nan), CLIP),
        ):
            with pytest.raises(SumAborted, match="only 0 members sent"):
                RemoteCohort(coordinator).noised(bad, charge, ledger)
    refused = [type(each) for _, _, each in federation.transport.refused]
    assert set(refused) == {TermsDiffer, WrongShape, BadField}
    assert federation.spent(0) == []


def test_a_server_has_the_rosters_epsilon_and_knows_how_much_noise_came(machines, drawer):
    federation = machines(cap=1)
    _, ledger, coordinator = federation.learn(drawer)
    sigma = federation.charter.noise
    server, roster = (ledger.epsilon("end_to_end", who) for who in ("server", "roster"))
    assert server == roster < federation.charter.epsilon
    # All five survived: σ grows by √(5 / (4 − 1)), and that is what the reader is told.
    carried = [charge.carried for charge in ledger.charges]
    assert carried == pytest.approx([sigma * np.sqrt(5 / 3)] * 2, rel=1e-6)
    # The first release takes five exchanges, the second three.
    assert coordinator.exchanges == 8
    for number in range(N):
        own = federation.node(number).ledger
        assert federation.spent(number) == ["task 0", "task 1"]
        assert own.epsilon("end_to_end", "server") == roster
        assert not own.unsettled


def test_a_node_without_rows_sends_zeros_and_noise(machines, drawer, world, drawn):
    federation = machines()
    federation.end(3)
    nothing = replace(
        federation.context.clients,
        z=np.zeros((0, world.population.z.shape[1])),
        labels=np.zeros(0, dtype=np.int64),
        tasks=np.zeros(0, dtype=np.int64),
        clients=np.zeros(0, dtype=np.int64),
        count=1,
        targets=None,
    )
    federation.transport.nodes[3] = node_module.Node(federation.files(3), lambda: nothing)
    federation.learn(drawer)
    assert [len(keys) for keys in drawn.values()] == [N, N]
    assert federation.spent(3) == ["task 0", "task 1"]


def test_only_noised_sums_are_asked_for_across_machines(machines, drawer):
    federation = machines()
    context, coordinator = federation.server(drawer)
    with context.ledger:
        cohort = context.cohort(0)
        assert isinstance(cohort, RemoteCohort)
        assert isinstance(cohort, NoisedCohort)
        ask = type("Ask", (), {"label": "task 0 list", "kind": "list", "request": None})()
        for call in (cohort.total, cohort.each):
            with pytest.raises(PrivacyError, match="noised sums alone"):
                call(ask)
        with pytest.raises(PrivacyError, match="noised sums of statistics"):
            cohort.noised(ask, context.plan.charge("task 0", 0), context.ledger)
    assert coordinator.exchanges == 0

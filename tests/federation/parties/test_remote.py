"""Nodes on other machines give, bit for bit, what a simulation gives that draws their shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import PrivacyError
from cslr.federation.parties import node as node_module
from cslr.federation.parties.question import release_of
from cslr.federation.parties.remote import RemoteCohort
from cslr.federation.simulation import Population
from cslr.methods.cslr import stages
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.keys import EphemeralKeys
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.values import _SEAL, Noised
from cslr.protocol.ports import NoisedCohort
from tests.federation.parties.machines import N


class SharesClients:
    """A simulation of the same clients that draws the very shares the nodes drew."""

    def __init__(self, population: Population, terms, keys) -> None:
        self.population, self.terms, self.keys = population, terms, keys
        self.count = population.count

    def cohort(self, task, taking_part, cap, spoken=None, alone=False):
        outer, inner = self, self.population.cohort(task, taking_part, cap, spoken, True)

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
@pytest.mark.parametrize("unit", ["client", "person"])
def test_bit_equal_to_a_simulation_with_the_same_shares(
    machines, drawn, make_drawer, tmp_path, family, unit
):
    federation, kept, again = machines(family, unit), make_drawer(), make_drawer()
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
    assert kept.kept.keys() == {"task 0", "task 1"}
    for label, vector in kept.kept.items():
        assert np.array_equal(vector, again.kept[label])
    for name, array in fitted[-1].artefacts["head"].items():
        assert np.array_equal(array, simulated[-1].artefacts["head"][name])
    assert [charge.carried for charge in ledger.charges] == [c.carried for c in other.charges]


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
        with pytest.raises(PrivacyError, match="only noised sums"):
            cohort.noised(ask, context.plan.charge("task 0", 0), context.ledger)
    assert coordinator.exchanges == 0

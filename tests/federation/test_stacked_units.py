"""Stacked units with enforced privacy: every bit of an answer depends on that unit alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.federation import simulation
from cslr.privacy.values import _SEAL
from cslr.protocol.list_mode import list_ask
from cslr.protocol.messages import answer
from cslr.protocol.ports import Examples
from cslr.protocol.round import block_ask, statistics_of, sum_ask
from cslr.protocol.step4_aggregate.contribution import FEW_UNITS
from cslr.protocol.step5_rounds import LinearRule, LinearSpace
from cslr.protocol.updates import UpdateId, update_ask

LISTS = {"sub_modes": 2, "list_size": 4}
TIED = replace(FEW_UNITS, full_weight=1, tied=6)


UNITS = 20


def held(population, rows, clients, units):
    """Some of the rows, held by others."""
    targets = None if population.targets is None else population.targets[rows]
    return replace(
        population,
        z=population.z[rows],
        labels=population.labels[rows],
        tasks=population.tasks[rows],
        targets=targets,
        clients=clients,
        count=units,
    )


def people_of(population):
    """Every third row, held by people with one to eight of a task each."""
    rows = np.arange(0, len(population.z), 3)
    clients = np.minimum(np.random.default_rng(5).geometric(0.09, size=len(rows)), UNITS) - 1
    return held(population, rows, clients, UNITS)


def pairs_of(population, units=5):
    """A few people with two rows each, where each takes long."""
    rows = np.flatnonzero(population.tasks == 0)[: 2 * units]
    return held(population, rows, np.arange(2 * units) // 2, units)


def alone(examples, i):
    """What one unit of a batch holds, as its own device would see it."""
    mine = examples.mask[i]
    return Examples(
        examples.z[i : i + 1, mine],
        examples.labels[i : i + 1, mine],
        examples.mask[i : i + 1, mine],
        examples.clients[i : i + 1],
        None if examples.targets is None else examples.targets[i : i + 1, mine],
    )


def check(people, ask, raw=None):
    """Compare each stacked answer with that of the unit alone; returns the largest batch."""
    cohort, largest = people.cohort(0, np.ones(people.count, bool), 9, None, True), 0
    seen = []
    for batch in cohort.batches(ask):
        assert batch.mask.all()
        stacked = answer(batch, ask).rows(_SEAL)
        vectors = None if raw is None else raw(batch)
        for i in range(len(batch.clients)):
            one = alone(batch, i)
            np.testing.assert_array_equal(stacked[i], answer(one, ask).rows(_SEAL)[0])
            if vectors is not None:
                assert vectors[i].tobytes() == raw(one)[0].tobytes()
        largest = max(largest, len(batch.clients))
        seen += batch.clients
    held = people.tasks == 0
    assert sorted(seen) == np.unique(people.clients[held]).tolist()
    return largest


CASES = {
    "means": {},
    "lists by signature": LISTS,
    "lists by mean": {**LISTS, "matcher": "nearest-mean"},
    "lists by assignment": {**LISTS, "matcher": "hungarian"},
    "lists by transport": {**LISTS, "matcher": "optimal-transport"},
    "lists at random": {**LISTS, "matcher": "random"},
    "diagonal": {**LISTS, "second_moments": "diagonal"},
    "full": {**LISTS, "second_moments": "full"},
    "tied": {"second_moments": "tied", "resolution": TIED},
    "pooled": {**LISTS, "pooled": True},
    "intents": {**LISTS, "family": "intents"},
    "tagging": {**LISTS, "family": "tagging"},
    "single tags": {"family": "tagging"},
}


@pytest.mark.parametrize("case", CASES)
def test_statistics_of_stacked_units_have_the_bits_of_units_alone(world, case):
    settings = CASES[case]
    told = world.told(settings.get("family", "classification"))
    request = world.agreement(**settings).request(0, (0, 1))
    ask = sum_ask(request)

    def raw(examples):
        return request.layout.pack(statistics_of(examples, request))

    some = pairs_of if settings.get("matcher") == "optimal-transport" else people_of
    assert check(some(told.population), ask, raw) > 3


@pytest.mark.parametrize("block", range(4))
def test_separate_statistics_have_the_bits_of_units_alone(world, block):
    agreement = world.agreement(**LISTS, clipping="separate", bounds=(1.0, 0.2, 0.2, 1.0))
    ask = block_ask(agreement.request(0, (0, 1)), block)
    assert check(people_of(world.population), ask) > 3


def test_lists_have_the_bits_of_units_alone(world):
    agreement = world.agreement(**LISTS, release="list")
    ask = list_ask(agreement.request(0, (0, 1)), agreement)
    assert check(people_of(world.population), ask) > 3


@pytest.mark.parametrize(
    ("family", "labels"),
    [("classification", None), ("intents", None), ("tagging", None), ("tagging", (0, 2))],
)
def test_gradients_have_the_bits_of_units_alone(world, family, labels):
    rule = LinearRule.start(LinearSpace.of(world.public), world.family(family), world.texts)
    question = rule.question(labels)
    ask = update_ask(UpdateId(0, 0, UNITS), question, 0.3)
    assert check(people_of(world.told(family).population), ask, question.updates) > 3


def test_clients_that_train_a_network_are_handled_one_by_one(world):
    class Trained:
        def updates(self, examples):
            return np.ones((len(examples.clients), 3))

    ask = update_ask(UpdateId(0, 0, UNITS), Trained(), 0.3)
    assert check(people_of(world.population), ask) == 1


def test_a_batch_holds_few_numbers_however_long_contributions_are(world, monkeypatch):
    request = world.agreement().request(0, (0, 1))
    monkeypatch.setattr(simulation, "BATCH_NUMBERS", 3 * request.layout.size)
    assert check(people_of(world.population), sum_ask(request)) == 3

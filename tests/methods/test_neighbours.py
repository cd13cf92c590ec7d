"""Whether a client has rows moves a sum by its own bound and no further.

Clients' numbers may depend on who else has rows, as they do where rows come with names: without one
client, all later ones have another number. Nothing of theirs may change with it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.federation.simulation import SimulatedCohort
from cslr.methods.cslr import agree
from cslr.methods.registry import METHODS
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.values import _SEAL
from cslr.protocol.round import sum_ask
from cslr.runs.mixed_encoders import encoder_of
from cslr.seeding import Seeds

GONE = 3
IDS = 1000 + 7 * np.arange(12)
FEWER = np.append(np.delete(IDS, GONE), -1)


def some(people, rows):
    """Those rows alone."""
    names = ("z", "labels", "tasks", "clients", "targets", "kinds")
    held = {name: getattr(people, name) for name in names}
    return replace(people, **{k: None if v is None else v[rows] for k, v in held.items()})


def pair(context, named=True):
    """The setting with all clients' rows, and without those of one: the later ones move up."""
    people = context.clients
    fewer = some(people, people.clients != GONE)
    fewer = replace(fewer, clients=fewer.clients - (fewer.clients > GONE))
    both = (people, IDS), (fewer, FEWER)
    return [
        replace(context, clients=replace(each, ids=ids if named else None)) for each, ids in both
    ]


def apart(one, other) -> float:
    """How far two sums lie apart, in bounds."""
    return float(np.linalg.norm(one.total(_SEAL) - other.total(_SEAL)) / one.grid.steps)


def moved(settings) -> np.ndarray:
    """(T,) how far the sums of each task lie apart, for the same questions."""
    agreement = agree(settings[0])
    sums = [
        [
            context.cohort(task).total(sum_ask(agreement.request(task, labels)))
            for task, labels in enumerate(context.tasks)
        ]
        for context in settings
    ]
    return np.array([apart(one, other) for one, other in zip(*sums, strict=True)])


@pytest.mark.parametrize(
    ("cap", "replay"),
    [(2, {}), (1, {}), (2, {"sub_modes": 2}), (1, {"sub_modes": 2, "matcher": "nearest-mean"})],
)
def test_all_tasks_together_move_by_what_the_plan_charges(make_context, cap, replay):
    distances = moved(pair(make_context(cap=cap, **replay)))
    assert distances.max() <= 1 + 1e-9
    assert np.linalg.norm(distances) <= np.sqrt(cap) + 1e-9
    assert np.linalg.norm(distances) > 0.5  # it did have something to say


def test_numbers_alone_would_not_do(make_context):
    assert np.linalg.norm(moved(pair(make_context(cap=1), named=False))) > 1.5


class Stop(Exception):
    """The first sum is known."""


@pytest.mark.parametrize("method", ["cslr", "dp-sgd", "dp-class-stats", "cslr-hungarian"])
def test_the_first_sum_of_a_method_moves_by_its_bound(make_context, monkeypatch, method):
    total, sums = SimulatedCohort.total, []

    def first(cohort, device):
        sums.append(total(cohort, device))
        raise Stop

    monkeypatch.setattr(SimulatedCohort, "total", first)
    for context in pair(make_context(method=method)):
        stages = METHODS[method].stages(context)
        with pytest.raises(Stop):
            list(stages)
    assert apart(*sums) <= 1 + 1e-9


def test_which_encoder_a_client_runs_is_its_own_draw():
    one, other = (encoder_of(12, 3, Seeds(13), ids) for ids in (IDS, FEWER))
    np.testing.assert_array_equal(np.delete(one, GONE), other[:-1])
    assert len(set(one.tolist())) == 3


def test_rows_that_arrive_later_do_not_let_a_client_speak_twice(make_context, tmp_path):
    """First the client has rows of the first task alone, then all of them."""
    context = replace(make_context(cap=1), cap_memory=CapMemory.at(tmp_path / "spoken.json", False))
    before = some(context.clients, context.clients.tasks == 0)
    first = replace(context, clients=before).cohort(0).taking_part
    again = replace(context, cap_memory=CapMemory.at(tmp_path / "spoken.json", True))
    second = again.cohort(1).taking_part
    assert first.any()
    assert not (first & second).any()
    forgetful = replace(context, cap_memory=None).cohort(1).taking_part
    assert (first & forgetful).any()  # without a memory some would have


def test_a_lost_coin_counts_against_the_cap(make_context, tmp_path):
    """Otherwise later rows would give a client more coins than its cap, which is charged."""
    memory = CapMemory.at(tmp_path / "spoken.json", False)
    population = make_context(cap=1).clients
    before = some(population, population.tasks == 0)
    nobody = np.zeros(population.count, dtype=np.bool_)
    assert not before.cohort(0, nobody, 1, memory).taking_part.any()
    later = some(population, population.tasks == 1)
    second = later.cohort(1, ~nobody, 1, memory).taking_part
    assert not second[np.unique(before.clients)].any()
    assert later.cohort(1, ~nobody, 1).taking_part[np.unique(before.clients)].any()


def test_the_memory_of_caps_does_not_tell_whose_coin_fell_how(make_context, tmp_path):
    population, kept = make_context(cap=1).clients, []
    for taking_part in (np.zeros(population.count, np.bool_), np.ones(population.count, np.bool_)):
        path = tmp_path / f"spoken-{len(kept)}.json"
        population.cohort(0, taking_part, 1, CapMemory.at(path, False))
        kept.append(path.read_bytes())
    assert kept[0] == kept[1] != b'{"asked": [0]}'

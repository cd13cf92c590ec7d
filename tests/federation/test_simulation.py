"""The simulation: batches, the order of clients and empty clients do not change a sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import DataError
from cslr.federation import simulation
from cslr.privacy.mechanism import KeyStream, poisson_cohort
from cslr.privacy.values import _SEAL
from cslr.protocol.ports import Examples
from cslr.protocol.round import contribute, sum_ask
from cslr.protocol.step5_rounds import GradientRound, LinearSpace
from cslr.protocol.updates import UpdateId, update_ask

LISTS = {"sub_modes": 2, "list_size": 4}


def some(people, rows):
    """Those rows alone."""
    return replace(
        people,
        z=people.z[rows],
        labels=people.labels[rows],
        tasks=people.tasks[rows],
        clients=people.clients[rows],
        targets=None if people.targets is None else people.targets[rows],
    )


def total(people, agreement, task=0, taking_part=None, cap=9):
    labels = ((0, 1), (2, 3))[task]
    mask = np.ones(people.count, bool) if taking_part is None else taking_part
    summed = people.cohort(task, mask, cap).total(sum_ask(agreement.request(task, labels)))
    return summed.total(_SEAL)


def one_by_one(people, agreement, task=0, clients=None):
    """The same sum with every client on a device of its own."""
    request = agreement.request(task, ((0, 1), (2, 3))[task])
    result = np.zeros(request.layout.size, dtype=np.int64)
    for client in range(people.count) if clients is None else clients:
        rows = np.flatnonzero((people.clients == client) & (people.tasks == task))
        if len(rows):
            examples = Examples(
                people.z[rows][None],
                people.labels[rows][None],
                np.ones((1, len(rows)), bool),
                (int(client),),
                None if people.targets is None else people.targets[rows][None],
            )
            result += contribute(examples, sum_ask(request)).rows(_SEAL)[0]
    return result


@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
@pytest.mark.parametrize("lists", [{}, LISTS], ids=["plain", "lists"])
def test_the_sum_is_that_of_devices_each_on_its_own(world, lists, family):
    agreement, people = world.agreement(**lists, family=family), world.told(family).population
    for task in (0, 1):
        found = total(people, agreement, task)
        np.testing.assert_array_equal(found, one_by_one(people, agreement, task))
        assert np.abs(found).max() > 10_000


@pytest.mark.parametrize("lists", [{}, LISTS], ids=["plain", "lists"])
@pytest.mark.parametrize("rows", [1, 50, 90])
def test_batching_changes_nothing(world, monkeypatch, rows, lists):
    agreement = world.agreement(**lists)
    whole = total(world.population, agreement)
    monkeypatch.setattr(simulation, "BATCH_ROWS", rows)
    np.testing.assert_array_equal(total(world.population, agreement), whole)


@pytest.mark.parametrize(("rows", "batches"), [(1, 12), (10**6, 1)])
def test_batches_hold_every_client_once(world, monkeypatch, rows, batches):
    monkeypatch.setattr(simulation, "BATCH_ROWS", rows)
    people = world.population
    seen = list(people.cohort(0, np.ones(12, bool), 9).batches())
    assert len(seen) == batches
    assert sorted(client for batch in seen for client in batch.clients) == list(range(12))
    assert sum(int(batch.mask.sum()) for batch in seen) == int(np.sum(people.tasks == 0))


def test_a_cohort_of_nobody_sums_to_zero(world):
    nobody = np.zeros(12, dtype=bool)
    np.testing.assert_array_equal(
        total(world.population, world.agreement(**LISTS), taking_part=nobody), 0
    )


def test_a_population_without_any_row_sums_to_zero(world):
    empty = some(world.population, np.zeros(0, dtype=np.int64))
    found = total(empty, world.agreement())
    np.testing.assert_array_equal(found, np.zeros(20))


@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
def test_nobody_answers_a_gradient_round_with_zeros(world, family):
    people, outputs = world.told(family).population, world.family(family).outputs
    weights = np.ones((people.z.shape[1] + 1, outputs))
    asked = GradientRound(
        weights, LinearSpace.of(world.public), world.family(family), np.arange(outputs)
    )
    ask = update_ask(UpdateId(0, 0, 12), asked, 0.3)
    for taking_part, silent in ((np.zeros(12, bool), True), (np.ones(12, bool), False)):
        found = people.cohort(0, taking_part, 9, alone=True).total(ask).total(_SEAL)
        assert found.shape == (weights.size,)
        assert (not found.any()) == silent


def test_a_clip_as_for_one_client_of_a_person_is_refused_where_several_hold_it(world):
    """With the clip of one client a person could move the sum by twice what is charged."""
    people, family = replace(world.population, clients_per_unit=2), world.family("classification")
    weights = np.zeros((people.z.shape[1] + 1, family.outputs))
    trained = np.arange(family.outputs)
    asked = GradientRound(weights, LinearSpace.of(world.public), family, trained)
    cohort = people.cohort(0, np.ones(12, bool), 9, alone=True)
    update = UpdateId(0, 0, 12)
    assert cohort.total(update_ask(update, asked, 0.3, 2)).total(_SEAL).any()
    for said in (cohort.total, cohort.each):
        with pytest.raises(ValueError, match=r"must have share >= 2, not 1"):
            said(update_ask(update, asked, 0.3))


def test_a_client_without_rows_for_a_task_adds_nothing(world):
    people = world.population
    fewer = some(people, np.flatnonzero((people.clients != 4) | (people.tasks != 0)))
    others = np.arange(12) != 4
    agreement = world.agreement(**LISTS)
    np.testing.assert_array_equal(
        total(fewer, agreement), total(people, agreement, taking_part=others)
    )
    np.testing.assert_array_equal(total(fewer, agreement, task=1), total(people, agreement, task=1))


@pytest.mark.parametrize("lists", [{}, LISTS], ids=["plain", "lists"])
def test_a_client_with_one_example_adds_an_eighth(world, lists):
    people, agreement = world.population, world.agreement(**lists, bound=4.0)
    row = np.flatnonzero((people.labels == 1) & (people.tasks == 0))[:1]
    layout = agreement.request(0, (0, 1)).layout
    sums = layout.unpack(total(some(people, row), agreement) * (4.0 / 2**20))
    modes = sums.weight.reshape(2, -1)
    assert modes[0].sum() == 0
    assert modes[1].sum() == pytest.approx(1 / 8, abs=1e-3)
    offset = sums.offset.reshape(2, -1, 8)[1].sum(axis=0)
    prototypes = agreement.modes.prototypes.mean.reshape(4, -1, 8)[1]
    expected = agreement.space.into(people.z[row])[0] / 8 - modes[1] @ prototypes
    np.testing.assert_allclose(offset, expected, atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_embedding_that_is_not_finite_is_refused_by_row(world, bad):
    people = world.population
    z = people.z.copy()
    z[[37, 99], 5] = bad
    with pytest.raises(DataError, match="train row 37 is not finite"):
        replace(people, z=z)


def test_over_all_tasks_a_capped_client_is_heard_once(world):
    people, agreement = world.population, world.agreement()
    heard = []
    for client in range(people.count):
        alone = some(people, np.flatnonzero(people.clients == client))
        heard.append([bool(np.any(total(alone, agreement, task, cap=1))) for task in (0, 1)])
        assert sum(heard[-1]) == 1
        assert all(np.any(total(alone, agreement, task, cap=2)) for task in (0, 1))
    # Not everybody speaks first: both tasks find speakers.
    assert 2 <= sum(first for first, _ in heard) <= 10


def test_the_capped_sum_is_that_of_the_clients_who_speak(world):
    people, agreement = world.population, world.agreement()
    speakers = [np.flatnonzero(people._contributes(task, 1)) for task in (0, 1)]
    assert sorted(np.concatenate(speakers)) == list(range(people.count))
    for task in (0, 1):
        np.testing.assert_array_equal(
            total(people, agreement, task=task, cap=1),
            one_by_one(people, agreement, task, clients=speakers[task].tolist()),
        )


def test_a_client_that_holds_one_task_spends_its_cap_there(world):
    people, agreement = world.population, world.agreement()
    people = some(people, np.flatnonzero((people.clients != 0) | (people.tasks != 0)))
    alone = some(people, np.flatnonzero(people.clients == 0))
    assert np.any(total(alone, agreement, task=1, cap=1))
    assert not np.any(total(alone, agreement, task=0, cap=1))


def test_only_those_who_take_part_are_summed(world):
    people, agreement = world.population, world.agreement(**LISTS)
    cohort = poisson_cohort(12, 0.5, KeyStream(bytes(32)))
    assert 0 < cohort.sum() < 12
    np.testing.assert_array_equal(
        total(people, agreement, taking_part=cohort),
        one_by_one(people, agreement, clients=np.flatnonzero(cohort)),
    )


def test_the_parts_of_a_cohort_add_up(world):
    people, agreement = world.population, world.agreement(**LISTS)
    half = np.arange(12) < 5
    np.testing.assert_array_equal(
        total(people, agreement, taking_part=half) + total(people, agreement, taking_part=~half),
        total(people, agreement),
    )


# -- who holds what --------------------------------------------------------------------------------


def resampled(people, held: int = 300, seed: int = 0):
    """Clients that drew their rows with replacement, and the same with every row copied out."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(people.z), size=held)
    clients = rng.integers(people.count, size=held)
    assert len(np.unique(rows)) < held
    return replace(people, rows=rows, clients=clients), replace(some(people, rows), clients=clients)


@pytest.mark.parametrize("family", ["classification", "intents", "tagging"])
@pytest.mark.parametrize("lists", [{}, LISTS], ids=["plain", "lists"])
def test_a_resampled_population_is_the_copy_of_its_rows(world, lists, family):
    agreement = world.agreement(**lists, family=family)
    drawn, copied = resampled(world.told(family).population)
    for task in (0, 1):
        for cap in (1, 9):
            found = total(drawn, agreement, task, cap=cap)
            np.testing.assert_array_equal(found, total(copied, agreement, task, cap=cap))
            assert np.any(found)


def test_a_row_may_be_held_by_several_clients(world):
    people, agreement = world.population, world.agreement()
    rows = np.flatnonzero((people.tasks == 0) & (people.clients == 3))
    alone = replace(people, rows=rows, clients=np.full(len(rows), 3))
    thrice = replace(people, rows=np.tile(rows, 3), clients=np.repeat([3, 5, 7], len(rows)))
    np.testing.assert_array_equal(total(thrice, agreement), 3 * total(alone, agreement))


def test_rows_that_nobody_holds_are_not_summed(world):
    people, agreement = world.population, world.agreement()
    fewer = np.flatnonzero(people.clients != 4)
    held = replace(people, rows=fewer, clients=people.clients[fewer])
    np.testing.assert_array_equal(total(held, agreement), total(some(people, fewer), agreement))
    np.testing.assert_array_equal(held.held, fewer)


def test_without_further_word_every_row_is_held_once(world):
    people, agreement = world.population, world.agreement()
    np.testing.assert_array_equal(people.held, np.arange(len(people.z)))
    order = np.random.default_rng(0).permutation(len(people.z))
    shuffled = replace(people, rows=order, clients=people.clients[order])
    gap = total(shuffled, agreement) - total(people, agreement)
    assert np.abs(gap).max() <= people.count  # the order of a client's rows: rounding only


def test_a_cap_counts_the_tasks_of_the_rows_a_client_holds(world):
    people = world.population
    first = np.flatnonzero(people.tasks == 0)[:20]
    held = replace(people, rows=first, clients=np.full(20, 2))
    assert len(np.unique(people.tasks[:20])) == 2  # the first rows are not the rows held
    for cap in (1, 9):
        assert held._contributes(0, cap).tolist() == [client == 2 for client in range(12)]
        assert not held._contributes(1, cap).any()


def test_hostile_clients_push_a_sum_back_by_their_bounds_and_no_further(world):
    agreement = world.agreement()
    people, hostile = world.population, np.array([3, 7, 11])
    honest = np.ones(people.count, bool)
    honest[hostile] = False
    without = total(people, agreement, taking_part=honest)
    pushed = total(replace(people, hostile=hostile), agreement) - without
    steps = agreement.request(0, (0, 1)).grids[0].steps
    length = float(np.linalg.norm(pushed))
    assert 3 * steps * (1 - 1e-4) < length <= 3 * steps
    assert pushed @ without == pytest.approx(-length * np.linalg.norm(without), rel=1e-6)


def test_hostile_clients_answer_under_their_names_even_where_they_hold_nothing(world):
    agreement = world.agreement()
    people = replace(world.population, hostile=np.array([2]))
    cohort = people.cohort(0, np.ones(people.count, bool), 9)
    clients, answers = cohort.each(sum_ask(agreement.request(0, (0, 1))))
    assert sorted(clients) == list(range(people.count))
    assert clients[-1] == 2
    assert len(answers[-1].rows(_SEAL)) == 1


def test_a_hostile_client_that_does_not_take_part_changes_nothing(world):
    agreement = world.agreement()
    people = world.population
    there = np.arange(people.count) != 4
    with_it = total(replace(people, hostile=np.array([4])), agreement, taking_part=there)
    np.testing.assert_array_equal(with_it, total(people, agreement, taking_part=there))


@pytest.mark.parametrize("task", [0, 1])
def test_misleading_clients_speak_of_one_label_with_texts_of_the_other(world, task):
    agreement, people = world.agreement(), world.population
    honest = np.ones(people.count, bool)
    honest[[2, 5]] = False
    liars = replace(people, hostile=np.array([2, 5]), attack="mislead")
    pushed = total(liars, agreement, task) - total(people, agreement, task, taking_part=honest)
    request = agreement.request(task, ((0, 1), (2, 3))[task])
    steps = request.grids[0].steps
    assert 0 < np.linalg.norm(pushed) <= 2 * steps
    said = request.layout.unpack(request.grids[0].decode(pushed)).offset
    for mine, other in ((0, 1), (1, 0)):  # what is said of a label points to where the other lies
        towards = request.prototypes.mean[other] - request.prototypes.mean[mine]
        assert said[mine] @ towards > 0

"""``list`` mode: clients noise their lists, the server assigns ids, and lists are charged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cslr.errors import BudgetExceeded, LedgerCorrupted
from cslr.paper_constants import PaperConstants
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL, Grid
from cslr.protocol import list_mode
from cslr.protocol.list_mode import (
    _written_names,
    list_ask,
    list_of,
    list_statistics,
    server_ids,
)
from cslr.protocol.literal.naming import Named
from cslr.protocol.round import Session, replay_of, statistics_of
from cslr.protocol.step3_match import MATCHERS
from cslr.protocol.step4_aggregate.contribution import Statistics
from tests.protocol.crashes import BreaksAt, Crash

LISTS = {"release": "list", "pooled": True, "sub_modes": 4, "list_size": 4}
BOUND = 0.8


def planned(epsilon: float = math.inf, q: float = 1.0, releases: int = 1):
    return calibrate(Budget(epsilon), releases, q, schedule=Schedule(replay=1, lists=1))


@pytest.fixture
def agreement(world):
    return world.agreement(**LISTS, list_bound=BOUND, bound=4.0)


@pytest.fixture
def cohort(world):
    return world.population.cohort(0, np.ones(12, dtype=bool), cap=2)


def permuted(lists: Statistics, clients=slice(None), entries=slice(None)) -> Statistics:
    """The same lists (b, groups × L, ·) in another order; entries of one group alone."""
    blocks = (lists.weight, lists.offset, lists.second, lists.target)
    return Statistics(*(block[clients][:, entries] for block in blocks))


def by_name(lists: Statistics, ids: np.ndarray) -> np.ndarray:
    """(b, J, r) the offsets of the entries of each name."""
    is_named = ids[:, 0, :, None] == np.arange(4)
    return np.einsum("blj,blr->bjr", is_named, lists.offset)


# -- what leaves a device --------------------------------------------------------------------------


def test_a_list_says_what_its_entries_are_about_the_public_centre(world, agreement):
    request = agreement.request(0, (0, 1))
    lists = list_statistics(world.examples(0), request)
    assert lists.weight.shape == (12, 4)
    assert lists.offset.shape == (12, 4, 8)
    np.testing.assert_allclose(lists.weight.sum(axis=1), 1.0)
    x, people = agreement.space.into(world.population.z), world.population
    for client in range(12):  # entries weighted add up to the client's own mean
        mine = x[(people.clients == client) & (people.tasks == 0)]
        np.testing.assert_allclose(lists.offset[client].sum(axis=0), mine.mean(axis=0), atol=1e-6)


def test_a_client_without_rows_has_a_list_of_zeros(world, agreement):
    examples = world.examples(0)
    examples.mask[3] = False
    lists = list_statistics(examples, agreement.request(0, (0, 1)))
    for block in vars(lists).values():
        np.testing.assert_array_equal(block[3], 0.0)


def test_no_list_is_longer_than_its_bound(world, agreement):
    examples, request = world.examples(0), agreement.request(0, (0, 1))
    examples.z[5] *= 1e6
    ask = list_ask(request, agreement)
    assert (ask.label, ask.kind) == ("task 0 list", "list")
    for length in (0.01, BOUND):
        rows = list_of(examples, replace(ask, grid=Grid(length))).rows(_SEAL)
        norms = [math.isqrt(int(row @ row)) for row in rows]
        assert max(norms) <= Grid(length).steps
    assert min(norms) > 0.2 * Grid(BOUND).steps  # and it is used


def test_lists_are_noised_one_by_one(world, agreement, cohort, make_ledger, drawer, make_drawer):
    """σ times the bound in every entry of every list; 20 % either way is noticed."""
    plan = planned(4.0)
    Session(agreement, plan, make_ledger(4.0), drawer).release(0, (0, 1), cohort)
    clear = make_ledger(), make_drawer()
    Session(agreement, planned(), *clear).release(0, (0, 1), cohort)
    sent, true = drawer.kept["task 0 list"], clear[1].kept["task 0 list"]
    np.testing.assert_array_equal(sent[:, 0], true[:, 0])  # who sent it
    noise = (sent - true)[:, 1:]
    assert noise.shape == (12, agreement.list_layout(1).size)
    z = noise / (plan.sigma * BOUND)
    for factor, honest in ((1.0, True), (0.8, False), (1.25, False)):
        lower = float(stats.chi2.cdf(np.sum((z / factor) ** 2), z.size))
        assert (1e-3 < lower < 1 - 1e-3) is honest
    assert np.abs(np.corrcoef(z) - np.eye(12)).max() < 5 / math.sqrt(z.shape[1])


@pytest.mark.parametrize("q", [1.0, 0.5])
def test_a_list_is_paid_without_amplification_and_the_sum_again(
    world, agreement, make_ledger, q, make_drawer
):
    plan, ledger = planned(4.0, q), make_ledger(4.0)
    cohort = world.population.cohort(0, np.arange(12) < 8, cap=2)
    Session(agreement, plan, ledger, make_drawer()).release(0, (0, 1), cohort)
    lists, sums = ledger.charges
    assert (lists.label, lists.q, lists.sigma) == ("task 0 list", 1.0, plan.sigma)
    assert (sums.label, sums.q, sums.sigma) == ("task 0", 1.0, plan.sigma)
    assert lists.round != sums.round
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)


def test_beyond_the_budget_no_list_is_released(agreement, cohort, make_ledger, drawer):
    ledger = make_ledger(1.0)
    with pytest.raises(BudgetExceeded, match="task 0 list"):
        Session(agreement, planned(4.0), ledger, drawer).release(0, (0, 1), cohort)
    assert ledger.charges == ()
    assert not drawer.kept


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("matcher", MATCHERS)
def test_names_are_modes_and_the_same_every_time(world, agreement, matcher):
    request = replace(agreement, matcher=matcher).request(0, (0, 1))
    lists = list_statistics(world.examples(0), request)
    ids = server_ids(lists, request)
    assert ids.shape == (12, 1, 4)
    assert set(np.unique(ids)) <= set(range(4))
    np.testing.assert_array_equal(server_ids(lists, request), ids)


@pytest.mark.parametrize("matcher", [name for name in MATCHERS if name != "random"])
def test_another_order_of_clients_or_entries_is_another_order_of_names(world, agreement, matcher):
    request = replace(agreement, matcher=matcher).request(0, (0, 1))
    lists = list_statistics(world.examples(0), request)
    ids = server_ids(lists, request)
    clients = np.random.default_rng(1).permutation(12)
    entries = np.array([2, 0, 3, 1])
    np.testing.assert_array_equal(
        server_ids(permuted(lists, clients=clients), request), ids[clients]
    )
    # Two entries that are the same may change names: what every mode is told stays the same.
    other = permuted(lists, entries=entries)
    np.testing.assert_allclose(
        by_name(other, server_ids(other, request)), by_name(lists, ids), atol=1e-12
    )


def test_each_group_is_named_by_itself(world):
    agreement = world.agreement(release="list", sub_modes=2, list_size=2, list_bound=BOUND)
    request = agreement.request(0, (0, 1))
    lists = list_statistics(world.examples(0), request)
    ids = server_ids(lists, request)
    assert ids.shape == (12, 2, 2)
    other = permuted(lists, entries=[0, 1, 0, 1])  # the first label's entries stand for both
    np.testing.assert_array_equal(server_ids(other, request)[:, 0], ids[:, 0])
    np.testing.assert_array_equal(server_ids(other, request)[:, 1], ids[:, 0])


def test_on_well_separated_data_clusters_are_the_true_modes(world, agreement):
    """Four sub-topics: every client's entries near one of them get one name, and no other's do."""
    people, space = world.population, agreement.space
    x, topics = space.into(people.z), 2 * people.labels + world.sub_topics
    centres = np.stack([x[topics == topic].mean(axis=0) for topic in range(4)])
    rng = np.random.default_rng(0)
    order = np.stack([rng.permutation(4) for _ in range(12)])  # a list has no order
    weight = rng.dirichlet(8 * np.ones(4), size=12)
    mean = centres[order] + 0.02 * rng.standard_normal((12, 4, 8))
    lists = Statistics(weight, weight[..., None] * mean, np.zeros((12, 4, 1)), np.zeros((12, 4, 0)))
    ids = server_ids(lists, agreement.request(0, (0, 1)))[:, 0]
    called = [np.unique(ids[order == topic]) for topic in range(4)]
    assert [len(names) for names in called] == [1, 1, 1, 1]
    assert sorted(int(names[0]) for names in called) == [0, 1, 2, 3]


def test_without_noise_the_replay_of_a_task_finds_its_sub_topics(
    world, agreement, cohort, make_ledger, make_drawer
):
    released = Session(agreement, planned(), make_ledger(), make_drawer()).release(
        0, (0, 1), cohort
    )
    replay = replay_of([released], agreement).value.released()
    people, x = world.population, agreement.space.into(world.population.z)
    topics = 2 * people.labels + world.sub_topics
    centres = np.stack([x[topics == topic].mean(axis=0) for topic in range(4)])
    apart = np.linalg.norm(centres[:, None] - replay.mean, axis=-1)
    between = np.linalg.norm(centres[0] - centres[1])
    # A client's EM may merge two, so not every mode need be pure: most of them are found.
    assert np.sum(apart.min(axis=1) < 0.35 * between) >= 3


def test_clients_are_told_their_own_names_and_compare_with_the_middle_of_the_group(
    world, agreement, cohort, make_ledger, drawer
):
    request = agreement.request(0, (0, 1))
    session = Session(agreement, planned(4.0), make_ledger(4.0), drawer)
    session.release(0, (0, 1), cohort)
    told = session.request
    assert sorted(told.names) == list(range(12))
    assert {ids.shape for ids in told.names.values()} == {(1, 4)}
    middle = request.prototypes.mean.mean(axis=0)
    np.testing.assert_allclose(told.prototypes.mean, np.tile(middle, (4, 1)))


# -- interruptions ---------------------------------------------------------------------------------


def sums_of(release):
    return [release.value.sums.weight, release.value.sums.offset, release.value.sums.second]


def test_a_kept_round_is_read_again_and_not_paid_again(agreement, cohort, make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    first, again = (
        Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort) for _ in range(2)
    )
    for one, two in zip(sums_of(first), sums_of(again), strict=True):
        np.testing.assert_array_equal(one, two)
    assert [charge.label for charge in ledger.charges] == ["task 0 list", "task 0"]
    assert sorted(drawer.kept) == ["task 0", "task 0 list"]


@pytest.mark.parametrize("label", ["task 0 list", "task 0"])
def test_a_round_that_crashed_goes_on_from_what_was_kept(
    agreement, cohort, make_ledger, drawer, label, make_drawer
):
    plan, ledger = planned(4.0), make_ledger(4.0)
    straight = Session(agreement, plan, make_ledger(4.0), make_drawer()).release(0, (0, 1), cohort)
    with pytest.raises(Crash):
        Session(agreement, plan, ledger, BreaksAt(drawer, label)).release(0, (0, 1), cohort)
    assert ("task 0 list" in drawer.kept) is (label == "task 0")
    found = Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort)
    for one, two in zip(sums_of(straight), sums_of(found), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(ledger.charges) == 2


def test_a_kept_round_can_be_read_whoever_comes_now(world, agreement, make_ledger, drawer):
    """With enforced privacy coins are drawn anew, so a saved result must not need its clients."""
    plan, ledger, people = planned(4.0), make_ledger(4.0), world.population
    first, second = (people.cohort(0, who, 2) for who in (np.arange(12) < 5, np.arange(12) > 2))
    before = Session(agreement, plan, ledger, drawer).release(0, (0, 1), first)
    after = Session(agreement, plan, ledger, drawer).release(0, (0, 1), second)
    for one, two in zip(sums_of(before), sums_of(after), strict=True):
        np.testing.assert_array_equal(one, two)


def test_after_a_crash_another_cohort_can_still_be_summed(world, agreement, make_ledger, drawer):
    """After a crash between list and sum other clients take part, which have no ids."""
    plan, ledger, people = planned(4.0), make_ledger(100.0), world.population
    first, second = (people.cohort(0, who, 2) for who in (np.arange(12) < 5, np.arange(12) > 2))
    with pytest.raises(Crash):
        Session(agreement, plan, ledger, BreaksAt(drawer, "task 0")).release(0, (0, 1), first)
    Session(agreement, plan, ledger, drawer).release(0, (0, 1), second)
    assert "task 0" in drawer.kept


def test_kept_lists_that_were_changed_are_refused(agreement, cohort, make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort)
    drawer.kept["task 0 list"] = drawer.kept["task 0 list"] + 1e-9
    with pytest.raises(LedgerCorrupted, match="differs from the one that was recorded"):
        Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort)


# -- clients without a list ------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
def test_a_client_that_sent_no_list_counts_nowhere_and_changes_nothing_for_others(world, pooled):
    """It joined after the lists were released, so its entries have no canonical ids."""
    agreement = world.agreement(
        release="list", pooled=pooled, sub_modes=2, list_size=2, list_bound=BOUND, bound=4.0
    )
    request, examples = agreement.request(0, (0, 1)), world.examples(0)
    ids = server_ids(list_statistics(examples, request), request)
    everyone = dict(enumerate(ids))
    without = {client: name for client, name in everyone.items() if client != 3}
    whole = statistics_of(examples, replace(request, names=everyone))
    found = statistics_of(examples, replace(request, names=without))
    assert np.all(whole.weight[3].sum() > 0.1)
    for block, before in zip(vars(found).values(), vars(whole).values(), strict=True):
        np.testing.assert_array_equal(block[3], 0.0)
        np.testing.assert_array_equal(np.delete(block, 3, axis=0), np.delete(before, 3, axis=0))


# -- the paper's lists -----------------------------------------------------------------------------


def test_means_are_selected_from_the_released_entries_of_the_same_group(world):
    """Two groups and three clients with lists of two: six candidates each, client by client."""
    agreement = world.agreement(release="list", sub_modes=2, list_size=2, list_bound=BOUND)
    rng = np.random.default_rng(0)
    offered = replace(
        agreement.request(0, (0, 1)), candidates=np.zeros((2, 5, 8)), paper=PaperConstants()
    )
    mean, ids = rng.standard_normal((3, 2, 2, 8)), rng.integers(2, size=(3, 2, 2))
    found = _written_names(offered, [7, 3, 5], Named(ids, mean, None))
    assert found.candidates.shape == (2, 6, 8)
    assert found.layout.dimension == 6
    for group in range(2):
        np.testing.assert_array_equal(found.candidates[group], np.concatenate(mean[:, group]))
    for client, place in ((7, 0), (3, 1), (5, 2)):
        np.testing.assert_array_equal(found.names[client], ids[place])


def test_means_that_are_averaged_have_no_candidates(world):
    agreement = world.agreement(release="list", sub_modes=2, list_size=2, list_bound=BOUND)
    request = replace(agreement.request(0, (0, 1)), paper=PaperConstants())
    signed = np.ones((1, 2, 2, 24))
    found = _written_names(
        request, [4], Named(np.ones((1, 2, 2), np.int64), np.zeros((1, 2, 2, 8)), signed)
    )
    assert found.candidates is None
    assert found.layout == request.layout
    assert found.signed is signed


def test_spreads_of_noisy_lists_stay_within_a_quarter_and_four_times_the_public_one(
    world, agreement, monkeypatch
):
    """Noise may say that a variance is negative; a density needs a positive one."""
    seen = []
    monkeypatch.setattr(
        list_mode,
        "_clustered",
        lambda found, request: seen.append(found) or np.zeros(found.mean.shape[:-1], np.int64),
    )
    weight = np.array([[0.5, 0.1, -3.0, 1.0]])
    second = np.array([[[-9.0], [0.25], [9.0], [0.5]]])
    lists = Statistics(weight, np.ones((1, 4, 8)), second, np.zeros((1, 4, 0)))
    request = agreement.request(0, (0, 1))
    server_ids(lists, request)
    (found,) = seen
    # Statistics are divided by their weight, and by a quarter at least: one over the list's size.
    np.testing.assert_allclose(found.mean[0, :, 0], [2.0, 4.0, 4.0, 1.0])
    times = found.covariance[0] / request.space.spread
    np.testing.assert_allclose(times, np.array([[0.25], [2.0], [4.0], [1.5]]) * np.ones(8))

"""Algorithm 1 as a whole: its symmetries, its sensitivity, its plain mean, its interruptions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import BudgetExceeded, LedgerCorrupted
from cslr.federation.simulation import Population
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import _SEAL
from cslr.protocol.ports import Examples
from cslr.protocol.round import Session, contribute, replay_of, statistics_of, sum_ask
from cslr.protocol.step1_list import coordinates_of
from cslr.protocol.step3_match import MATCHERS
from cslr.protocol.step4_aggregate.contribution import Resolution
from cslr.protocol.step4_aggregate.estimate import expected_means
from tests.protocol.crashes import Crash

PLAIN = {"sub_modes": 1, "list_size": 1}
LISTS = {"sub_modes": 2, "list_size": 4}
FAMILIES = ("classification", "intents", "tagging")


def permuted(people: Population, order: np.ndarray) -> Population:
    """The same rows in another order."""
    return replace(
        people,
        z=people.z[order],
        labels=people.labels[order],
        tasks=people.tasks[order],
        clients=people.clients[order],
        targets=None if people.targets is None else people.targets[order],
    )


def without(people: Population, client: int) -> Population:
    return permuted(people, np.flatnonzero(people.clients != client))


def everyone(people: Population) -> np.ndarray:
    return np.ones(people.count, dtype=bool)


def total(people: Population, agreement, task: int = 0) -> np.ndarray:
    """The integer sum before noise, which nobody but the mechanism sees."""
    labels = ((0, 1), (2, 3))[task]
    cohort = people.cohort(task, everyone(people), cap=9)
    device = sum_ask(agreement.request(task, labels))
    return cohort.total(device).total(_SEAL)


@pytest.fixture
def run(world, make_ledger):
    """Q of both tasks; ``moving``: the first moves the prototypes of the second."""

    def go(people, agreement, epsilon=8.0, seed=13, moving=True):
        plan, ledger = calibrate(Budget(epsilon), releases=2), make_ledger(epsilon, seed)
        releases = []
        for task, labels in enumerate(world.tasks):
            cohort = people.cohort(task, everyone(people), plan.cap)
            earlier = tuple(releases) if moving else ()
            releases.append(
                Session(agreement, plan, ledger, Nowhere(), earlier).release(task, labels, cohort)
            )
        return replay_of(releases, agreement).value

    return go


class Nowhere:
    """A ``Keep`` that forgets."""

    def load(self, label):
        return None

    def save(self, label, vector):
        pass


def assert_same_bits(one, two):
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(two, name), err_msg=name)


def in_label_order(replay):
    """Modes stand in the order of their release; here in that of their labels."""
    order = np.argsort(replay.labels, kind="stable")
    return replace(
        replay,
        **{
            name: value[order]
            for name, value in vars(replay).items()
            if name
            not in ("floored", "heard", "pooled", "covariance", "tied", "clarity", "counted")
        },
    )


# -- symmetries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lists", [PLAIN, LISTS], ids=["plain", "lists"])
def test_the_order_of_clients_changes_no_bit_of_the_sum_or_of_the_replay(world, run, lists, family):
    agreement, people = world.agreement(**lists, family=family), world.told(family).population
    order = np.argsort(-people.clients, kind="stable")
    other = permuted(people, order)
    assert not np.array_equal(other.clients, people.clients)
    np.testing.assert_array_equal(total(other, agreement), total(people, agreement))
    assert_same_bits(run(other, agreement), run(people, agreement))


def test_the_numbers_of_clients_change_no_bit_where_no_stream_is_drawn(world, run):
    agreement, people = world.agreement(), world.population
    names = np.random.default_rng(5).permutation(people.count)
    other = replace(people, clients=names[people.clients])
    np.testing.assert_array_equal(total(other, agreement), total(people, agreement))
    assert_same_bits(run(other, agreement), run(people, agreement))


@pytest.mark.parametrize("lists", [PLAIN, LISTS], ids=["plain", "lists"])
def test_the_order_of_a_clients_rows_moves_the_sum_by_rounding_only(world, run, lists):
    agreement, people = world.agreement(**lists), world.population
    other = permuted(people, np.random.default_rng(1).permutation(len(people.z)))
    gap = np.abs(total(other, agreement) - total(people, agreement))
    assert gap.max() <= people.count  # a grid step of 2⁻²⁰ S per client
    clear, shuffled = run(people, agreement, math.inf), run(other, agreement, math.inf)
    np.testing.assert_allclose(shuffled.mean, clear.mean, atol=1e-5)
    np.testing.assert_allclose(shuffled.weights, clear.weights, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_order_of_a_stack_of_clients_permutes_their_contributions(world, family):
    examples = world.told(family).examples(0)
    request = world.agreement(**LISTS, family=family).request(0, (0, 1))
    order = np.random.default_rng(2).permutation(len(examples.clients))
    other = replace(
        examples,
        z=examples.z[order],
        labels=examples.labels[order],
        mask=examples.mask[order],
        clients=tuple(int(i) for i in order),
        targets=None if examples.targets is None else examples.targets[order],
    )
    np.testing.assert_array_equal(
        contribute(other, sum_ask(request)).rows(_SEAL),
        contribute(examples, sum_ask(request)).rows(_SEAL)[order],
    )


def test_the_order_in_which_a_tasks_labels_are_named_does_not_matter(world, make_ledger):
    people, agreement = world.population, world.agreement(**LISTS)
    plan, replays = calibrate(Budget(math.inf), releases=1), []
    for labels in ((0, 1), (1, 0)):
        cohort = people.cohort(0, everyone(people), 1)
        released = Session(agreement, plan, make_ledger(), Nowhere()).release(0, labels, cohort)
        replays.append(in_label_order(replay_of([released], agreement).value))
    one, two = (
        {**vars(each), "covariance": 0.0, "tied": 0.0} for each in replays
    )  # none is released
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-12, err_msg=name)


def test_the_same_seed_gives_the_same_run_and_another_another(world, run):
    people = world.population
    first = run(people, world.agreement(**LISTS))
    assert_same_bits(first, run(people, world.agreement(**LISTS)))
    noise = run(people, world.agreement(**LISTS), seed=14)
    assert not np.allclose(first.mean, noise.mean)
    anchors = run(people, world.agreement(**LISTS, seed=14))
    assert not np.allclose(first.mean, anchors.mean)


def test_every_client_task_and_label_has_a_stream_of_its_own(world):
    # Two labels that hold the same rows, in two clients and two tasks: random ids tell them apart.
    people, agreement = world.population, world.agreement(**LISTS, matcher="random")
    rows = np.flatnonzero(people.labels == 0)[:10]
    examples = Examples(
        np.tile(people.z[rows], (2, 2, 1)),
        np.tile(np.repeat([0, 1], 10), (2, 1)),
        np.ones((2, 20), dtype=bool),
        clients=(0, 1),
    )
    first, second = agreement.request(0, (0, 1)), agreement.request(1, (0, 1))
    weights = [statistics_of(examples, request).weight for request in (first, second)]
    np.testing.assert_array_equal(weights[0], statistics_of(examples, first).weight)
    of_labels = np.concatenate(weights).reshape(-1, 2)
    assert len(np.unique(of_labels.round(6), axis=0)) > 4  # of eight


# -- sensitivity -----------------------------------------------------------------------------------


def a_few(people: Population, count: int = 4) -> Population:
    """Enough clients to remove one by one."""
    return replace(permuted(people, np.flatnonzero(people.clients < count)), count=count)


@pytest.mark.parametrize(
    ("matcher", "bound"),
    [*((matcher, 0.2) for matcher in MATCHERS), ("signature", 0.02), ("signature", 2.0)],
)
def test_no_client_moves_the_sum_by_more_than_the_bound(world, matcher, bound):
    people = a_few(world.population)
    wild = people.z.copy()
    wild[people.clients == 3] *= 1e6  # one client's encoder has gone mad
    people = replace(people, z=wild)
    agreement = world.agreement(**LISTS, matcher=matcher, bound=bound)
    with_all = total(people, agreement)
    for client in range(people.count):
        moved = with_all - total(without(people, client), agreement)
        assert math.isqrt(int(moved @ moved)) <= agreement.request(0, (0, 1)).grids[0].steps


@pytest.mark.parametrize("bound", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("lists", [PLAIN, LISTS], ids=["plain", "lists"])
@pytest.mark.parametrize("family", ["intents", "tagging"])
def test_no_clients_targets_move_the_sum_by_more_than_the_bound(world, family, lists, bound):
    people = a_few(world.told(family).population)
    wild = people.targets.copy()
    wild[people.clients == 2] *= 1e6  # one client does not keep to the bound on y
    people = replace(people, targets=wild)
    agreement = world.agreement(**lists, family=family, bound=bound)
    with_all, largest = total(people, agreement), 0
    for client in range(people.count):
        moved = with_all - total(without(people, client), agreement)
        norm = math.isqrt(int(moved @ moved))
        assert norm <= agreement.request(0, (0, 1)).grids[0].steps
        largest = max(largest, norm)
    assert largest > 0.99 * agreement.request(0, (0, 1)).grids[0].steps  # and the bound is used


@pytest.mark.parametrize("matcher", MATCHERS)
def test_removing_a_client_takes_its_own_contribution_away_and_nothing_else(world, matcher):
    people, agreement = a_few(world.population), world.agreement(**LISTS, matcher=matcher)
    own = contribute(world.examples(0), sum_ask(agreement.request(0, (0, 1)))).rows(_SEAL)
    with_all = total(people, agreement)
    for client in range(people.count):
        moved = with_all - total(without(people, client), agreement)
        np.testing.assert_allclose(moved, own[client], atol=2)  # grid steps
        assert np.abs(own[client]).max() > 1000


# -- the plain mean --------------------------------------------------------------------------------


def equal_clients(world, clients: int = 6, rows: int = 9) -> Population:
    """Every client holds ``rows`` rows of each label: enough to count fully."""
    people = world.population
    picks = np.concatenate(
        [np.flatnonzero(people.labels == label)[: clients * rows] for label in range(4)]
    )
    mine = permuted(people, picks)
    return replace(mine, clients=np.tile(np.arange(clients), 4 * rows), count=clients)


@pytest.mark.parametrize("prior", ["labels", "none"])
def test_without_clip_and_noise_the_replay_is_the_plain_mean_of_the_clients_means(
    world, run, prior
):
    people, agreement = equal_clients(world), world.agreement(prior=prior, bound=8.0)
    x = agreement.space.into(people.z)
    means = np.stack(
        [
            np.mean(
                [x[(people.labels == k) & (people.clients == i)].mean(axis=0) for i in range(6)],
                axis=0,
            )
            for k in range(4)
        ]
    )
    replay = run(people, agreement, epsilon=math.inf)
    np.testing.assert_allclose(replay.mean, means, atol=1e-4)  # the grid's step is 8 / 2²⁰
    np.testing.assert_allclose(replay.weights, 0.25, atol=1e-4)


@pytest.mark.parametrize("family", ["intents", "tagging"])
def test_without_clip_and_noise_targets_are_the_plain_mean_of_the_clients_means(world, run, family):
    people = equal_clients(world.told(family))
    replay = run(people, world.agreement(family=family, bound=8.0), epsilon=math.inf)
    means = [
        np.mean(
            [
                people.targets[(people.labels == k) & (people.clients == i)].mean(0)
                for i in range(6)
            ],
            axis=0,
        )
        for k in range(4)
    ]
    assert not np.allclose(means, world.family(family).usual, atol=0.05)
    np.testing.assert_allclose(replay.targets, means, atol=1e-3)


def test_clients_with_few_rows_count_less(world):
    people, agreement = world.population, world.agreement(bound=8.0)
    layout = agreement.request(0, (0, 1)).layout
    sums = layout.unpack(total(people, agreement) * (8.0 / 2**20))
    x, prototypes = agreement.space.into(people.z), agreement.modes.prototypes.mean
    for label in (0, 1):
        weight, offset = 0.0, np.zeros(8)
        for client in range(people.count):
            mine = x[(people.labels == label) & (people.clients == client)]
            w = min(len(mine), 8) / 8
            weight, offset = weight + w, offset + w * (mine.mean(axis=0) - prototypes[label])
        assert sums.weight[label] == pytest.approx(weight, abs=0.01)
        np.testing.assert_allclose(sums.offset[label], offset, atol=1e-4)


# -- what earlier releases taught ------------------------------------------------------------------


def leaning(people: Population) -> tuple[Population, np.ndarray]:
    """The same clients, all of whose rows lean the same way against the public corpus."""
    common = 0.3 * np.ones(24) / np.sqrt(24)
    return replace(people, z=0.6 * people.z + common), common


def test_an_earlier_release_moves_the_prototypes_of_the_next_task(world, make_ledger):
    people, common = leaning(world.population)
    agreement, plan, ledger = world.agreement(), calibrate(Budget(math.inf), 2), make_ledger()
    labels = world.tasks[1]
    first = Session(agreement, plan, ledger, Nowhere()).release(
        0, (0, 1), people.cohort(0, everyone(people), 2)
    )
    before, after = (
        Session(agreement, plan, make_ledger(), Nowhere(), earlier)
        .release(1, labels, people.cohort(1, everyone(people), 2))
        .value
        for earlier in ((), (first,))
    )
    np.testing.assert_array_equal(before.prototypes, agreement.modes.prototypes.mean[list(labels)])
    x = agreement.space.into(people.z)
    true = np.stack([x[people.labels == label].mean(axis=0) for label in labels])
    gap = [np.linalg.norm(release.prototypes - true, axis=1) for release in (before, after)]
    assert np.all(gap[1] < 0.9 * gap[0])
    along = (after.prototypes - before.prototypes) @ (common @ agreement.space.basis[:, :8])
    assert np.all(along > 0)


@pytest.mark.parametrize("lean", [False, True])
def test_without_clip_and_noise_moved_prototypes_change_no_replay(world, run, lean):
    people = leaning(equal_clients(world))[0] if lean else equal_clients(world)
    moved, still = (
        run(people, world.agreement(bound=8.0), math.inf, moving=moving) for moving in (True, False)
    )
    np.testing.assert_allclose(moved.mean, still.mean, atol=1e-4)
    np.testing.assert_allclose(moved.relative, still.relative, atol=1e-3)


def test_nearer_prototypes_leave_a_client_less_to_say(world, make_ledger):
    """Its contribution is then shorter, and less of it is clipped."""
    people, _ = leaning(world.population)
    agreement, plan = world.agreement(bound=8.0), calibrate(Budget(math.inf), 2)
    first = (
        Session(agreement, plan, make_ledger(), Nowhere())
        .release(0, (0, 1), people.cohort(0, everyone(people), 2))
        .value
    )
    expected = expected_means([first], agreement.modes, agreement.space, 1, np.array([2, 3]))
    examples = replace(world, population=people).examples(1)
    norms = [
        np.linalg.norm(request.layout.pack(statistics_of(examples, request)), axis=1).mean()
        for request in (agreement.request(1, (2, 3)), agreement.request(1, (2, 3), expected))
    ]
    assert norms[1] < 0.9 * norms[0]


# -- lists pay where a label has several modes -----------------------------------------------------


def test_signatures_keep_the_sub_modes_of_a_label_apart_and_random_ids_blur_them(world, run):
    apart, blurred = (
        run(world.population, world.agreement(**LISTS, matcher=matcher, bound=4.0), math.inf)
        for matcher in ("signature", "random")
    )
    people = world.population
    x = world.space().into(people.z)
    for label in range(4):
        topics = np.stack(
            [x[(people.labels == label) & (world.sub_topics == j)].mean(axis=0) for j in (0, 1)]
        )
        true_gap = np.linalg.norm(topics[0] - topics[1])
        one, two = apart.mean[2 * label : 2 * label + 2]
        errors = [np.linalg.norm([one, two] - order) for order in (topics, topics[::-1])]
        assert min(errors) < 0.2 * true_gap
        assert np.linalg.norm(one - two) > 0.8 * true_gap
        one, two = blurred.mean[2 * label : 2 * label + 2]
        assert np.linalg.norm(one - two) < 0.5 * true_gap


# -- interruptions ---------------------------------------------------------------------------------


@pytest.fixture
def attempt(world, make_ledger, drawer):
    """One round of task 0 as often as wanted, on one ledger and one drawer."""
    plan, ledger = calibrate(Budget(8.0), releases=2), make_ledger(8.0)

    def go(people=world.population, keep=drawer):
        cohort = people.cohort(0, everyone(people), plan.cap)
        return Session(world.agreement(), plan, ledger, keep).release(0, (0, 1), cohort).value

    return go, ledger


class Broken(Nowhere):
    """A disk that fails when a result should be made safe."""

    def save(self, label, vector):
        raise Crash


def test_a_kept_release_is_read_again_and_not_paid_again(attempt, drawer):
    go, ledger = attempt
    first = go()
    assert_same_bits(first.sums, go().sums)
    assert [charge.label for charge in ledger.charges] == ["task 0"]
    assert list(drawer.kept) == ["task 0"]


def test_a_round_that_crashed_before_its_result_was_safe_is_repeated_at_no_cost(attempt, drawer):
    go, ledger = attempt
    with pytest.raises(Crash):
        go(keep=Broken())
    assert len(ledger.charges) == 1
    assert not drawer.kept
    go()
    assert len(ledger.charges) == 1


def test_after_a_crash_rows_that_changed_change_nothing(world, enforced_ledger, drawer):
    """The interrupted release is finished from what was kept, whoever is gone meanwhile."""
    plan, ledger = calibrate(Budget(8.0), releases=2), enforced_ledger(8.0)
    seen = []

    class Crashing(Nowhere):
        def save(self, label, vector):
            seen.append(vector)
            raise Crash

    def go(people, keep):
        cohort = people.cohort(0, everyone(people), plan.cap)
        Session(world.agreement(), plan, ledger, keep).release(0, (0, 1), cohort)

    with pytest.raises(Crash):
        go(world.population, Crashing())
    go(without(world.population, 0), drawer)
    assert len(ledger.charges) == 1
    np.testing.assert_array_equal(drawer.kept["task 0"], seen[0])


def test_a_kept_vector_the_ledger_did_not_pay_for_is_refused(attempt, drawer):
    go, _ = attempt
    drawer.kept["task 0"] = np.zeros(20)
    with pytest.raises(LedgerCorrupted, match="task 0"):
        go()


def test_a_kept_vector_that_was_changed_is_refused(attempt, drawer):
    go, _ = attempt
    go()
    drawer.kept["task 0"] = drawer.kept["task 0"] + 1e-9
    with pytest.raises(LedgerCorrupted, match="differs from the one that was recorded"):
        go()


def test_beyond_the_budget_nothing_is_released(world, make_ledger, drawer):
    plan, people = calibrate(Budget(8.0), releases=2), world.population
    ledger = make_ledger(1.0)
    cohort = people.cohort(0, everyone(people), plan.cap)
    with pytest.raises(BudgetExceeded, match="releasing 'task 0' would bring"):
        Session(world.agreement(), plan, ledger, drawer).release(0, (0, 1), cohort)
    assert not drawer.kept
    assert ledger.charges == ()


def test_a_release_without_noise_is_charged_as_infinite(world, make_ledger, drawer):
    plan, people, ledger = calibrate(Budget(math.inf), 2), world.population, make_ledger()
    cohort = people.cohort(0, everyone(people), plan.cap)
    released = Session(world.agreement(), plan, ledger, drawer).release(0, (0, 1), cohort).value
    assert ledger.epsilon("replay", "roster") == math.inf
    expected = (
        world.agreement()
        .request(0, (0, 1))
        .layout.unpack(total(people, world.agreement()) * (0.2 / 2**20))
    )
    np.testing.assert_array_equal(released.sums.offset, expected.offset)


def test_a_release_expects_qn_clients_and_never_counts_them(world, make_ledger, drawer):
    plan, people = calibrate(Budget(8.0), releases=2, q=0.5), world.population
    nobody = np.zeros(people.count, dtype=bool)
    released = (
        Session(world.agreement(), plan, make_ledger(8.0), drawer)
        .release(0, (0, 1), people.cohort(0, nobody, plan.cap))
        .value
    )
    assert released.expected_weight == pytest.approx(0.5 * world.agreement().expected_weight)
    np.testing.assert_array_equal(released.modes, [0, 1])


def test_small_units_send_means_and_one_matrix_of_second_moments(world):
    """Unclipped, what a unit adds is Σ w over its rows of 1, x − p and (x − p)(x − p)ᵀ."""
    resolution = Resolution(full_weight=1, weight_scale=1.0, tied=5, tied_scale=1.0)
    agreement = world.agreement(second_moments="tied", resolution=resolution, bound=8.0)
    request, examples = agreement.request(0, (0, 1)), world.examples(0)
    bounded = contribute(examples, sum_ask(request))
    rows = bounded.grid.decode(bounded.rows(_SEAL))
    assert rows.shape == (12, 2 * (1 + 8) + 5 * 6 // 2)
    for client in range(12):
        mine = examples.mask[client]
        x, labels = request.space.into(examples.z[client][mine]), examples.labels[client][mine]
        away = x - request.prototypes.mean[labels]
        share = 1.0 / np.bincount(labels, minlength=2)[labels]
        matrix = np.einsum("n,ni,nj->ij", share, away[:, :5], away[:, :5])
        means = [np.append(1.0, away[labels == label].mean(axis=0)) for label in (0, 1)]
        expected = np.concatenate([*means, matrix[np.triu_indices(5)]])
        np.testing.assert_allclose(rows[client], expected, atol=0.005)


@pytest.mark.parametrize("full_weight", [1, 3])
@pytest.mark.parametrize("second_moments", ["shared", "diagonal", "tied"])
def test_one_row_a_unit_has_the_bits_it_has_label_by_label(world, second_moments, full_weight):
    """Rows of a label that was not asked about, and units without a row, add nothing in both."""
    resolution = Resolution(full_weight=full_weight, tied=6 if second_moments == "tied" else 0)
    agreement = world.agreement(second_moments=second_moments, resolution=resolution)
    request, people = agreement.request(0, (0, 1)), world.population
    mask = np.arange(len(people.z))[:, None] % 7 > 0
    clients = tuple(range(len(people.z)))
    examples = Examples(people.z[:, None], people.labels[:, None], mask, clients)
    x = coordinates_of(examples, request)
    assert request.by_row(examples)
    by_row, by_label = statistics_of(examples, request, x), statistics_of(examples, request)
    for name in ("weight", "offset", "second", "target"):
        found, expected = getattr(by_row, name), getattr(by_label, name)
        np.testing.assert_array_equal(found, expected)
        assert np.any(found) == (found.size > 0)
    assert set(by_row.weight.sum(axis=1)) == {0.0, 1 / full_weight}


@pytest.mark.parametrize(
    "settings", [LISTS, {"pooled": True}, {"family": "intents"}, {"second_moments": "full"}]
)
def test_what_needs_more_than_a_label_is_told_label_by_label(world, settings):
    request = world.agreement(**settings).request(0, (0, 1))
    one = Examples(world.population.z[:1, None], np.zeros((1, 1), int), np.ones((1, 1), bool), (0,))
    assert not request.by_row(one)
    two = replace(
        one, z=one.z.repeat(2, 1), labels=one.labels.repeat(2, 1), mask=np.ones((1, 2), bool)
    )
    assert not world.agreement().request(0, (0, 1)).by_row(two)

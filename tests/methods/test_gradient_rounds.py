"""Gradient rounds as a method's head: charges, crashes, one unit more or less, and when chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cslr.config import Config, with_settings
from cslr.errors import ConfigError
from cslr.methods.cslr import METHOD, agree, free_head, schedule, stages
from cslr.methods.gradient_rounds import (
    CLIP,
    LEAST_SIGNAL,
    LEAST_UNITS,
    ROUNDS,
    gradient_stage,
    prefers_rounds,
    start_rule,
)
from cslr.methods.method import may_choose_rounds
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL
from cslr.protocol.step5_rounds import NoisyGradient
from cslr.protocol.updates import UpdateId, update_ask

ALL = (0, 1, 2, 3)
ROUNDS_HERE = 3
WIDE = 8.0


@pytest.fixture
def shared(make_context, world):
    """A run in which both tasks have all labels: ``shared(epsilon, clip=...)``."""

    def make(epsilon: float = math.inf, **head: object):
        head = {"kind": "rounds", "rounds": ROUNDS_HERE, **head}
        context = make_context(epsilon, head=head)
        people = world.population
        tasks = np.arange(len(people.tasks)) % 2
        return replace(context, clients=replace(people, tasks=tasks), tasks=(ALL, ALL))

    return make


def weights_after(context) -> np.ndarray:
    *_, last = stages(context)
    return last().artefacts["head"]["weights1"]


def test_every_round_of_every_task_is_charged_once_and_nothing_else(shared):
    context = shared(4.0)
    list(stages(context))
    charges = context.ledger.charges
    assert [(c.label, c.part) for c in charges] == [
        (f"task {task} update {number}", "head") for task in (0, 1) for number in range(ROUNDS_HERE)
    ]
    assert {c.sigma for c in charges} == {context.plan.head_sigma}
    assert context.ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, rel=0.01)
    assert context.ledger.epsilon("replay", "roster") == 0.0


def test_rounds_are_planned_as_many_as_are_asked_for():
    config = with_settings(Config(), {"head.kind": "rounds"})
    assert schedule(config) == Schedule(replay=0, head=ROUNDS)
    fewer = with_settings(config, {"head.rounds": 4})
    assert schedule(fewer) == Schedule(replay=0, head=4)


def test_without_noise_and_clip_the_rule_is_that_of_plain_descent_on_all_rows(shared, world):
    context = shared(clip=WIDE)
    rule = wanted = start_rule(context)
    for task in (0, 1):
        rule = gradient_stage(context, task, rule)
        cohort = context.open_cohort(task)
        for _ in range(ROUNDS_HERE):
            found = [wanted.question().updates(batch) for batch in cohort.batches()]
            mean = np.concatenate(found).sum(axis=0) / context.clients.count
            wanted = wanted.moved(mean, NoisyGradient(0.0, context.clients.count, ROUNDS_HERE))
    np.testing.assert_allclose(rule.weights, wanted.weights, atol=2e-3)  # a grid of WIDE / 2^20
    assert np.abs(rule.weights - start_rule(context).weights).max() > 0.5


def test_rounds_begin_at_the_rule_that_is_free(shared, world):
    """Its directions, as long as those of the zero-shot rule, and the same biases."""
    context = shared(4.0)
    free = free_head(context, agree(context))
    rule, zero_shot = start_rule(context, free), start_rule(context)
    scores, wanted = rule.head().scores(world.test_z), free.scores(world.test_z)
    np.testing.assert_array_equal(scores.argmax(axis=1), wanted.argmax(axis=1))
    np.testing.assert_allclose(rule.mean[-1], zero_shot.mean[-1])
    assert np.linalg.norm(rule.mean) == pytest.approx(np.linalg.norm(zero_shot.mean))


def test_rounds_learn_what_units_hold(shared, world):
    context = shared(rounds=10)
    first, *_, last = stages(context)

    def accuracy(stage):
        return float((stage().scores(world.test_z).argmax(axis=1) == world.test_labels).mean())

    assert accuracy(last) >= accuracy(first)
    assert accuracy(last) > 0.95


def test_the_order_of_units_does_not_matter(shared):
    context = shared(4.0)
    people = context.clients
    order = np.random.default_rng(0).permutation(len(people.z))
    shuffled = replace(
        people,
        z=people.z[order],
        labels=people.labels[order],
        tasks=people.tasks[order],
        clients=people.clients[order],
    )
    rule = start_rule(context)
    ask = update_ask(UpdateId(0, 0, 12), rule.question(), CLIP)
    everybody = np.ones(people.count, dtype=np.bool_)
    sums = [each.cohort(0, everybody, 2).total(ask).total(_SEAL) for each in (people, shuffled)]
    # Rows of one unit are added up in another order, which may round one step differently.
    np.testing.assert_allclose(*sums, atol=people.count)


def test_alone_and_in_batches_units_sum_to_the_same_integers(shared):
    context = shared(4.0)
    ask = update_ask(UpdateId(0, 0, 12), start_rule(context).question(), CLIP)
    everybody = np.ones(context.clients.count, dtype=np.bool_)
    sums = [
        context.clients.cohort(0, everybody, 2, alone=alone).total(ask).total(_SEAL)
        for alone in (False, True)
    ]
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("gone", [0, 7])
def test_a_unit_that_is_gone_moves_a_sum_by_at_most_the_clip(shared, gone):
    context = shared(4.0)
    people = context.clients
    stays = people.clients != gone
    without = replace(people, clients=people.clients[stays], rows=np.flatnonzero(stays))
    everybody = np.ones(people.count, dtype=np.bool_)
    rule = start_rule(context)
    other = start_rule(replace(context, clients=without))
    np.testing.assert_array_equal(rule.weights, other.weights)  # nothing without noise moves
    ask = update_ask(UpdateId(0, 0, 12), rule.question(), CLIP)
    one, two = (each.cohort(0, everybody, 2).total(ask) for each in (people, without))
    moved = np.linalg.norm(one.grid.decode(one.total(_SEAL) - two.total(_SEAL)))
    assert 0 < moved <= CLIP


def test_a_run_that_is_repeated_pays_nothing_and_ends_the_same(shared):
    context = shared(4.0)
    first = weights_after(context)
    before = context.ledger.charges
    np.testing.assert_array_equal(weights_after(context), first)
    assert context.ledger.charges == before


def test_a_run_that_stops_within_a_task_goes_on_at_the_round_it_lost(shared):
    whole, context = shared(4.0), shared(4.0)
    whole = replace(whole, keep=type(whole.keep)())
    wanted = weights_after(whole)

    class Full(Exception):
        pass

    keep, save = context.keep, context.keep.save

    def failing(label, vector):
        if label == "task 0 update 2":
            raise Full
        save(label, vector)

    keep.save = failing
    with pytest.raises(Full):
        weights_after(context)
    assert len(context.ledger.charges) == ROUNDS_HERE  # the lost one was paid for
    keep.save = save
    np.testing.assert_array_equal(weights_after(context), wanted)
    assert len(context.ledger.charges) == 2 * ROUNDS_HERE


def test_rounds_are_refused_where_tasks_have_different_labels(make_context):
    context = make_context(4.0, head={"kind": "rounds", "rounds": 2})
    with pytest.raises(ConfigError, match="--head released"):
        list(stages(context))
    assert context.ledger.charges == ()


def test_types_may_arrive_task_by_task_and_later_ones_leave_earlier_columns(make_context, world):
    """Task 0 has O and type 1, task 1 the types 2 and 3."""
    context = make_context(math.inf, family="tagging", head={"kind": "rounds", "rounds": 10})
    rules = [start_rule(context)]
    for task in (0, 1):
        rules.append(gradient_stage(context, task, rules[-1]))
    changed = [np.flatnonzero((b.mean != a.mean).any(axis=0)) for a, b in pairwise(rules)]
    assert [each.tolist() for each in changed] == [[1, 2], [3, 4, 5, 6]]
    sizes = [context.keep.load(f"task {task} update 0").size for task in (0, 1)]
    assert sizes == [2 * len(rules[0].mean), 4 * len(rules[0].mean)]

    # Each task makes words of its own types surer of them, against O.
    z, labels = world.test_z, world.test_labels
    for task, types in enumerate(([1], [2, 3])):
        words = np.isin(labels, types)
        scores = [rule.head().scores(z[words]) for rule in rules[task : task + 2]]
        first = 2 * labels[words, None] - 1 + np.arange(2)  # B- and I-
        leads = [np.take_along_axis(s, first, 1).max(1) - s[:, 0] for s in scores]
        assert leads[1].mean() > leads[0].mean() + 1


def test_a_task_without_types_has_nothing_to_train_and_is_refused(make_context):
    """Without a column its rounds would be charged for nothing; statistics know such a task."""
    context = make_context(4.0, family="tagging", head={"kind": "rounds", "rounds": 2})
    with pytest.raises(ConfigError, match="use --head released"):
        next(stages(replace(context, tasks=((0,), (0, 1, 2, 3)))))
    assert context.ledger.charges == ()
    for tasks, may in (([(0,), (0, 1)], False), ([(0, 1), (1,)], True), ([(0,)], False)):
        assert may_choose_rounds(Config(), "tagging", tasks, 4) is may


def test_a_run_of_types_by_task_pays_for_its_rounds_and_knows_all_types(make_context, world):
    context = make_context(4.0, cap=1, family="tagging", head={"kind": "rounds", "rounds": 2})
    first, second, last = (stage() for stage in stages(context))
    assert len(context.ledger.charges) == 4
    assert context.ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, rel=0.01)
    for stage in (first, second, last):  # label texts tell of types that no task has had yet
        assert np.isfinite(stage.scores(world.test_z)).all()


def test_the_replay_stays_the_public_prior(shared):
    first, *_, last = stages(shared(4.0))
    for name, array in first().artefacts["replay"].items():
        np.testing.assert_array_equal(array, last().artefacts["replay"][name])


@pytest.mark.parametrize(
    ("settings", "tasks", "may"),
    [
        ({}, (ALL, ALL), True),
        ({}, ((0, 1), (2, 3)), False),
        ({}, (ALL, (0, 1, 2)), False),
        ({"head.kind": "released"}, (ALL, ALL), False),
        ({"replay.sub_modes": 2}, (ALL, ALL), False),
        ({"replay.prior": "none"}, (ALL, ALL), False),
        ({"encoders": ("minilm", "other")}, (ALL, ALL), False),
    ],
)
def test_rounds_may_be_chosen_where_every_task_has_all_labels_and_nothing_is_asked(
    settings, tasks, may
):
    config = with_settings(Config(), settings)
    assert may_choose_rounds(config, "classification", tasks, 4) is may
    assert may_choose_rounds(config, "intents", tasks, 4) is may
    assert may_choose_rounds(config, "tagging", tasks, 4) is (may or not settings)


def planned(epsilon: float, cap: int):
    return calibrate(Budget(epsilon), 5, cap=cap, schedule=Schedule(replay=0, head=ROUNDS))


def test_rounds_are_chosen_for_many_units_that_outweigh_the_noise():
    assert prefers_rounds(planned(4.0, cap=1), 2000, "classification")
    assert not prefers_rounds(planned(1.0, cap=1), 2000, "classification")
    assert prefers_rounds(planned(1.0, cap=1), 5000, "classification")
    least = LEAST_UNITS["classification"]
    assert prefers_rounds(planned(math.inf, cap=1), least, "classification")
    assert not prefers_rounds(planned(math.inf, cap=1), least - 1, "classification")


def test_sentences_have_many_words_so_fewer_of_them_are_enough():
    assert prefers_rounds(planned(1.0, cap=1), 2000, "tagging")
    assert not prefers_rounds(planned(1.0, cap=1), 350, "tagging")
    assert prefers_rounds(planned(8.0, cap=1), 200, "tagging")
    assert not prefers_rounds(planned(math.inf, cap=1), LEAST_UNITS["tagging"] - 1, "tagging")


def test_the_noise_that_counts_is_that_of_a_task_however_many_rounds_share_it():
    more = calibrate(Budget(4.0), 5, cap=1, schedule=Schedule(replay=0, head=60))
    assert more.unit == planned(4.0, cap=1).unit
    least = math.ceil(5 * LEAST_SIGNAL["intents"] * more.unit)
    chosen = [prefers_rounds(more, units, "intents") for units in (least - 1, least)]
    assert chosen == [False, True]


def test_of_all_settings_of_cslr_itself_alone_chooses_its_head():
    assert METHOD.chooses_head

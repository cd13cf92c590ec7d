"""Four yardsticks in a small world: what each must score, and what each is charged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import BudgetExceeded
from cslr.methods.registry import METHODS, YARDSTICKS
from cslr.protocol.head import initial_head
from cslr.runs.measure import backward_transfer

OPEN = [name for name in YARDSTICKS if METHODS[name].reads == "openly"]
FAMILIES = ("classification", "intents", "tagging")
TAGS_OF_FIRST = [True, True, True, False, False, False, False]  # O, B-1, I-1 of labels 0 and 1


@pytest.fixture
def make_context(make_context):
    """Runs of a method that reads rows openly."""
    return lambda *given, **more: replace(make_context(*given, **more), reads="openly")


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows whose best label is right; NaN if a right one has no score."""
    known = np.isfinite(scores[np.arange(len(labels)), labels])
    return float(np.mean(scores.argmax(axis=1) == labels)) if known.all() else math.nan


def matrix(context, world, method: str) -> np.ndarray:
    """(T + 1, T) accuracies on the test rows; every label may be answered."""
    rows = []
    for stage in METHODS[method].stages(context):
        scores = stage().scores(world.test_z)
        mine = [world.test_tasks == task for task in range(2)]
        rows.append([accuracy(scores[task], world.test_labels[task]) for task in mine])
    return np.array(rows)


@pytest.mark.parametrize("method", YARDSTICKS)
def test_a_yardstick_has_a_stage_before_any_task_and_one_after_each(make_context, method):
    assert len(list(METHODS[method].stages(make_context()))) == 3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", YARDSTICKS)
def test_a_yardstick_scores_every_output_of_the_family(make_context, world, method, family):
    context = make_context(family=family)
    for stage in METHODS[method].stages(context):
        assert stage().scores(world.test_z).shape == (80, context.family.outputs)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", [name for name in YARDSTICKS if name != "zero-shot"])
def test_before_any_task_nothing_is_known(make_context, world, method, family):
    first = next(iter(METHODS[method].stages(make_context(family=family))))()
    np.testing.assert_array_equal(first.scores(world.test_z), -np.inf)


def test_majority_is_the_best_constant_among_the_labels_seen(make_context, world):
    shares = np.array([[1 / 3, 2 / 3, 0, 0], [0, 0, 1 / 4, 3 / 4]])
    context = replace(make_context(), test_shares=shares)
    answers = [
        stage().scores(np.zeros((1, 24))).argmax() for stage in METHODS["majority"].stages(context)
    ]
    assert answers[1:] == [1, 3]  # 2/3 of task 0, then 3/4 of task 1: tasks count alike


def test_majority_scores_the_share_of_its_constant(make_context, world):
    found = matrix(make_context(), world, "majority")
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [0.5, np.nan], [0.5, 0.0]])


def test_zero_shot_is_the_nearest_text_at_every_stage(make_context, world):
    found = matrix(make_context(), world, "zero-shot")
    nearest = (world.test_z @ world.texts.T).argmax(axis=1) == world.test_labels
    expected = [np.mean(nearest[world.test_tasks == task]) for task in range(2)]
    np.testing.assert_allclose(found, np.tile(expected, (3, 1)))


def test_in_tagging_both_tags_of_a_type_have_the_scores_of_the_type(make_context, world):
    for method in ("majority", "zero-shot"):
        _, after, _ = METHODS[method].stages(make_context())
        _, of_tags, _ = METHODS[method].stages(make_context(family="tagging"))
        expected = after().scores(world.test_z)[:, [0, 1, 1, 2, 2, 3, 3]]
        np.testing.assert_array_equal(of_tags().scores(world.test_z), expected)


def test_of_intents_zero_shot_says_yes_to_the_nearest_alone(make_context, world):
    first = next(iter(METHODS["zero-shot"].stages(make_context(family="intents"))))()
    scores = first.scores(world.test_z)
    np.testing.assert_array_equal(scores.max(axis=1), 0.0)
    np.testing.assert_array_equal((scores >= 0).sum(axis=1), 1)
    np.testing.assert_array_equal(
        scores.argmax(axis=1), (world.test_z @ world.texts.T).argmax(axis=1)
    )


@pytest.fixture
def leaning(make_context, world):
    """The world with a direction common to all its rows, as the sentences of an encoder have."""
    common = 2.0 * np.ones(24) / np.sqrt(24)
    people = replace(world.population, z=world.population.z + common)
    return (
        replace(make_context(), clients=people),
        replace(world, population=people, test_z=world.test_z + common),
    )


def test_finetune_forgets_the_task_before(leaning):
    found = matrix(*leaning, "finetune")
    assert found[1, 0] > 0.9
    assert np.isnan(found[1, 1])
    assert found[2, 1] > 0.9
    assert found[2, 0] < 0.3
    assert backward_transfer(found) < -0.6


def test_joint_does_not_forget(leaning):
    found = matrix(*leaning, "joint")
    assert found[1, 0] > 0.9
    assert np.all(found[2] > 0.9)
    assert backward_transfer(found) > -0.1


@pytest.mark.parametrize(
    ("family", "heard"),
    [("classification", [True, True, False, False]), ("tagging", TAGS_OF_FIRST)],
)
@pytest.mark.parametrize("method", OPEN)
def test_heads_are_silent_about_labels_not_seen_yet(make_context, world, method, family, heard):
    _, after_one, _ = METHODS[method].stages(make_context(family=family))
    scores = after_one().scores(world.test_z)
    np.testing.assert_array_equal(np.isfinite(scores).all(axis=0), heard)
    np.testing.assert_array_equal(scores[:, ~np.array(heard)], -np.inf)


def test_pooled_heads_learn_the_targets_and_not_only_the_labels(make_context):
    """Every third text of label 0 is of label 1 too: the head says yes a third of the time."""
    context = make_context(family="intents")
    *_, last = METHODS["joint"].stages(context)
    people = context.clients
    mine = people.z[people.labels == 0]
    share = (1 / (1 + np.exp(-last().scores(mine)))).mean(axis=0)
    assert share[0] > 0.8
    assert share[1] == pytest.approx(1 / 3, abs=0.1)
    assert np.all(share[2:] < 0.15)


def test_pooled_heads_learn_tags(make_context, world):
    *_, last = METHODS["joint"].stages(make_context(family="tagging"))
    scores = last().scores(world.test_z)
    assert np.mean((scores.argmax(axis=1) + 1) // 2 == world.test_labels) > 0.9
    named = scores[world.test_labels == 1]
    assert np.mean(named[:, 1] > named[:, 2]) > 0.9  # two B- for an I-


@pytest.mark.parametrize("method", OPEN)
def test_pooled_training_is_charged_as_infinite(make_context, method):
    context = make_context()
    next(iter(METHODS[method].stages(context)))
    assert context.ledger.epsilon("end_to_end", "roster") == math.inf
    assert context.ledger.epsilon("end_to_end", "public") == math.inf
    assert context.ledger.epsilon("replay", "roster") == 0.0  # it releases no replay


@pytest.mark.parametrize("method", OPEN)
def test_no_finite_budget_admits_pooled_training(make_context, method):
    context = make_context(epsilon=100.0)
    with pytest.raises(BudgetExceeded, match="pooled training"):
        next(iter(METHODS[method].stages(context)))


@pytest.mark.parametrize("method", ["majority", "zero-shot"])
def test_what_reads_no_client_costs_nothing(make_context, world, method):
    context = make_context(epsilon=1.0)
    broken = replace(context, clients=None)  # there is nothing to read
    for stage in METHODS[method].stages(broken):
        stage().scores(world.test_z)
    assert context.ledger.charges == ()


@pytest.mark.parametrize("method", OPEN)
def test_the_same_seed_gives_the_same_head_and_another_another(make_context, method):
    def last(seed):
        *_, stage = METHODS[method].stages(make_context(seed=seed))
        return stage().artefacts["head"]

    one, two, other = last(13), last(13), last(14)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
    assert not np.array_equal(one["weights1"], other["weights1"])


def test_stages_may_be_called_alone_and_in_any_order(make_context, world):
    stages = list(METHODS["finetune"].stages(make_context()))
    late = stages[2]().scores(world.test_z)
    again = [stage().scores(world.test_z) for stage in METHODS["finetune"].stages(make_context())]
    np.testing.assert_array_equal(late, again[2])


def test_all_methods_of_a_seed_begin_with_the_same_head(make_context):
    context = make_context()
    expected = initial_head(24, 4, context.head_settings, context.seeds.at("initial head"))
    for method in OPEN:
        head = next(iter(METHODS[method].stages(make_context())))().artefacts["head"]
        np.testing.assert_array_equal(head["weights1"], expected.weights1)


def test_the_head_of_a_family_has_its_outputs_and_its_loss(make_context):
    settings = {name: make_context(family=name) for name in FAMILIES}
    outputs = [context.initial_head().weights2.shape[1] for context in settings.values()]
    assert outputs == [4, 4, 7]
    assert [s.head_settings.sigmoid for s in settings.values()] == [False, True, False]


def test_labels_are_seen_task_by_task(make_context):
    context = make_context()
    np.testing.assert_array_equal(context.seen(0), [False] * 4)
    np.testing.assert_array_equal(context.seen(1), [True, True, False, False])
    np.testing.assert_array_equal(context.seen(2), [True] * 4)

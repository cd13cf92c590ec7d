"""CSLR as a method: what it knows before, between and after its rounds, and what that costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import ConfigError, PlanChanged
from cslr.methods.cslr import stages as cslr
from cslr.methods.gradient_rounds import start_rule
from cslr.methods.registry import METHODS, YARDSTICKS, method_named
from cslr.protocol.round import Session

FAMILIES = ("classification", "intents", "tagging")


def share_right(learnt, world, family="classification") -> float:
    """Share of the test rows whose best output is about their label."""
    best = learnt.scores(world.test_z).argmax(axis=1)
    return float(np.mean(world.family(family).label_of_output()[best] == world.test_labels))


def test_without_a_prior_nothing_is_known_before_the_first_release(make_context, world):
    first = next(iter(cslr(make_context(prior="none"))))()
    np.testing.assert_array_equal(first.scores(world.test_z), -np.inf)
    assert first.artefacts["replay"]["mean"].shape == (0, 8)


def test_without_a_prior_only_released_labels_are_answered(make_context, world):
    after = [stage() for stage in cslr(make_context(prior="none"))]
    known = [np.isfinite(learnt.scores(world.test_z)).all(axis=0).tolist() for learnt in after]
    assert known == [[False] * 4, [True, True, False, False], [True] * 4]


def test_with_a_label_prior_every_label_is_answered_from_the_start(make_context, world):
    first = next(iter(cslr(make_context())))()
    assert np.isfinite(first.scores(world.test_z)).all()
    assert share_right(first, world) > 0.8  # the texts alone say much in this world


def test_without_a_prior_only_tags_of_released_types_are_answered(make_context, world):
    after = [stage() for stage in cslr(make_context(prior="none", family="tagging"))]
    known = [np.isfinite(learnt.scores(world.test_z)).all(axis=0).tolist() for learnt in after]
    assert known == [[False] * 7, [True] * 3 + [False] * 4, [True] * 7]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prior", ["labels", "none"])
def test_without_noise_the_head_learns_all_tasks_from_replay(make_context, world, prior, family):
    *_, last = cslr(make_context(prior=prior, family=family))
    # In tagging O is expected far more often than it is met in the small world.
    assert share_right(last(), world, family) > (0.8 if family == "tagging" else 0.95)


def test_in_tagging_the_head_is_the_zero_shot_rule_until_releases_say_more(
    make_context_with, make_drawer, world
):
    """Its scores count public frequencies of tags; noise may not make it worse than that."""
    made = [make_context_with(make_drawer(), eps, family="tagging") for eps in (0.01, math.inf)]
    rule = start_rule(made[0]).head().scores(world.test_z)
    noisy, clear = (list(cslr(context)) for context in made)
    np.testing.assert_allclose(clear[0]().scores(world.test_z), rule, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(noisy[-1]().scores(world.test_z), rule, rtol=1e-2, atol=1e-2)
    assert np.abs(clear[-1]().scores(world.test_z) - rule).max() > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_kept_of_a_replay_is_enough_to_draw_from_it(make_context, world, family):
    context = make_context(family=family)
    *_, last = cslr(context)
    kept = last().artefacts["replay"]
    shapes = {name: np.shape(array) for name, array in kept.items()}
    assert shapes["mean"] == shapes["variance"] == (4, 8)
    assert shapes["weights"] == shapes["labels"] == shapes["known"] == (4,)
    assert shapes["targets"] == (4, context.family.outputs)
    people = context.clients
    mine = people.targets[people.labels == 1]
    np.testing.assert_allclose(kept["targets"][1], mine.mean(axis=0), atol=0.1)


def test_the_ledger_says_what_was_planned(make_context):
    context = make_context(epsilon=4.0)
    list(cslr(context))
    assert [charge.label for charge in context.ledger.charges] == ["task 0", "task 1"]
    spent = context.ledger.epsilon("end_to_end", "roster")
    assert spent == context.ledger.epsilon("replay", "roster")
    assert spent == pytest.approx(4.0, abs=1e-6)


def test_without_noise_the_ledger_says_infinite(make_context):
    context = make_context()
    list(cslr(context))
    assert context.ledger.epsilon("end_to_end", "roster") == math.inf


def test_stages_that_nobody_calls_are_not_trained_but_released_all_the_same(make_context, drawer):
    assert len(list(cslr(make_context(epsilon=4.0)))) == 3
    assert list(drawer.kept) == ["task 0", "task 1"]


def test_an_interrupted_run_goes_on_from_what_was_kept(make_context, drawer):
    context = make_context(epsilon=4.0)
    *_, last = cslr(context)
    *_, again = cslr(context)  # the same ledger and the same drawer
    assert len(context.ledger.charges) == 2
    one, two = last().artefacts["replay"], again().artefacts["replay"]
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_what_one_task_taught_the_next_clients_are_told(make_context, monkeypatch):
    told, release = [], Session.release

    def listening(self, *arguments):
        told.append([each.value.task for each in self.releases])
        return release(self, *arguments)

    monkeypatch.setattr(Session, "release", listening)
    list(cslr(make_context(epsilon=4.0)))
    assert told == [[], [0]]


def test_settings_may_not_change_after_the_first_release(make_context):
    context = make_context(epsilon=4.0)
    list(cslr(context))
    other = replace(context, replay=context.replay.model_copy(update={"matcher": "random"}))
    with pytest.raises(PlanChanged, match="matcher"):
        next(iter(cslr(other)))


def test_the_same_seed_gives_the_same_run_and_another_another(make_context, drawer):
    def replay_of(seed):
        drawer.kept.clear()
        *_, last = cslr(make_context(epsilon=4.0, seed=seed))
        return last().artefacts["replay"]["mean"]

    first = replay_of(13)
    np.testing.assert_array_equal(first, replay_of(13))
    assert not np.allclose(first, replay_of(14))


def test_fewer_clients_and_a_cap_still_make_a_run(make_context, world):
    context = make_context(epsilon=8.0, q=0.5, cap=1, sub_modes=2)
    *_, last = cslr(context)
    learnt = last()
    assert np.isfinite(learnt.scores(world.test_z)).all()
    assert learnt.artefacts["replay"]["mean"].shape == (8, 8)
    assert {charge.q for charge in context.ledger.charges} == {0.5}


def test_every_yardstick_is_a_method_and_an_unknown_name_lists_them_all():
    assert set(YARDSTICKS) <= set(METHODS)
    with pytest.raises(ConfigError, match="majority, zero-shot, finetune, joint"):
        method_named("no such method")

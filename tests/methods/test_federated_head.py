"""Rounds of federated training: what clients are told, and what becomes of their updates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.methods import federated_head
from cslr.methods.cslr import stages
from cslr.methods.dp_sgd import stages as dp_sgd
from cslr.methods.federated_head import CLIP, WIDE, federated_stage
from cslr.methods.method import MethodContext
from cslr.privacy.values import _SEAL
from cslr.protocol.updates import UpdateId, update_ask

KINDS = ("federated", "dp-fedavg")


@pytest.fixture
def told(monkeypatch):
    """What clients are told in each round, noted while it happens, and the norm they clip to."""
    noted = []

    def noting(update, training, norm, *more):
        noted.append((training, norm))
        return update_ask(update, training, norm, *more)

    monkeypatch.setattr(federated_head, "update_ask", noting)
    return noted


def head(kind: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "rounds": 2, **more}


def sampled(context: MethodContext, q: float) -> MethodContext:
    """The same with so many of the clients in a round."""
    return replace(context, plan=replace(context.plan, head_q=q))


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_is_of_earlier_tasks_alone(make_context, told, kind):
    """Labels of later tasks have prior modes from their texts, but are not replayed yet."""
    list(stages(make_context(8.0, head=head(kind))))
    replays = [each.replay for each, _ in told]
    assert len(replays) == 4  # two rounds of two tasks
    assert replays[0] is replays[1] is None
    for _, targets in replays[2:]:
        assert len(targets) == 40  # n_r in all
        np.testing.assert_array_equal(targets.sum(axis=0), [20, 20, 0, 0])
    assert not np.array_equal(replays[2][0], replays[3][0])  # drawn anew each round


@pytest.mark.parametrize("kind", KINDS)
def test_the_teacher_is_the_head_before_the_task(make_context, told, kind):
    list(stages(make_context(8.0, head=head(kind))))
    for task in (0, 1):
        first, second = (each for each, _ in told[2 * task : 2 * task + 2])
        assert first.teacher is first.head
        assert second.teacher is first.head
        assert second.head is not first.head


@pytest.mark.parametrize("kind", KINDS)
def test_only_labels_of_the_tasks_so_far_are_heard(make_context, told, kind):
    list(stages(make_context(8.0, head=head(kind))))
    heard = [each.heard.tolist() for each, _ in told]
    assert heard == [[True, True, False, False]] * 2 + [[True] * 4] * 2


@pytest.mark.parametrize(
    ("kind", "asked"), [("federated", (False, WIDE)), ("dp-fedavg", (True, CLIP))]
)
def test_noised_updates_are_of_the_last_layer_and_clipped_short(make_context, told, kind, asked):
    list(stages(make_context(8.0, head=head(kind))))
    assert {(each.last_layer, norm) for each, norm in told} == {asked}


def test_the_norm_of_noised_updates_can_be_chosen(make_context, told):
    list(dp_sgd(make_context(8.0, method="dp-sgd", head={"rounds": 1, "clip": 0.3})))
    assert {norm for _, norm in told} == {0.3}


def test_without_noise_the_head_moves_by_the_mean_of_the_updates(make_context, told):
    context = make_context(head=head("federated", rounds=1))
    start = context.initial_head()
    moved = federated_stage(context, 0, start, replay=None, space=None)
    ((first, norm),) = told
    cohort = context.cohort(0, 0)
    summed = cohort.total(update_ask(UpdateId(0, 0, 12), first, norm))
    mean = summed.grid.decode(summed.total(_SEAL)) / 12
    size = start.weights1.size
    found = (moved.weights1 - start.weights1).ravel()
    np.testing.assert_allclose(found, mean[:size], atol=1e-6)
    assert context.ledger.epsilon("end_to_end", "roster") == math.inf
    assert context.ledger.epsilon("replay", "roster") == 0.0


def test_a_round_to_which_nobody_comes_leaves_the_head_alone(make_context):
    context = sampled(make_context(head=head("federated", rounds=1)), 1e-6)
    assert context.cohort(0, 0).size == 0
    start = context.initial_head()
    assert federated_stage(context, 0, start, replay=None, space=None) is start
    assert context.ledger.charges == ()


def test_every_round_has_a_cohort_of_its_own(make_context):
    context = sampled(make_context(head=head("federated")), 0.5)
    cohorts = [context.cohort(0, number).taking_part for number in range(6)]
    cohorts.append(context.cohort(0).taking_part)  # that of the replay: all of them, q = 1
    assert len({cohort.tobytes() for cohort in cohorts}) == 7


def test_a_head_that_clients_train_learns_what_they_hold(make_context, world):
    context = make_context(head=head("federated", rounds=120))
    *_, last = stages(context)
    best = last().scores(world.test_z).argmax(axis=1)
    assert np.mean(best == world.test_labels) > 0.9

"""Clients that train a head: each independently, on its own rows and on the replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.privacy.values import _SEAL
from cslr.protocol.head import Head, HeadSettings, initial_head, label_targets
from cslr.protocol.step5_federate import (
    ROWS,
    TEMPERATURE,
    LocalTraining,
    _drawn_rows,
    _Replay,
    applied,
    local_updates,
)
from cslr.protocol.updates import UpdateId, update_ask, update_of
from cslr.seeding import Seeds

WIDTH, HIDDEN = 24, 16
FAMILIES = ("classification", "intents", "tagging")
LOSSES = ("targets", "distillation", "contrastive")


def head_of(outputs: int = 4, seed: int = 0) -> Head:
    return initial_head(WIDTH, outputs, HeadSettings(HIDDEN), np.random.default_rng(seed))


@pytest.fixture(scope="module")
def remembered(world):
    """What a perfect replay of task 0 would draw: rows of its labels with their targets."""
    people = world.population
    rows = np.flatnonzero(people.tasks == 0)[:60]
    return people.z[rows].astype(np.float32), label_targets(people.labels[rows], 4)


@pytest.fixture
def told(world):
    """The request of a round in task 1: ``told(**changes)``."""

    def make(family="classification", **changes) -> LocalTraining:
        family = world.family(family)
        plain = LocalTraining(
            head=head_of(family.outputs),
            family=family,
            heard=np.ones(4, dtype=bool),
            replay=None,
            teacher=None,
            taught=np.arange(4) < 2,
            loss="targets",
            weight=1.0,
            learning_rate=1e-2,
            last_layer=False,
            seeds=Seeds(13),
        )
        return replace(plain, **changes)

    return make


@pytest.mark.parametrize("samples", [5, 10, 12])
def test_the_samples_of_every_step_weigh_the_weight_of_the_replay(told, samples):
    z = np.random.default_rng(0).standard_normal((samples, WIDTH)).astype(np.float32)
    replay = _Replay.of(told(replay=(z, np.full((samples, 4), 0.25, np.float32)), weight=0.7))
    assert sum(len(step.z) for step in replay.steps) == samples
    np.testing.assert_allclose([step.weights.sum() for step in replay.steps], 0.7, rtol=1e-6)


def trained(examples, told: LocalTraining) -> list[Head]:
    """Every client's own head after its steps."""
    return [applied(told.head, update, told) for update in local_updates(examples, told)]


def cross_entropy(head: Head, z: np.ndarray, targets: np.ndarray) -> float:
    scores = head.scores(z)
    scores = scores - scores.max(axis=1, keepdims=True)
    chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-(targets * chances).sum(axis=1).mean())


def answers_of(head: Head, z: np.ndarray, labels: int) -> np.ndarray:
    """Softmax over the first few labels."""
    scores = head.scores(z)[:, :labels]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.pad(odds / odds.sum(axis=1, keepdims=True), ((0, 0), (0, 4 - labels)))


def contrast(head: Head, z: np.ndarray, targets: np.ndarray) -> float:
    """Supervised contrastive loss of the hidden layer (Khosla et al. 2020), in plain NumPy."""
    hidden = np.maximum(z @ head.weights1 + head.bias1, 0.0)
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    alike, label = unit @ unit.T / TEMPERATURE, targets.argmax(axis=1)
    losses = []
    for i in range(len(z)):
        others = np.flatnonzero(np.arange(len(z)) != i)
        same = others[label[others] == label[i]]
        losses.append(np.log(np.exp(alike[i, others]).sum()) - alike[i, same].mean())
    return float(np.mean(losses))


# -- a client by itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_client_gets_better_on_its_own_rows(world, told, family):
    told = told(family)
    examples = world.told(family).examples(1)
    before, after = told.head, trained(examples, told)
    for i, head in enumerate(after):
        mine = examples.mask[i]
        z, y = examples.z[i, mine], examples.targets[i, mine]
        assert cross_entropy(head, z, y) < cross_entropy(before, z, y) - 0.05


def test_without_targets_the_labels_are_what_is_learnt(world, told):
    examples = world.examples(1)
    assert examples.targets is None
    one_hot = replace(examples, targets=label_targets(examples.labels, 4))
    np.testing.assert_array_equal(local_updates(examples, told()), local_updates(one_hot, told()))


@pytest.mark.parametrize("loss", LOSSES)
def test_no_clients_update_depends_on_anothers_rows(world, told, remembered, loss):
    told = told(replay=remembered, teacher=head_of(seed=1), loss=loss)
    examples = world.examples(1)
    other = replace(examples, z=examples.z.copy(), labels=examples.labels.copy())
    other.z[3:] *= -3.0
    other.labels[3:] = 0
    one, two = local_updates(examples, told), local_updates(other, told)
    np.testing.assert_array_equal(one[:3], two[:3])
    assert not np.allclose(one[3:], two[3:])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_device_alone_computes_what_a_stack_of_clients_computes(world, told, remembered, loss):
    told = told(replay=remembered, teacher=head_of(seed=1), loss=loss)
    examples = world.examples(1)
    together = local_updates(examples, told)
    for client in (0, 7):
        chosen = slice(client, client + 1)
        alone = replace(
            examples,
            z=examples.z[chosen],
            labels=examples.labels[chosen],
            mask=examples.mask[chosen],
            clients=(client,),
        )
        np.testing.assert_allclose(local_updates(alone, told)[0], together[client], atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("last_layer", [False, True])
def test_how_many_clients_are_trained_at_a_time_does_not_matter(
    world, told, remembered, loss, last_layer, monkeypatch
):
    told = told(replay=remembered, teacher=head_of(seed=1), loss=loss, last_layer=last_layer)
    examples = world.examples(1)
    together = local_updates(examples, told)
    size = together.shape[1]
    for clients in (1, 3, len(together) - 1):
        monkeypatch.setattr("cslr.protocol.step5_federate.NUMBERS", clients * size)
        np.testing.assert_allclose(local_updates(examples, told), together, rtol=0, atol=1e-6)


def test_what_stands_in_the_padding_does_not_matter(world, told):
    examples = world.examples(1)
    assert not examples.mask.all()
    other = replace(examples, z=np.where(examples.mask[..., None], examples.z, 1e3))
    np.testing.assert_array_equal(local_updates(other, told()), local_updates(examples, told()))


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_are_counted_train_as_rows_that_are_repeated(world, told, remembered, loss):
    """Up to ROWS rows are held once each, with how often they were drawn; more are copied."""
    told = told(replay=remembered, teacher=head_of(seed=1), loss=loss, learning_rate=1e-3)
    examples = world.examples(1)
    few, more = examples.mask.shape[1], ROWS + 1 - examples.mask.shape[1]
    assert few <= ROWS
    wider = replace(
        examples,
        z=np.pad(examples.z, ((0, 0), (0, more), (0, 0))),
        labels=np.pad(examples.labels, ((0, 0), (0, more))),
        mask=np.pad(examples.mask, ((0, 0), (0, more))),
    )
    apart = np.abs(local_updates(wider, told) - local_updates(examples, told))
    assert np.quantile(apart, 0.999) < 1e-6
    assert apart.max() < told.learning_rate


@pytest.mark.parametrize("loss", LOSSES)
def test_a_client_without_rows_sends_zeros(world, told, remembered, loss):
    """Training on the replay alone would also reveal that the client takes part."""
    examples = world.examples(1)
    examples.mask[2] = False
    told = told(replay=remembered, teacher=head_of(seed=1), loss=loss)
    updates = local_updates(examples, told)
    np.testing.assert_array_equal(updates[2], 0.0)
    assert np.all(np.linalg.norm(np.delete(updates, 2, axis=0), axis=1) > 0.01)


def test_the_same_seed_draws_the_same_rows_and_another_others(world, told):
    examples = world.examples(1)
    one, two, other = (local_updates(examples, told(seeds=Seeds(s))) for s in (13, 13, 14))
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


def updates_by_torch(examples, told: LocalTraining) -> np.ndarray:
    """The same steps by autograd and torch's own Adam, one client after the other."""
    draws, updates = _drawn_rows(examples, told.seeds), []
    for i in range(len(examples.clients)):
        start = {name: torch.tensor(array) for name, array in vars(told.head).items()}
        head = {name: array.clone() for name, array in start.items()}
        trained = [head[name].requires_grad_() for name in told.parts]
        optimizer = torch.optim.Adam(trained, lr=told.learning_rate)
        for step, chosen in enumerate(draws[:, i]):
            part = slice(step, None, len(draws))
            loss = told.weight * replay_loss_by_torch(head, told, part) if told.replay else 0.0
            _, scores = scores_by_torch(head, examples.z[i, chosen], told)
            loss = loss + loss_by_torch(scores, examples.targets[i, chosen], told)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        moved = [(head[name].detach() - start[name]).ravel() for name in told.parts]
        updates.append(torch.cat(moved).numpy())
    return np.array(updates)


def scores_by_torch(head, z, told):
    z = torch.tensor(np.asarray(z, dtype=np.float32))
    hidden = torch.relu(z @ head["weights1"] + head["bias1"])
    silent = torch.tensor(~told.heard[told.family.label_of_output()])
    return hidden, (hidden @ head["weights2"] + head["bias2"]).masked_fill(silent, -1e4)


def loss_by_torch(scores, wanted, told):
    wanted = torch.tensor(np.asarray(wanted, dtype=np.float32))
    if told.family.sigmoid:
        return functional.binary_cross_entropy_with_logits(scores, wanted)
    return functional.cross_entropy(scores, wanted)


def replay_loss_by_torch(head, told, part):
    z, wanted = told.replay
    hidden, scores = scores_by_torch(head, z[part], told)
    if told.loss == "targets":
        return loss_by_torch(scores, wanted[part], told)
    label = torch.tensor(wanted[part].argmax(axis=1))
    unit, itself = functional.normalize(hidden, dim=-1), torch.eye(len(label), dtype=torch.bool)
    shares = torch.log_softmax((unit @ unit.T / TEMPERATURE).masked_fill(itself, -1e9), dim=-1)
    same = (label[:, None] == label) & ~itself
    return -((shares * same).sum(dim=-1) / same.sum(dim=-1).clamp(min=1)).mean()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("loss", ["targets", "contrastive"])
@pytest.mark.parametrize("last_layer", [False, True])
def test_updates_are_what_torch_computes_client_by_client(world, told, family, loss, last_layer):
    """Within 1e-6, except for gradients that are zero up to rounding: Adam steps there too."""
    outputs = world.family(family).outputs
    rng = np.random.default_rng(4)
    z = world.population.z[:60].astype(np.float32)
    y = np.eye(outputs, dtype=np.float32)[rng.integers(outputs, size=60)]
    told = told(
        family,
        heard=np.array([True, True, True, False]),
        replay=(z, y),
        loss=loss,
        weight=0.5,
        learning_rate=1e-3,
        last_layer=last_layer,
    )
    examples = world.told(family).examples(1)
    apart = np.abs(local_updates(examples, told) - updates_by_torch(examples, told))
    assert np.quantile(apart, 0.999) < 1e-6
    assert apart.max() < told.learning_rate


# -- the replay ------------------------------------------------------------------------------------


def test_held_to_its_targets_a_head_remembers_what_the_replay_says(world, told, remembered):
    examples, z, y = world.examples(1), *remembered
    alone = trained(examples, told(learning_rate=0.05))
    held = trained(examples, told(replay=remembered, weight=5.0, learning_rate=0.05))
    for without, with_replay in zip(alone, held, strict=True):
        assert cross_entropy(with_replay, z, y) < 0.7 * cross_entropy(without, z, y)


def test_distilled_a_head_stays_with_what_it_answered_before(world, told, remembered):
    """Only the teacher's scores of task 0's labels are used: it was not trained on the others."""
    examples, (z, y), plain = world.examples(1), remembered, head_of(seed=1)
    before = replace(plain, weights2=30.0 * plain.weights2)
    soft = answers_of(before, z, labels=2)
    assert np.mean(soft.argmax(axis=1) == y.argmax(axis=1)) < 0.8  # not what the targets say
    common = {"head": before, "replay": remembered, "teacher": before, "learning_rate": 0.05}
    alone = trained(examples, told(**common, weight=0.0))
    held = trained(examples, told(**common, weight=5.0, loss="distillation"))
    for without, with_replay in zip(alone, held, strict=True):
        assert cross_entropy(with_replay, z, soft) < 0.7 * cross_entropy(without, z, soft)


@pytest.mark.parametrize("family", FAMILIES)
def test_distillation_is_training_on_the_teachers_answers_as_the_family_reads_them(
    world, told, family
):
    """Intents by sigmoids, labels and tags by a softmax."""
    outputs = world.family(family).outputs
    z = world.population.z[:60].astype(np.float32)
    teacher = replace(head_of(outputs, seed=1), bias2=np.linspace(-1, 1, outputs, dtype="float32"))
    heard = 2 if family != "tagging" else 3  # O, B-1 and I-1
    scores = teacher.scores(z)[:, :heard].astype(np.float64)
    soft = np.zeros((60, outputs), dtype=np.float32)
    if family == "intents":
        soft[:, :heard] = 1 / (1 + np.exp(-scores))
    else:
        soft[:, :heard] = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    examples = world.told(family).examples(1)
    learnt = local_updates(examples, told(family, replay=(z, soft)))
    nothing = (z, np.zeros_like(soft))
    distilled = told(family, replay=nothing, teacher=teacher, loss="distillation")
    np.testing.assert_allclose(local_updates(examples, distilled), learnt, atol=1e-5)


def test_contrasted_a_head_brings_samples_of_one_label_together(world, told, remembered):
    examples, z, y = world.examples(1), *remembered
    alone = trained(examples, told())
    held = trained(examples, told(replay=remembered, weight=5.0, loss="contrastive"))
    for without, with_replay in zip(alone, held, strict=True):
        assert contrast(with_replay, z, y) < contrast(without, z, y) - 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_a_replay_that_counts_nothing_changes_nothing(world, told, remembered, loss):
    examples = world.examples(1)
    ignored = told(replay=remembered, teacher=head_of(seed=1), weight=0.0, loss=loss)
    np.testing.assert_array_equal(local_updates(examples, ignored), local_updates(examples, told()))


def test_the_three_losses_are_different(world, told, remembered):
    examples, common = world.examples(1), {"replay": remembered, "teacher": head_of(seed=1)}
    updates = [local_updates(examples, told(**common, loss=loss)) for loss in LOSSES]
    for one in range(3):
        assert not np.allclose(updates[one], updates[one - 1], atol=1e-3)


# -- what is changed -------------------------------------------------------------------------------


def test_an_update_has_a_place_for_every_parameter_that_is_trained(world, told):
    examples = world.examples(1)
    every = WIDTH * HIDDEN + HIDDEN + HIDDEN * 4 + 4
    assert local_updates(examples, told()).shape == (12, every)
    assert local_updates(examples, told(last_layer=True)).shape == (12, HIDDEN * 4 + 4)


def test_training_the_last_layer_changes_only_the_last_layer(world, told):
    told = told(last_layer=True)
    for head in trained(world.examples(1), told):
        np.testing.assert_array_equal(head.weights1, told.head.weights1)
        np.testing.assert_array_equal(head.bias1, told.head.bias1)
        assert not np.allclose(head.weights2, told.head.weights2, atol=1e-4)
        assert not np.allclose(head.bias2, told.head.bias2, atol=1e-4)


@pytest.mark.parametrize("last_layer", [False, True])
def test_an_applied_update_is_the_difference_that_was_made(told, last_layer):
    """Differences of heads, laid out as updates are, lead from one head to the other."""
    told, goal = told(last_layer=last_layer), head_of(seed=7)
    update = np.concatenate(
        [(getattr(goal, name) - getattr(told.head, name)).ravel() for name in told.parts]
    )
    reached = applied(told.head, update, told)
    for name in told.parts:
        np.testing.assert_allclose(getattr(reached, name), getattr(goal, name), atol=1e-6)
    back = applied(reached, -update, told)
    for name, array in vars(told.head).items():
        np.testing.assert_allclose(getattr(back, name), array, atol=1e-6)
        assert getattr(back, name).dtype == np.float32


def test_no_update_moves_the_head(told):
    told = told()
    still = applied(told.head, np.zeros(WIDTH * HIDDEN + HIDDEN + HIDDEN * 4 + 4), told)
    for name, array in vars(told.head).items():
        np.testing.assert_array_equal(getattr(still, name), array)


def test_labels_that_no_task_has_shown_are_left_alone(world, told):
    """Training must not push down the scores of labels that come with later tasks."""
    told = told(heard=np.array([True, True, True, False]))
    examples = world.examples(0)
    for head in trained(examples, told):
        np.testing.assert_array_equal(head.weights2[:, 3], told.head.weights2[:, 3])
        assert head.bias2[3] == told.head.bias2[3]
        assert head.bias2[2] < told.head.bias2[2]  # one that was shown earlier is unlearnt


@pytest.mark.parametrize("norm", [1e-3, 0.05, 100.0])
def test_an_update_is_clipped_as_one_vector(world, told, norm):
    examples = world.examples(1)
    raw = local_updates(examples, told())
    bounded = update_of(examples, update_ask(UpdateId(1, 0, 12), told(), norm))
    rows = bounded.grid.decode(bounded.rows(_SEAL))
    share = np.minimum(1.0, norm / np.linalg.norm(raw, axis=1))
    np.testing.assert_allclose(rows, raw * share[:, None], atol=2 * norm / 2**20)

"""FedTA†: what is local, what the server decides, and what comes out of it in a small world."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.errors import BudgetExceeded
from cslr.methods.fedta import learning
from cslr.methods.fedta.learning import RECIPE, begin, learn_task
from cslr.methods.fedta.local import AdapterTraining, Aim, contrast, train
from cslr.methods.fedta.parts import (
    Adapter,
    adapted,
    initial_adapter,
    initial_head,
    leading,
    one_of,
    read,
    scaled,
)
from cslr.methods.fedta.server import ClassMeans, Prototypes, candidates_of, choose, fuse
from cslr.methods.fedta.task_rows import rows_of
from cslr.methods.registry import METHODS
from cslr.seeding import Seeds

FAMILIES = ("classification", "intents", "tagging")
METHOD = METHODS["fedta"]
ONE_ROUND = replace(RECIPE, rounds=1, epochs=2)


@pytest.fixture
def make_context(make_context):
    """Runs of a method that reads rows openly."""
    return lambda *given, **more: replace(make_context(*given, **more), reads="openly")


def last(context):
    *_, stage = METHOD.stages(context)
    return stage()


def labels_of(scores: np.ndarray, family: str) -> np.ndarray:
    best = scores.argmax(axis=1)
    return (best + 1) // 2 if family == "tagging" else best


def with_rows(context, **changes):
    return replace(context, clients=replace(context.clients, **changes))


# --- a whole run ------------------------------------------------------------------------------


def test_there_is_a_stage_before_any_task_and_one_after_each(make_context):
    assert len(list(METHOD.stages(make_context()))) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_before_any_task_nothing_is_known_and_nobody_has_a_model(make_context, world, family):
    context = make_context(family=family)
    first = next(METHOD.stages(context))()
    scores = first.scores(world.test_z)
    assert scores.shape == (80, context.family.outputs)
    np.testing.assert_array_equal(scores, -np.inf)
    assert len(first.personal) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_both_tasks_are_known_at_the_end(make_context, world, family):
    found = labels_of(last(make_context(family=family)).scores(world.test_z), family)
    for task in range(2):
        mine = world.test_tasks == task
        assert np.mean(found[mine] == world.test_labels[mine]) > 0.8  # by chance 0.25


def test_personal_models_are_better_than_chance(make_context, world):
    right = [
        np.mean(scores(world.test_z).argmax(axis=1) == world.test_labels)
        for _, scores in last(make_context()).personal
    ]
    assert len(right) == 12
    assert np.mean(right) > 0.6


def test_tasks_of_one_class_are_told_apart_by_their_keys_alone(make_context, world):
    context = replace(make_context(), tasks=((0,), (1,), (2,), (3,)))
    context = with_rows(context, tasks=world.population.labels)
    found = last(context).scores(world.test_z).argmax(axis=1)
    assert np.mean(found == world.test_labels) > 0.7
    head = learn_task(context, ONE_ROUND, begin(context)).people[0].heads[0]
    assert head.weights2.shape == (1, 0, 1)  # no hidden units


def test_tasks_that_share_their_labels_have_slots_of_their_own(make_context, world):
    """Labels 0 and 2 become one, and so do 1 and 3; the tasks stay what they are."""
    context = replace(make_context(), tasks=((0, 1), (0, 1)))
    targets = np.eye(4, dtype=np.float32)[world.population.labels % 2]
    context = with_rows(context, labels=world.population.labels % 2, targets=targets)
    assert len(begin(context).prototypes.known) == 4
    scores = last(context).scores(world.test_z)
    np.testing.assert_array_equal(np.isfinite(scores).all(axis=0), [True, True, False, False])
    assert np.mean(scores.argmax(axis=1) == world.test_labels % 2) > 0.8


@pytest.mark.parametrize(
    ("family", "heard"),
    [
        ("classification", [True, True, False, False]),
        ("intents", [True, True, False, False]),
        ("tagging", [True, True, True, False, False, False, False]),
    ],
)
def test_labels_not_seen_yet_have_no_score(make_context, world, family, heard):
    _, after_one, _ = METHOD.stages(make_context(family=family))
    scores = after_one().scores(world.test_z)
    np.testing.assert_array_equal(np.isfinite(scores).all(axis=0), heard)
    np.testing.assert_array_equal(scores[:, ~np.array(heard)], -np.inf)


def test_a_client_is_silent_about_tasks_it_never_held(make_context, world):
    people = world.population
    only_first = np.where((people.clients == 3) & (people.tasks == 1), 4, people.clients)
    personal = dict(last(with_rows(make_context(), clients=only_first)).personal)
    finite = np.isfinite(personal[3](world.test_z)).all(axis=0)
    np.testing.assert_array_equal(finite, [True, True, False, False])
    assert np.isfinite(personal[4](world.test_z)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scores_are_those_of_the_mean_probability(make_context, world, family):
    learnt = last(make_context(family=family))

    def p(scores):
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-scores)) if family == "intents" else np.exp(scores)

    own = np.mean([p(scores(world.test_z)) for _, scores in learnt.personal], axis=0)
    np.testing.assert_allclose(p(learnt.scores(world.test_z)), own, rtol=1e-5, atol=1e-9)
    if family != "intents":
        np.testing.assert_allclose(own.sum(axis=1), 1.0, atol=1e-5)


def test_intents_of_a_text_are_said_yes_to_one_by_one(make_context, world):
    """Every third text of label 0 is of label 1 too, and both are of the first task."""
    context = make_context(family="intents")
    _, after_one, _ = METHOD.stages(context)
    scores = after_one().scores(world.population.z[world.population.labels == 0])
    share = (1 / (1 + np.exp(-scores[:, :2]))).mean(axis=0)
    assert share[0] > 0.8
    assert 0.2 < share[1] < 0.5


def test_the_same_seed_gives_the_same_answers_and_another_others(make_context, world):
    one, two, other = (last(make_context(seed=seed)).scores(world.test_z) for seed in (13, 13, 14))
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


def test_stages_may_be_called_alone_and_in_any_order(make_context, world):
    stages = list(METHOD.stages(make_context()))
    late, early = stages[2]().scores(world.test_z), stages[1]().scores(world.test_z)
    again = [stage().scores(world.test_z) for stage in METHOD.stages(make_context())]
    np.testing.assert_array_equal(early, again[1])
    np.testing.assert_array_equal(late, again[2])


def test_answers_are_about_the_rows_asked(make_context, world):
    """Cached predictions for one array are not returned for another."""
    learnt = last(make_context())
    all_, half = learnt.scores(world.test_z), learnt.scores(world.test_z[40:])
    np.testing.assert_allclose(half, all_[40:], rtol=1e-4, atol=1e-5)
    assert learnt.scores(world.test_z[:0]).shape == (0, 4)


def test_a_task_nobody_holds_teaches_nothing(make_context, world):
    context = with_rows(make_context(), tasks=np.zeros_like(world.population.tasks))
    scores = last(context).scores(world.test_z)
    np.testing.assert_array_equal(np.isfinite(scores).all(axis=0), [True, True, False, False])


# --- privacy ----------------------------------------------------------------------------------


def test_it_is_charged_as_infinite(make_context):
    context = make_context()
    next(METHOD.stages(context))
    for adversary in ("roster", "public"):
        assert context.ledger.epsilon("end_to_end", adversary) == math.inf
    assert [charge.label for charge in context.ledger.charges] == ["local training"]
    assert METHOD.reads == "openly"


def test_no_finite_budget_admits_it(make_context):
    with pytest.raises(BudgetExceeded, match="local training"):
        next(METHOD.stages(make_context(epsilon=100.0)))


# --- clients ----------------------------------------------------------------------------------


def others_changed(context, client: int):
    """The rows of everybody but ``client`` turned round, and some of them gone."""
    people = context.clients
    z = np.where((people.clients == client)[:, None], people.z, -people.z)
    gone = (people.clients != client) & (np.arange(len(z)) % 5 == 0)
    return with_rows(context, z=z, tasks=np.where(gone, 1, people.tasks))


@pytest.mark.parametrize("family", FAMILIES)
def test_before_the_server_speaks_a_client_depends_on_its_own_rows_alone(make_context, family):
    one = make_context(family=family)
    two = others_changed(one, client=5)
    first, second = (learn_task(s, ONE_ROUND, begin(s)).people for s in (one, two))
    for name, mine, same in zip(
        first[5].heads[0]._fields, first[5].heads[0], second[5].heads[0], strict=True
    ):
        torch.testing.assert_close(mine, same, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(first[5].adapter, second[5].adapter, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(first[4].heads[0].keys, second[4].heads[0].keys, atol=1e-2)


def test_after_the_server_has_spoken_a_client_depends_on_the_others(make_context):
    one = make_context()
    recipe = replace(ONE_ROUND, rounds=2)
    first, second = (
        learn_task(s, recipe, begin(s)).people[5] for s in (one, others_changed(one, client=5))
    )
    assert not torch.allclose(first.adapter.up, second.adapter.up, atol=1e-4)


def test_clients_trained_together_learn_what_each_learns_alone(make_context):
    """Also those that run out of rows while others go on."""
    recipe = AdapterTraining(rounds=1, epochs=3, batch=4, most=18, learning_rate=1e-3, key_rate=0.1)
    context = make_context()
    rows = rows_of(context, 0, leading(context.public))
    assert rows.sizes[0] > recipe.most > rows.sizes[-1]
    assert np.all(np.diff(rows.sizes) <= 0)
    aim = Aim(torch.randn(3, 48, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0]),
              negatives=True, weight=0.6)  # fmt: skip
    head = initial_head(rows.clients, 24, 2, 2, 512, Seeds(1))
    adapter = Adapter(*(part.repeat(12, 1, 1) for part in initial_adapter(24, Seeds(1))))
    together = train(rows, adapter, head, aim, recipe, Seeds(2))
    for place in (0, 6, 11):
        only = replace(rows, clients=rows.clients[place:][:1], held=rows.held[place:][:1])
        alone = train(only, one_of(adapter, place), one_of(head, place), aim, recipe, Seeds(2))
        for found, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(one_of(found, place), expected, rtol=1e-3, atol=1e-4)


def test_fused_adam_is_adam(make_context, monkeypatch):
    """It reads gradients in memory order, and those of keys are transposed."""
    context = make_context()
    plain = partial(torch.optim.Adam, weight_decay=1e-3)

    def parts():
        return learn_task(context, ONE_ROUND, begin(context)).people[5].heads[0]

    fused = parts()
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, **_: plain(groups))
    torch.testing.assert_close(fused, parts(), rtol=1e-4, atol=1e-4)


def test_keys_learn_to_be_near_the_rows_that_pick_them(make_context):
    context = make_context()
    rows = rows_of(context, 0, leading(context.public))
    person = learn_task(context, RECIPE, begin(context)).people[rows.clients[0]]
    x = rows.x[rows.held[0]][None]
    fresh = initial_head(rows.clients[:1], 24, 2, 2, 512, Seeds(13).under("fedta", 0))
    before, after = (read(person.adapter, head, x) for head in (fresh, person.heads[0]))
    assert after.similarity.mean() > before.similarity.mean() + 0.3


def test_an_epoch_takes_no_more_rows_than_allowed(make_context):
    """With one row per client and epoch there is one step, for any number of rows."""
    context = make_context()
    rows = rows_of(context, 0, leading(context.public))
    recipe = AdapterTraining(rounds=1, epochs=1, batch=4, most=1, learning_rate=1e-3, key_rate=1e-3)
    none = Aim(torch.zeros(0, 48), torch.tensor([-1, -1]), negatives=True, weight=0.6)
    head = initial_head(rows.clients, 24, 2, 2, 512, Seeds(1))
    adapter = Adapter(*(part.repeat(12, 1, 1) for part in initial_adapter(24, Seeds(1))))
    _, after = train(rows, adapter, head, none, recipe, Seeds(2))
    moved = (after.keys - head.keys).abs().amax()
    assert 0.9e-3 < moved < 1.1e-3  # a first step of Adam is as long as its rate


# --- reading ----------------------------------------------------------------------------------


def test_the_nearest_key_in_cosine_picks_the_anchor_whatever_the_lengths():
    head = initial_head([7], 3, 3, 2, 4, Seeds(0))
    keys = torch.tensor([[[100.0, 0.0, 0.0], [0.0, 0.01, 0.0], [0.0, 0.0, -1.0]]])
    head = head._replace(keys=keys)
    x = torch.tensor([[[0.5, 0.6, 0.0], [0.6, 0.5, 0.0], [0.0, 0.0, -2.0], [-1.0, 0.1, 0.1]]])
    reading = read(initial_adapter(3, Seeds(0)), head, x)
    assert reading.picked[0].argmax(dim=-1).tolist() == [1, 0, 2, 1]
    np.testing.assert_allclose(reading.similarity[0, :3], [0.768, 0.768, 1.0], atol=1e-3)
    torch.testing.assert_close(reading.tails(head)[0, :, 3:], head.anchors[0, [1, 0, 2, 1]])
    torch.testing.assert_close(reading.tails(head)[..., :3], x)  # no adapter yet


def test_the_head_is_a_perceptron_over_embedding_and_anchor():
    head = initial_head([1, 2], 6, 3, 4, 8, Seeds(3))
    adapter = Adapter(torch.ones(2, 6, 2), torch.full((2, 2, 6), 0.1))
    x = torch.from_numpy(Seeds(4).at("x").standard_normal((2, 5, 6)).astype(np.float32))
    reading = read(adapter, head, x)
    z = x + 0.1 * 2 * torch.relu(x.sum(dim=-1, keepdim=True))
    torch.testing.assert_close(reading.z, z)
    first = torch.cat([head.of_embedding, head.of_anchor], dim=1)
    kept = torch.tensor([True, False] * 4).expand(5, 8)
    hidden = torch.relu(reading.tails(head) @ first + head.bias1)
    expected = (hidden * kept * 2) @ head.weights2 + head.bias2
    torch.testing.assert_close(reading.logits(head, kept), expected)


def test_clients_have_slots_of_their_own_and_heads_that_begin_alike():
    head = initial_head([1, 2], 40, 30, 4, 8, Seeds(3))
    assert head.keys.abs().max() < 1.0
    assert head.keys.std() == pytest.approx(1 / math.sqrt(3), rel=0.05)
    assert head.anchors.std() == pytest.approx(1.0, rel=0.05)
    assert not torch.equal(head.keys[0], head.keys[1])
    assert torch.equal(head.of_anchor[0], head.of_anchor[1])
    again = initial_head([2], 40, 30, 4, 8, Seeds(3))
    assert torch.equal(head.keys[1], again.keys[0])


def test_embeddings_have_the_length_of_anchors():
    x = scaled(np.array([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), np.eye(4))
    torch.testing.assert_close(x, torch.tensor([[1.2, 1.6, 0.0, 0.0], [0.0] * 4]))


def test_the_leading_directions_are_those_of_public_sentences_with_settled_signs():
    public = random(60, 6, name="public").numpy() * np.array([1, 9, 2, 8, 3, 1], dtype=np.float32)
    found = leading(public, 2)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-6)
    assert sorted(np.abs(found).argmax(axis=0)) == [1, 3]
    np.testing.assert_allclose(leading(public[::-1], 2), found, atol=1e-5)
    np.testing.assert_array_equal(leading(public, 6), np.eye(6))


# --- prototypes -------------------------------------------------------------------------------


def random(*shape: int, name: str = "x") -> torch.Tensor:
    return torch.from_numpy(Seeds(5).at(name).standard_normal(shape).astype(np.float32))


def test_contrast_is_cross_entropy_over_cosines_and_an_attraction_in_the_last_round():
    tails, prototypes = random(2, 3, 8), random(4, 8, name="p")
    slots = torch.tensor([[0, 1, 0], [1, 1, 0]])
    aim = Aim(prototypes, torch.tensor([3, 1]), negatives=True, weight=1.0)
    cosines = functional.cosine_similarity(tails[:, :, None], prototypes, dim=-1)
    target = aim.of_slot[slots]
    expected = functional.cross_entropy(
        (cosines / 0.2).reshape(6, 4), target.reshape(6), reduction="none"
    )
    torch.testing.assert_close(contrast(tails, aim, slots).reshape(6), expected)
    alone = contrast(tails, replace(aim, negatives=False), slots)
    torch.testing.assert_close(alone, -cosines.gather(-1, target[..., None])[..., 0] / 0.2)


def test_a_class_without_a_prototype_is_not_drawn_anywhere():
    aim = Aim(random(4, 8, name="p"), torch.tensor([-1, 1]), negatives=True, weight=1.0)
    found = contrast(random(1, 2, 8), aim, torch.tensor([[0, 1]]))
    assert found[0, 0] == 0
    assert found[0, 1] > 0


def unit(*angles: float) -> torch.Tensor:
    return torch.tensor([[math.cos(a), math.sin(a)] for a in np.deg2rad(angles)]).float()


def nothing(slots: int) -> Prototypes:
    return Prototypes.none(slots, 1)


def test_the_candidate_least_like_the_other_classes_wins():
    """Class 0 at 0°, 40° and −10°; class 1 at 60° and 80°: −10° and 80° are farthest apart."""
    candidates = ClassMeans(2.0 * unit(0, 60, 40, 80, -10), torch.tensor([0, 1, 0, 1, 0]))
    after = choose(nothing(3), candidates, closing=False)
    torch.testing.assert_close(after.centres[:2], 2.0 * unit(-10, 80))
    assert after.known.tolist() == [True, True, False]
    # −10°: the mean cosine with 60° and 80° is 0.17; 80°: with 0°, 40° and −10° it is 0.31
    assert after.frozen.tolist() == [True, False, False]


def test_a_frozen_prototype_never_changes_and_others_are_chosen_anew():
    first = choose(
        nothing(3), ClassMeans(unit(-30, 60, 50), torch.tensor([0, 1, 1])), closing=False
    )
    assert first.frozen.tolist() == [True, True, False]
    first = replace(first, frozen=torch.tensor([True, False, False]))
    second = choose(first, ClassMeans(unit(-60, 70), torch.tensor([0, 1])), closing=False)
    torch.testing.assert_close(second.centres[:2], unit(-30, 70))


def test_prototypes_of_earlier_tasks_are_among_the_others():
    before = choose(nothing(2), ClassMeans(unit(90), torch.tensor([0])), closing=True)
    after = choose(before, ClassMeans(unit(80, 20), torch.tensor([1, 1])), closing=False)
    torch.testing.assert_close(after.centres, unit(90, 20))
    assert after.frozen.tolist() == [True, False]  # cos 70° is 0.34


def test_a_class_that_is_alone_is_frozen_at_once():
    after = choose(nothing(2), ClassMeans(unit(10, 20), torch.tensor([1, 1])), closing=False)
    assert after.frozen.tolist() == [False, True]


def test_at_the_end_of_a_task_all_classes_seen_are_frozen_and_no_others():
    candidates = ClassMeans(unit(0, 10), torch.tensor([0, 1]))
    assert choose(nothing(3), candidates, closing=False).frozen.tolist() == [False] * 3
    assert choose(nothing(3), candidates, closing=True).frozen.tolist() == [True, True, False]


@pytest.mark.parametrize("rounds", [1, 3])
def test_after_a_task_its_classes_are_frozen_and_the_next_leaves_them(make_context, world, rounds):
    """They are frozen although they are similar: all rows have a direction in common."""
    context = with_rows(make_context(), z=world.population.z + 2.0 / math.sqrt(24))
    recipe = replace(ONE_ROUND, rounds=rounds)
    first = learn_task(context, recipe, begin(context))
    assert first.prototypes.frozen.tolist() == [True, True, False, False]
    second = learn_task(context, recipe, first)
    assert second.prototypes.frozen.all()
    torch.testing.assert_close(second.prototypes.centres[:2], first.prototypes.centres[:2])
    assert second.prototypes.centres[2:].abs().sum(dim=1).min() > 0
    assert functional.cosine_similarity(*first.prototypes.centres[:2], dim=0) > 0.25


def test_contrast_waits_for_prototypes_and_ends_without_negatives(make_context, monkeypatch):
    context, told = make_context(), []

    def listening(rows, adapter, head, aim, recipe, seeds):
        told.append((aim.of_slot.tolist(), aim.negatives, round(aim.weight, 6)))
        return train(rows, adapter, head, aim, recipe, seeds)

    monkeypatch.setattr(learning, "train", listening)
    recipe = replace(ONE_ROUND, rounds=3)
    learn_task(context, recipe, learn_task(context, recipe, begin(context)))
    assert told[:3] == [([-1, -1], True, 0.6), ([0, 1], True, 0.6), ([0, 1], False, 0.6)]
    assert told[3:] == [([-1, -1], True, 0.6), ([2, 3], True, 0.6), ([2, 3], False, 0.6)]


def test_candidates_are_the_class_means_of_a_client(make_context):
    context = make_context()
    rows = rows_of(context, 1, leading(context.public))
    head = initial_head(rows.clients, 24, 2, 2, 0, Seeds(1))
    adapter = Adapter(*(part.repeat(12, 1, 1) for part in initial_adapter(24, Seeds(1))))
    found = candidates_of(rows, adapter, head, first=2)
    held = rows.held[3]
    mine = held[rows.slots[held].numpy() == 1]
    keys = functional.normalize(head.keys[3], dim=-1)
    anchors = head.anchors[3][(rows.x[mine] @ keys.T).argmax(dim=1)]
    expected = torch.cat([rows.x[mine], anchors], dim=1).mean(dim=0)
    place = (found.slots[:6] == 3).sum()  # clients 0, 1 and 2 hold both classes
    assert place == 3
    torch.testing.assert_close(found.centres[7], expected)
    assert set(found.slots.tolist()) == {2, 3}


# --- adapters ---------------------------------------------------------------------------------


def test_fusing_equal_adapters_changes_nothing():
    one = Adapter(random(1, 6, 4), random(1, 4, 6, name="u"))
    fused = fuse(Adapter(*(part.repeat(3, 1, 1) for part in one)), random(20, 6), Seeds(0))
    torch.testing.assert_close(fused, one, rtol=0, atol=5e-3)


def test_the_fused_adapter_does_what_the_clients_do_on_average():
    """Better than the average of their weights, from which it begins."""
    adapters = Adapter(0.3 * random(4, 6, 8), 0.3 * random(4, 8, 6, name="u"))
    anchors = random(200, 6)
    wanted = adapted(adapters, anchors[None]).mean(dim=0)

    def error(adapter: Adapter) -> float:
        return float((adapted(adapter, anchors[None])[0] - wanted).square().mean())

    average = Adapter(*(part.mean(dim=0, keepdim=True) for part in adapters))
    fused = fuse(adapters, anchors, Seeds(0))
    assert error(fused) < 0.9 * error(average)
    assert all(error(fused) < error(one_of(adapters, client)) for client in range(4))

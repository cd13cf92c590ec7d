"""Gradient rounds: what a unit answers, and how far the server follows a noisy gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.privacy.values import _SEAL, STEPS
from cslr.protocol.head import Family
from cslr.protocol.messages import answer
from cslr.protocol.ports import Examples
from cslr.protocol.step5_rounds import (
    DAMPING,
    LinearRule,
    LinearSpace,
    NoisyGradient,
    trained_outputs,
)
from cslr.protocol.updates import UpdateId, update_ask

CLIP = 0.3
WIDE = 1e3
FAMILIES = ("classification", "intents", "tagging")
EXACT = NoisyGradient(noise=0.0, units=1e12, rounds=1)


@pytest.fixture
def rule(world):
    return LinearRule.start(LinearSpace.of(world.public), world.family(), world.texts)


def rule_of(world, family) -> LinearRule:
    return LinearRule.start(LinearSpace.of(world.public), world.family(family), world.texts)


def asked(rule: LinearRule, norm: float = CLIP):
    return update_ask(UpdateId(0, 0, 12), rule.question(), norm)


def only(examples: Examples, unit: int, rows: int | None = None) -> Examples:
    """One unit's examples by themselves, without the padding of the others."""
    n = int(examples.mask[unit].sum()) if rows is None else rows
    targets = None if examples.targets is None else examples.targets[unit : unit + 1, :n]
    return Examples(
        examples.z[unit : unit + 1, :n],
        examples.labels[unit : unit + 1, :n],
        examples.mask[unit : unit + 1, :n],
        (examples.clients[unit],),
        targets,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_is_the_gradient_that_autograd_finds(world, family):
    rule, examples = rule_of(world, family), world.told(family).examples(0)
    found = rule.question().updates(examples)
    for unit in range(3):
        alone = only(examples, unit)
        weights = torch.tensor(rule.weights, requires_grad=True)
        scores = torch.tensor(rule.space.inputs(alone.z[0])) @ weights
        y = torch.tensor(alone.targets[0], dtype=torch.float64)
        if family == "intents":
            y = (y > 0).double()
            loss = functional.binary_cross_entropy_with_logits(scores, y, reduction="sum")
        else:
            each = functional.cross_entropy(scores, y, reduction="none")
            # Publicly four words of five are O, and count as much as the fifth.
            outside = y[:, 0] if family == "tagging" else torch.zeros(len(y))
            loss = (each * (1 - 0.75 * outside)).sum()
        n = len(y)
        (loss / (math.sqrt(n) if family == "tagging" else n)).backward()
        np.testing.assert_allclose(found[unit], weights.grad.numpy().ravel(), atol=1e-10)


def test_a_task_of_some_types_trains_their_columns_against_the_words_outside(world):
    """The softmax is over O and the task's tags, words of other types do not count, O stays."""
    rule, examples = rule_of(world, "tagging"), world.told("tagging").examples(0)
    outputs, trained = [0, 3, 4], [3, 4]
    found = rule.question((0, 2)).updates(examples)
    seen = 0
    for unit in range(len(found)):
        alone = only(examples, unit)
        y = torch.tensor(alone.targets[0], dtype=torch.float64)[:, outputs]
        weights = torch.tensor(rule.weights[:, outputs], requires_grad=True)
        scores = torch.tensor(rule.space.inputs(alone.z[0])) @ weights
        loss = (functional.cross_entropy(scores, y, reduction="none") * (1 - 0.75 * y[:, 0])).sum()
        (loss / math.sqrt(len(y))).backward()
        np.testing.assert_allclose(found[unit], weights.grad[:, 1:].numpy().ravel(), atol=1e-10)
        seen += int(y[:, 0].sum() < len(y) - y[:, 1:].sum())
    assert seen  # units with words of other types
    moved = rule.moved(found.mean(axis=0), EXACT, trained_outputs(rule.family, (0, 2)))
    changed = (moved.mean != rule.mean).any(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(changed), trained)
    for name in ("unknown", "noise"):
        before, after = getattr(rule, name), getattr(moved, name)
        np.testing.assert_array_equal(np.delete(after, trained, 1), np.delete(before, trained, 1))
    assert (moved.unknown[:, trained] < rule.unknown[:, trained]).all()


def test_each_column_has_a_filter_of_its_own(world):
    """With noise: trained columns move as if all were trained, and the others stay in all parts."""
    rule, trained = rule_of(world, "tagging"), trained_outputs(Family("tagging", 4), (0, 2))
    measured = NoisyGradient(noise=1e-3, units=50.0, rounds=15)
    first, second = np.random.default_rng(3).standard_normal((2, *rule.mean.shape))
    rule = rule.moved(first[:, :2].ravel(), measured, np.array([1, 2]))
    assert (rule.noise[:, 1:3] > 0).all()
    assert not np.delete(rule.noise, [1, 2], axis=1).any()
    rule = rule.moved(first.ravel(), measured)
    whole = rule.moved(second.ravel(), measured)
    part = rule.moved(second[:, trained].ravel(), measured, trained)
    for name in ("mean", "unknown", "noise"):
        before, after, wanted = (getattr(each, name) for each in (rule, part, whole))
        np.testing.assert_allclose(after[:, trained], wanted[:, trained], rtol=1e-12)
        np.testing.assert_array_equal(np.delete(after, trained, 1), np.delete(before, trained, 1))


@pytest.mark.parametrize("labels", [(0,), (0, 1), (2, 3), (0, 1, 2, 3)])
def test_a_gradient_has_the_announced_size(world, labels):
    """Nodes and server compute the size from the question, before anybody has answered."""
    question = rule_of(world, "tagging").question(labels)
    examples = world.told("tagging").examples(0)
    assert question.updates(examples).shape == (len(examples.z), question.size)


def test_words_of_other_types_alone_answer_with_zeros(world):
    """They are not taken for words outside names: earlier and later tasks have their types."""
    rule, examples = rule_of(world, "tagging"), world.told("tagging").examples(0)
    other = np.zeros_like(examples.targets)
    other[..., 1] = 1.0
    assert not rule.question((0, 2)).updates(replace(examples, targets=other)).any()
    assert rule.question((0, 1)).updates(replace(examples, targets=other)).any()


@pytest.mark.parametrize(
    ("family", "labels", "expected"),
    [
        ("tagging", (0, 1, 2, 3), [0, 1, 2, 3, 4, 5, 6]),
        ("tagging", (1, 2, 3), [0, 1, 2, 3, 4, 5, 6]),  # O is a label of every task
        ("tagging", (0, 1, 3), [1, 2, 5, 6]),
        ("classification", (0, 1, 2, 3), [0, 1, 2, 3]),
        ("intents", (3, 2, 1, 0), [0, 1, 2, 3]),
        ("classification", (1, 2), [0, 1, 2, 3]),
    ],
)
def test_in_tagging_alone_a_task_trains_the_columns_of_its_own_types(family, labels, expected):
    np.testing.assert_array_equal(trained_outputs(Family(family, 4), labels), expected)


def test_targets_of_a_text_are_its_label_where_none_are_given(world, rule):
    plain, told = world.examples(0), world.told("classification").examples(0)
    assert plain.targets is None
    assert told.targets is not None
    np.testing.assert_allclose(rule.question().updates(plain), rule.question().updates(told))


def test_a_unit_without_rows_answers_with_zeros(world, rule):
    examples = world.examples(0)
    nobody = replace(examples, mask=np.zeros_like(examples.mask))
    assert not rule.question().updates(nobody).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_alone_is_the_answer_in_a_batch_to_the_integer(world, family):
    rule, examples = rule_of(world, family), world.told(family).examples(0)
    together = answer(examples, asked(rule)).rows(_SEAL)
    for unit in range(len(examples.clients)):
        np.testing.assert_array_equal(
            answer(only(examples, unit), asked(rule)).rows(_SEAL)[0], together[unit]
        )


def test_rows_of_others_change_nothing_in_an_answer(world, rule):
    examples = world.examples(0)
    before = answer(examples, asked(rule)).rows(_SEAL)
    z = examples.z.copy()
    z[1:] *= -3.0
    after = answer(replace(examples, z=z), asked(rule)).rows(_SEAL)
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1:] != after[1:]).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_no_rows_at_all_make_an_answer_longer_than_the_clip(world, family):
    """Brute force: rows of any size under any labels, and a rule that is wrong about all."""
    rule, rng = rule_of(world, family), np.random.default_rng(0)
    rule = replace(rule, mean=rule.mean * 50)
    for size in (1e-3, 1.0, 1e4):
        examples = world.told(family).examples(0)
        far = replace(examples, z=size * rng.standard_normal(examples.z.shape))
        rows = answer(far, asked(rule)).rows(_SEAL).astype(object)
        lengths = [math.sqrt(sum(int(v) ** 2 for v in row)) for row in rows]
        assert max(lengths) <= STEPS
    assert max(lengths) > 0.999 * STEPS  # and the clip is what holds them


def test_the_zero_shot_rule_answers_as_the_nearest_label_text(world, rule):
    nearest = (
        (world.test_z - rule.space.centre) @ _unit(world.texts - rule.space.centre).T
    ).argmax(1)
    np.testing.assert_array_equal(rule.head().scores(world.test_z).argmax(axis=1), nearest)


def _unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_of_two_layers_says_what_the_rule_says(world, family):
    rule = rule_of(world, family)
    rng = np.random.default_rng(1)
    rule = replace(rule, mean=rule.mean + rng.standard_normal(rule.mean.shape))
    wanted = rule.space.inputs(world.test_z) @ rule.weights
    np.testing.assert_allclose(rule.head().scores(world.test_z), wanted, atol=1e-4)


def test_without_label_texts_a_rule_begins_undecided(world):
    rule = LinearRule.start(LinearSpace.of(world.public), world.family(), None)
    assert not rule.mean.any()


def test_in_tagging_a_rule_begins_with_most_words_outside(world):
    rule = rule_of(world, "tagging")
    at_centre = rule.head().scores(rule.space.centre[None])[0]
    assert at_centre.argmax() == 0
    np.testing.assert_allclose(at_centre[1:], at_centre[1], atol=1e-4)


def test_without_noise_a_step_is_a_damped_newton_step_on_the_public_covariance(world, rule):
    rng = np.random.default_rng(0)
    gradient = rng.standard_normal(rule.weights.shape)
    sure = replace(EXACT, rounds=0)
    moved = rule.moved(gradient.ravel(), sure)
    covariance = (rule.space.directions * rule.space.variance[:-1]) @ rule.space.directions.T
    step = np.linalg.solve(covariance, gradient[:-1]) / (0.25 * (1 + DAMPING))
    np.testing.assert_allclose(moved.weights[:-1], rule.weights[:-1] - step, rtol=1e-6, atol=1e-8)


def test_the_more_noise_the_shorter_the_step(rule):
    gradient = np.ones(rule.mean.size)
    lengths = []
    for noise in (0.0, 1e-6, 1e-3, 1.0, 1e3):
        moved = rule.moved(gradient, NoisyGradient(noise, 400.0, 15))
        lengths.append(float(np.linalg.norm(moved.mean - rule.mean)))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 1e-3 * lengths[0]


@pytest.mark.parametrize("units", [5.0, 20.0, 50.0])
def test_a_weak_signal_leaves_the_rule_near_where_it_began(world, units):
    """The total movement under pure noise is small relative to the rule."""
    multiplier, rng = 4.0, np.random.default_rng(0)
    space = LinearSpace.of(world.public)
    rule = moved = LinearRule.start(space, world.family(), world.texts, units / multiplier)
    noise = (multiplier * math.sqrt(15) * CLIP / units) ** 2
    for _ in range(75):
        drawn = math.sqrt(noise) * rng.standard_normal(rule.mean.size)
        moved = moved.moved(drawn, NoisyGradient(noise, units, 15))
    assert np.linalg.norm(moved.mean - rule.mean) < 0.25 * np.linalg.norm(rule.mean)


def test_the_weaker_the_signal_the_less_is_expected_of_the_rows(world):
    space = LinearSpace.of(world.public)
    expected = [
        LinearRule.start(space, world.family(), world.texts, signal).unknown.sum()
        for signal in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, math.inf)
    ]
    assert all(np.diff(expected) > 0)
    assert expected[2] < 1e-5 * expected[-1]


def test_without_any_unit_nothing_is_expected_and_the_rule_stays_where_it_began(world):
    space = LinearSpace.of(world.public)
    rule = LinearRule.start(space, world.family(), world.texts, signal=0.0)
    moved = rule.moved(np.ones(rule.mean.size), NoisyGradient(1.0, 1.0, 15))
    np.testing.assert_allclose(moved.mean, rule.mean, atol=1e-12)


def test_what_is_unknown_shrinks_with_every_gradient_and_stays_positive(rule):
    moved = rule
    for _ in range(20):
        after = moved.moved(np.zeros(rule.mean.size), NoisyGradient(1e-4, 400.0, 15))
        assert (after.unknown < moved.unknown).all()
        assert (after.unknown > 0).all()
        moved = after


def test_many_steps_without_noise_reach_the_least_loss(world, rule):
    examples = world.examples(0)
    x = rule.space.inputs(examples.z)

    def loss(at: LinearRule) -> float:
        scores = torch.tensor(x @ at.weights).flatten(0, 1)
        each = functional.cross_entropy(
            scores, torch.tensor(examples.labels).flatten(), reduction="none"
        )
        mask = examples.mask / examples.mask.sum(axis=1, keepdims=True) / len(examples.mask)
        return float((each.numpy() * mask.ravel()).sum())

    moved, losses = rule, [loss(rule)]
    for _ in range(30):
        moved = moved.moved(moved.question().updates(examples).mean(axis=0), EXACT)
        losses.append(loss(moved))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.2 * losses[0]


def test_the_space_is_that_of_public_text_alone(world):
    space = LinearSpace.of(world.public)
    x = space.inputs(world.public)[:, :-1] @ space.directions
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    found = (x.T @ x) / len(x)
    np.testing.assert_allclose(
        np.maximum(np.diag(found), space.variance[:-1].min()), space.variance[:-1]
    )
    assert np.trace(found) == pytest.approx(1.0)


def test_intents_begin_as_rare_as_their_number_says(world):
    family = Family("intents", len(world.texts))
    rule = LinearRule.start(LinearSpace.of(world.public), family, None)
    at_centre = rule.head().scores(rule.space.centre[None])[0]
    np.testing.assert_allclose(1 / (1 + np.exp(-at_centre)), 0.25, atol=1e-5)


def test_a_rule_that_noise_moved_answers_as_it_began(rule):
    """A movement as long as its noise is removed; without noise all of it is kept."""
    rng = np.random.default_rng(3)
    plain = rng.normal(size=rule.mean.size)
    exact = rule.moved(plain, EXACT)
    np.testing.assert_allclose(exact.without_noise().mean, exact.mean)
    np.testing.assert_array_equal(rule.without_noise().mean, rule.mean)
    noisy = rule.moved(plain, NoisyGradient(noise=1.0, units=1e12, rounds=1))
    kept = noisy.without_noise().mean
    assert np.linalg.norm((kept - rule.mean)[:-1]) < 0.5 * np.linalg.norm(
        (noisy.mean - rule.mean)[:-1]
    )
    louder = rule.moved(0.1 * plain, NoisyGradient(noise=1.0, units=1e12, rounds=1))
    np.testing.assert_array_equal(louder.without_noise().mean[:-1], rule.mean[:-1])
    np.testing.assert_array_equal(louder.without_noise().mean[-1], louder.mean[-1])


def test_the_noise_left_in_a_rule_is_what_repeated_draws_of_it_show(rule):
    """Two gradients without signal: the variance of where they lead, direction by direction."""
    rng, ends = np.random.default_rng(4), []
    measured = NoisyGradient(noise=1e-3, units=1e12, rounds=2)
    for _ in range(400):
        moved = rule
        for _ in range(2):
            pull = 0.25 * rule.space.variance[:, None] * (moved.mean - rule.mean)
            turned = pull + np.sqrt(1e-3) * rng.normal(size=rule.mean.shape)
            plain = np.concatenate([rule.space.directions @ turned[:-1], turned[-1:]])
            moved = moved.moved(plain.ravel(), measured)
        ends.append(moved.mean - rule.mean)
    found = np.square(ends).mean(axis=0)
    np.testing.assert_allclose(found.sum(axis=0), moved.noise.sum(axis=0), rtol=0.15)


def test_a_turned_rule_begins_where_it_was_turned_to(rule):
    turned = rule.turned(np.random.default_rng(5).normal(size=rule.mean[:-1].T.shape))
    np.testing.assert_array_equal(turned.without_noise().mean, turned.mean)


@pytest.mark.parametrize("length", [1e-3, 1.0, 50.0])
def test_a_turned_rule_is_as_long_as_it_was_and_keeps_its_biases(rule, length):
    """Only the directions of the other rule are taken over, not how sure it was."""
    columns = length * np.random.default_rng(5).normal(size=rule.mean[:-1].T.shape)
    turned = rule.turned(columns)
    assert np.linalg.norm(turned.mean[:-1]) == pytest.approx(np.linalg.norm(rule.mean[:-1]))
    np.testing.assert_array_equal(turned.mean[-1], rule.mean[-1])
    same = rule.turned(columns / length)
    np.testing.assert_allclose(turned.mean, same.mean)
    along = turned.mean[:-1].ravel() @ (columns @ rule.space.directions).T.ravel()
    assert along == pytest.approx(np.linalg.norm(turned.mean[:-1]) * np.linalg.norm(columns))


def test_a_label_text_gives_a_direction_and_not_a_length(world, rule):
    """Label texts are about the public centre; how far they lie from it says nothing."""
    near = rule.space.centre + 0.01 * (world.texts - rule.space.centre)
    again = LinearRule.start(rule.space, rule.family, near)
    np.testing.assert_allclose(again.mean, rule.mean, atol=1e-9)

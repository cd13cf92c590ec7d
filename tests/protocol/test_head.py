"""The two-layer head: plain arrays, trained as torch would train it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.protocol.head import Head, HeadSettings, initial_head, train_head

SETTINGS = HeadSettings(hidden=10, learning_rate=1e-2, batch=16)


def start(labels: int = 3, seed: int = 0) -> Head:
    return initial_head(12, labels, SETTINGS, np.random.default_rng(seed))


def classes(n: int = 90, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, one-hot targets and labels of three separated classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    z = 0.3 * rng.standard_normal((n, 12)) + 2.0 * np.eye(12)[labels]
    return z.astype(np.float32), np.eye(3, dtype=np.float32)[labels], labels


def same(one: Head, two: Head) -> bool:
    return all(np.array_equal(array, getattr(two, name)) for name, array in vars(one).items())


def cross_entropy(head: Head, z: np.ndarray, targets: np.ndarray) -> float:
    scores = head.scores(z)
    log_share = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-(targets * log_share).sum(axis=1).mean())


def test_numpy_scores_are_what_torch_computes():
    head, (z, _, _) = start(), classes()
    weights1, bias1, weights2, bias2 = (torch.from_numpy(array) for array in vars(head).values())
    expected = torch.relu(torch.from_numpy(z) @ weights1 + bias1) @ weights2 + bias2
    np.testing.assert_allclose(head.scores(z), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_head_scores_nothing_at_all_for_no_rows():
    assert start().scores(np.zeros((0, 12))).shape == (0, 3)


def test_an_initial_head_stays_within_one_over_the_root_of_fan_in():
    head = initial_head(100, 5, HeadSettings(hidden=25), np.random.default_rng(0))
    assert [a.shape for a in vars(head).values()] == [(100, 25), (25,), (25, 5), (5,)]
    assert np.abs(head.weights1).max() == pytest.approx(0.1, rel=0.02)
    assert np.abs(head.weights2).max() == pytest.approx(0.2, rel=0.05)
    assert all(array.dtype == np.float32 for array in vars(head).values())


def test_the_same_stream_gives_the_same_initial_head():
    assert same(start(), start())
    assert not same(start(), start(seed=1))


def test_training_is_deterministic_and_depends_on_its_stream():
    z, targets, _ = classes()
    one, two, other = (
        train_head(start(), [(z, targets)] * 3, SETTINGS, np.random.default_rng(seed))
        for seed in (5, 5, 6)
    )
    assert same(one, two)
    assert not same(one, other)


def trained_by_torch(begin: Head, passes, settings: HeadSettings, rng) -> Head:
    """The same training by autograd and torch's own Adam."""
    weights = [torch.tensor(array, requires_grad=True) for array in vars(begin).values()]
    optimizer = torch.optim.Adam(weights, lr=settings.learning_rate)
    each, against = functional.binary_cross_entropy_with_logits, functional.cross_entropy
    for z, targets in passes:
        order = rng.permutation(len(z))
        for first in range(0, len(z), settings.batch):
            batch = order[first : first + settings.batch]
            logits = torch.relu(torch.tensor(z[batch]) @ weights[0] + weights[1])
            logits = logits @ weights[2] + weights[3]
            loss = (each if settings.sigmoid else against)(logits, torch.tensor(targets[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Head(*(array.detach().numpy() for array in weights))


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_training_gives_the_weights_that_torch_gives(sigmoid, scale):
    """Within rounding: 1e-6 of the largest weight, also where targets add up to less than one.

    Adam divides a gradient by its own size, so one that is zero but for rounding moves a weight by
    as much as any other: a few weights may differ by more, and none by more than one step.
    """
    settings = HeadSettings(hidden=32, learning_rate=1e-3, batch=64, sigmoid=sigmoid)
    rng = np.random.default_rng(8)
    labels = rng.integers(5, size=300)
    z = (rng.standard_normal((300, 48)) / 4 + np.eye(48)[labels]).astype(np.float32)
    targets = (scale * np.eye(5)[labels]).astype(np.float32)
    begin = initial_head(48, 5, settings, np.random.default_rng(1))
    ours, theirs = (
        train(begin, [(z, targets)] * 8, settings, np.random.default_rng(2))
        for train in (train_head, trained_by_torch)
    )
    for name, array in vars(theirs).items():
        apart = np.abs(getattr(ours, name) - array)
        assert np.quantile(apart, 0.999) < 1e-6 * np.abs(array).max()
        assert apart.max() < settings.learning_rate
    np.testing.assert_allclose(ours.scores(z), theirs.scores(z), atol=1e-5)


def test_a_head_learns_separated_classes():
    z, targets, labels = classes()
    head = train_head(start(), [(z, targets)] * 20, SETTINGS, np.random.default_rng(5))
    fresh, _, _ = classes(seed=2)
    assert np.mean(head.scores(fresh).argmax(axis=1) == labels) > 0.95
    assert cross_entropy(head, z, targets) < 0.2 * cross_entropy(start(), z, targets)


def test_soft_targets_are_learnt_as_shares():
    z, _, _ = classes()
    targets = np.tile(np.array([[0.7, 0.2, 0.1]], dtype=np.float32), (len(z), 1))
    head = train_head(start(), [(z, targets)] * 60, SETTINGS, np.random.default_rng(5))
    scores = head.scores(z)
    share = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(share.mean(axis=0), [0.7, 0.2, 0.1], atol=0.05)


def test_outputs_answered_one_by_one_are_learnt_as_frequencies():
    z, _, _ = classes()
    targets = np.tile(np.array([[0.9, 0.6, 0.1]], dtype=np.float32), (len(z), 1))
    one_by_one = replace(SETTINGS, sigmoid=True)
    head = train_head(start(), [(z, targets)] * 60, one_by_one, np.random.default_rng(5))
    found = 1 / (1 + np.exp(-head.scores(z)))
    np.testing.assert_allclose(found.mean(axis=0), [0.9, 0.6, 0.1], atol=0.05)


def test_answered_one_by_one_several_outputs_may_be_right_at_once():
    z, targets, labels = classes()
    targets[labels == 0, 1] = 1.0
    one_by_one = replace(SETTINGS, sigmoid=True)
    head = train_head(start(), [(z, targets)] * 60, one_by_one, np.random.default_rng(5))
    assert np.mean((head.scores(z) > 0) == (targets > 0)) > 0.95


def test_the_first_step_is_adams_on_the_gradient_of_the_cross_entropy():
    # Adam's first step is lr · sign(gradient), here against central differences.
    z, targets, _ = classes(n=12)
    head = start()
    trained = train_head(head, [(z, targets)], SETTINGS, np.random.default_rng(0))
    step = trained.bias2 - head.bias2
    for k in range(3):
        shift = np.zeros(3)
        shift[k] = 1e-3
        up, down = (
            cross_entropy(
                Head(head.weights1, head.bias1, head.weights2, head.bias2 + s * shift), z, targets
            )
            for s in (1, -1)
        )
        assert step[k] == pytest.approx(-SETTINGS.learning_rate * np.sign(up - down), rel=1e-3)


def test_the_head_one_starts_from_is_left_as_it_was():
    z, targets, _ = classes()
    head = start()
    train_head(head, [(z, targets)], SETTINGS, np.random.default_rng(5))
    assert same(head, start())


def test_without_passes_the_head_stays_where_it_is():
    assert same(train_head(start(), [], SETTINGS, np.random.default_rng(0)), start())


def test_every_pass_is_reported():
    z, targets, _ = classes(n=20)
    told = []
    train_head(
        start(), [(z, targets)] * 4, SETTINGS, np.random.default_rng(0), lambda: told.append(1)
    )
    assert len(told) == 4

"""Gradients of the losses beside autograd, and Adam on stacked arrays beside torch's steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.protocol.head import (
    BLOCK,
    Adam,
    contrast_slope,
    cross_entropy_slope,
    sigmoid,
    softmax,
)

HEADS, ROWS, OUTPUTS = 3, 12, 5


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return 3.0 * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_the_cross_entropys_gradient_is_autograds(one_by_one, shared):
    """Targets of every head, or one set for all; they need not be distributions."""
    wanted = np.abs(numbers(*(() if shared else (HEADS,)), ROWS, OUTPUTS, seed=1)) / 5
    scores = torch.tensor(numbers(HEADS, ROWS, OUTPUTS), requires_grad=True)
    target = torch.tensor(wanted).expand_as(scores)
    if one_by_one:
        loss = functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
        loss = loss.mean(dim=(-1, -2)).sum()
    else:
        loss = -(target * torch.log_softmax(scores, -1)).sum(-1).mean(-1).sum()
    loss.backward()
    ours = cross_entropy_slope(scores.detach().numpy(), wanted, one_by_one)
    np.testing.assert_allclose(ours, scores.grad.numpy(), atol=1e-7)


def test_the_contrastive_gradient_is_autograds():
    labels = np.arange(ROWS) % 3
    labels[-1] = 9  # the only one of its label
    hidden = torch.tensor(np.maximum(numbers(HEADS, ROWS, 8), 0), requires_grad=True)
    unit = functional.normalize(hidden, dim=-1)
    itself = torch.eye(ROWS, dtype=torch.bool)
    alike = (unit @ unit.transpose(-1, -2) / 0.2).masked_fill(itself, -1e9)
    same = torch.tensor(labels[:, None] == labels) & ~itself
    shares = (torch.log_softmax(alike, -1) * same).sum(-1) / same.sum(-1).clamp(min=1)
    (-shares.mean(-1)).sum().backward()
    ours = contrast_slope(hidden.detach().numpy(), labels, 0.2)
    np.testing.assert_allclose(ours, hidden.grad.numpy(), atol=1e-6)


def test_answers_far_from_zero_neither_overflow_nor_vanish():
    scores = np.array([-1e4, -80.0, 0.0, 80.0, 1e4], dtype=np.float32)
    np.testing.assert_allclose(sigmoid(scores), torch.sigmoid(torch.tensor(scores)), rtol=1e-6)
    assert sigmoid(scores)[1] > 0
    np.testing.assert_array_equal(softmax(scores), [0, 0, 0, 0, 1])


def gradients(step: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_steps_are_torchs_to_the_last_few_bits():
    shapes = ((7, BLOCK // 5), (3,))  # more than one block
    start = gradients(100, *shapes)
    adam = Adam(start, 1e-2)
    theirs = [torch.tensor(array, requires_grad=True) for array in start]
    optimizer = torch.optim.Adam(theirs, lr=1e-2)
    for step in range(30):
        for ours, parameter, gradient in zip(
            adam.gradients, theirs, gradients(step, *shapes), strict=True
        ):
            ours[:] = gradient
            parameter.grad = torch.tensor(gradient)
        adam.step()
        optimizer.step()
    for ours, parameter in zip(adam.parameters, theirs, strict=True):
        np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=1e-6, atol=5e-7)


def test_a_stacked_array_moves_as_it_would_alone():
    start = gradients(0, (4, 6))
    stacked, alone = Adam(start, 1e-2), Adam([start[0][2]], 1e-2)
    for step in range(5):
        (slope,) = gradients(step, (4, 6))
        stacked.gradients[0][:], alone.gradients[0][:] = slope, slope[2]
        stacked.step()
        alone.step()
    np.testing.assert_array_equal(stacked.parameters[0][2], alone.parameters[0])


def moved(adam: Adam, steps: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Where so many steps lead."""
    for step in range(steps):
        for ours, gradient in zip(adam.gradients, gradients(step, *shapes), strict=True):
            ours[:] = gradient
        adam.step()
    return [array.copy() for array in adam.parameters]


def test_after_a_restart_no_earlier_step_is_remembered():
    shapes = ((4, 6), (3,))
    used, start = Adam(gradients(1, *shapes), 1e-2), gradients(2, *shapes)
    moved(used, 5, *shapes)
    used.restart(start)
    fresh = moved(Adam(start, 1e-2), 3, *shapes)
    for one, other in zip(moved(used, 3, *shapes), fresh, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_a_gradient_nothing_moves_and_the_start_is_left_alone():
    (start,) = gradients(0, (5,))
    adam = Adam([start], 1.0)
    adam.step()
    np.testing.assert_array_equal(adam.parameters[0], start)
    adam.gradients[0][:] = 1.0
    before = start.copy()
    adam.step()
    np.testing.assert_array_equal(start, before)
    assert (adam.parameters[0] < start).all()

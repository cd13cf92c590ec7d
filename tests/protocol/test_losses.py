"""Gradients of the losses, beside autograd of the same losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from cslr.protocol.losses import contrast_slope, cross_entropy_slope, sigmoid, softmax

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

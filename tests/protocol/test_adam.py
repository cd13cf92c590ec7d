"""Adam on stacked arrays: torch's steps, and every array by itself."""

from __future__ import annotations

import numpy as np
import torch

from cslr.protocol.adam import BLOCK, Adam


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

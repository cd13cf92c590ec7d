"""Majority: the best constant answer among the labels seen. Learns from no client: ε = 0.

The constant is picked with the evaluation labels in hand, so no other constant does better.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.methods.method import Fitted, Method, MethodContext, Stages

__all__ = ["METHOD"]


def stages(context: MethodContext) -> Stages:
    """The best constant after each task."""
    for tasks in range(len(context.tasks) + 1):
        yield partial(_after, context, tasks)


def _after(context: MethodContext, tasks: int) -> Fitted:
    # Mean over the tasks seen so far of each label's share of a task's rows.
    shares = context.test_shares[:tasks].sum(axis=0)
    scores = np.where(context.seen(tasks), shares, -np.inf)[context.family.label_of_output()]

    def constant(z: FloatArray) -> FloatArray:
        return np.tile(scores, (len(z), 1))

    return Fitted(constant)


METHOD: Final = Method(stages, reads="nothing", meaning="best constant", keeps_head=False)

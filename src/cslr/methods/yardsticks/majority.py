"""Majority: the best constant answer among the labels seen. Learns from no client: ε = 0.

The constant is picked with the evaluation labels in hand, so no other constant does better.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.methods.method import Learnt, Method, Setting, Stages

__all__ = ["METHOD"]


def stages(setting: Setting) -> Stages:
    """The best constant after each task."""
    for tasks in range(len(setting.tasks) + 1):
        yield partial(_after, setting, tasks)


def _after(setting: Setting, tasks: int) -> Learnt:
    # Mean over the tasks seen so far of each label's share of a task's rows.
    shares = setting.test_shares[:tasks].sum(axis=0)
    scores = np.where(setting.seen(tasks), shares, -np.inf)[setting.family.label_of_output()]

    def constant(z: FloatArray) -> FloatArray:
        return np.tile(scores, (len(z), 1))

    return Learnt(constant)


METHOD: Final = Method(stages, reads="nothing", meaning="best constant", keeps_head=False)

"""Joint†: pooled, non-private training on all tasks so far: the ceiling."""

from __future__ import annotations

from functools import partial
from typing import Final

from cslr.methods.method import Learnt, Method, Setting, Stages, head_on_rows, learnt_by
from cslr.privacy.accounting import Charge

__all__ = ["METHOD"]

STEPS = 200


def stages(setting: Setting) -> Stages:
    """A fresh head on everything seen, after every task, with as many steps a task as finetune."""
    setting.ledger.charge(Charge("pooled training", 0, "head", None), lambda key: "")
    for tasks in range(len(setting.tasks) + 1):
        yield partial(_after, setting, tasks)


def _after(setting: Setting, tasks: int) -> Learnt:
    head = setting.initial_head()
    if tasks:
        rows = setting.population.tasks < tasks
        head = head_on_rows(setting, rows, head, STEPS * tasks, f"joint {tasks}")
    return learnt_by(head, setting.seen(tasks), setting.family)


METHOD: Final = Method(stages, reads="openly", meaning="pooled, all tasks")

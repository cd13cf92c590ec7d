"""Finetune†: pooled, non-private training on each task alone, without replay: the floor.

What it forgets is what replay is for.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from cslr.methods.method import Learnt, Method, Setting, Stages, head_on_rows, learnt_by
from cslr.privacy.accounting import Charge
from cslr.protocol.head import Head

__all__ = ["METHOD"]

STEPS = 200


def stages(setting: Setting) -> Stages:
    """One head carried from task to task."""
    setting.ledger.charge(Charge("pooled training", 0, "head", None), lambda key: "")

    @cache
    def head_after(tasks: int) -> Head:
        if tasks == 0:
            return setting.initial_head()
        rows = setting.population.tasks == tasks - 1
        before = head_after(tasks - 1)
        return head_on_rows(setting, rows, before, STEPS, f"finetune {tasks}")

    def after(tasks: int) -> Learnt:
        return learnt_by(head_after(tasks), setting.seen(tasks), setting.family)

    for tasks in range(len(setting.tasks) + 1):
        yield partial(after, tasks)


METHOD: Final = Method(stages, reads="openly", meaning="pooled, no replay")

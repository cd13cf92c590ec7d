"""Finetune†: pooled, non-private training on each task alone, without replay: the floor.

What it forgets is what replay is for.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from cslr.methods.method import Fitted, Method, MethodContext, Stages, fitted_by, head_on_rows
from cslr.privacy.accounting import Charge
from cslr.protocol.head import Head

__all__ = ["METHOD"]

STEPS = 200


def stages(context: MethodContext) -> Stages:
    """One head carried from task to task."""
    context.ledger.charge(Charge("pooled training", 0, "head", None), lambda key: "")

    @cache
    def head_after(tasks: int) -> Head:
        if tasks == 0:
            return context.initial_head()
        rows = context.open_rows().tasks == tasks - 1
        before = head_after(tasks - 1)
        return head_on_rows(context, rows, before, STEPS, f"finetune {tasks}")

    def after(tasks: int) -> Fitted:
        return fitted_by(head_after(tasks), context.seen(tasks), context.family)

    for tasks in range(len(context.tasks) + 1):
        yield partial(after, tasks)


METHOD: Final = Method(stages, reads="openly", meaning="pooled, no replay")

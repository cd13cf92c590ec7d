"""Joint†: pooled, non-private training on all tasks so far: the ceiling."""

from __future__ import annotations

from functools import partial
from typing import Final

from cslr.methods.method import Fitted, Method, MethodContext, Stages, fitted_by, head_on_rows
from cslr.privacy.accounting import Charge

__all__ = ["METHOD"]

STEPS = 200


def stages(context: MethodContext) -> Stages:
    """A fresh head on everything seen, after every task, with as many steps a task as finetune."""
    context.ledger.charge(Charge("pooled training", 0, "head", None), lambda key: "")
    for tasks in range(len(context.tasks) + 1):
        yield partial(_after, context, tasks)


def _after(context: MethodContext, tasks: int) -> Fitted:
    head = context.initial_head()
    if tasks:
        rows = context.open_rows().tasks < tasks
        head = head_on_rows(context, rows, head, STEPS * tasks, f"joint {tasks}")
    return fitted_by(head, context.seen(tasks), context.family)


METHOD: Final = Method(stages, reads="openly", meaning="pooled, all tasks")

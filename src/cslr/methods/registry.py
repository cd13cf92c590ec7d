"""All methods by name, and the yardsticks that every one is compared with.

A new method is a file in ``cslr.methods`` and a line here. FedCIL and FedTA, which are folders, are
imported at first use. The yardsticks are a constant, label texts only, and pooled training († means
non-private):

majority    the best constant among the labels seen, chosen with the test labels; ε = 0
zero-shot   the label whose text is nearest; its scores are the b_j of forward transfer; ε = 0
finetune†   pooled training on each task in turn, without replay: the lower reference
joint†      pooled training on all tasks so far: the upper reference
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.config import Config
from cslr.errors import ConfigError
from cslr.methods import cslr, dp_joint, dp_sgd
from cslr.methods.method import Fitted, Method, MethodContext, Stages, fitted_by, head_on_rows
from cslr.methods.presets import cslr_matchers, cslr_paper, dp_class_stats, dp_stat_share
from cslr.privacy.accounting import Charge
from cslr.privacy.plan import Schedule
from cslr.protocol.head import Family, Head

__all__ = ["METHODS", "YARDSTICKS", "method_named"]

# -- yardsticks ------------------------------------------------------------------------------------

STEPS: Final = 200
"""Least steps of training for each task."""


def constant_stages(context: MethodContext) -> Stages:
    """The best constant after each task."""
    for tasks in range(len(context.tasks) + 1):
        yield partial(_best_constant, context, tasks)


def _best_constant(context: MethodContext, tasks: int) -> Fitted:
    # Mean over the tasks seen so far of each label's share of a task's rows.
    shares = context.test_shares[:tasks].sum(axis=0)
    scores = np.where(context.seen(tasks), shares, -np.inf)[context.family.label_of_output()]

    def constant(z: FloatArray) -> FloatArray:
        return np.tile(scores, (len(z), 1))

    return Fitted(constant)


def label_text_stages(context: MethodContext) -> Stages:
    """The same scorer before and after every task."""
    for _ in range(len(context.tasks) + 1):
        yield partial(_nearest_text, context.label_texts, context.family)


def _nearest_text(texts: FloatArray, family: Family) -> Fitted:
    labels = family.label_of_output()

    def cosine(z: FloatArray) -> FloatArray:
        scores: FloatArray = (z @ texts.T)[:, labels]
        # With independent outputs only the nearest label is predicted.
        return scores - scores.max(axis=1, keepdims=True) if family.sigmoid else scores

    return Fitted(cosine)


def finetune_stages(context: MethodContext) -> Stages:
    """One head carried from task to task."""
    _charge(context)

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


def joint_stages(context: MethodContext) -> Stages:
    """A new head on all rows so far, after every task, with as many steps per task as finetune."""
    _charge(context)
    for tasks in range(len(context.tasks) + 1):
        yield partial(_on_all_tasks, context, tasks)


def _on_all_tasks(context: MethodContext, tasks: int) -> Fitted:
    head = context.initial_head()
    if tasks:
        rows = context.open_rows().tasks < tasks
        head = head_on_rows(context, rows, head, STEPS * tasks, f"joint {tasks}")
    return fitted_by(head, context.seen(tasks), context.family)


def _charge(context: MethodContext) -> None:
    """Rows are read without noise: the ledger records ε = ∞."""
    context.ledger.charge(Charge("pooled training", 0, "head", None), lambda key: "")


MAJORITY: Final = Method(
    constant_stages, reads="nothing", meaning="best constant", keeps_head=False
)
ZERO_SHOT: Final = Method(
    label_text_stages, reads="nothing", meaning="nearest label text", keeps_head=False
)
FINETUNE: Final = Method(finetune_stages, reads="openly", meaning="pooled, no replay")
JOINT: Final = Method(joint_stages, reads="openly", meaning="pooled, all tasks")


# -- names -----------------------------------------------------------------------------------------


def _fedcil(context: MethodContext) -> Stages:
    from cslr.methods.fedcil import stages

    return stages(context)


def _fedcil_schedule(config: Config) -> Schedule:
    from cslr.methods.fedcil import schedule

    return schedule(config)


def _fedta(context: MethodContext) -> Stages:
    from cslr.methods.fedta import stages

    return stages(context)


METHODS: Final[dict[str, Method]] = {
    "cslr": cslr.METHOD,
    "cslr-paper": cslr_paper.METHOD,
    "cslr-noanchor": cslr_matchers.NO_ANCHOR,
    "cslr-nearestmean": cslr_matchers.NEAREST_MEAN,
    "cslr-hungarian": cslr_matchers.HUNGARIAN,
    "cslr-optimaltransport": cslr_matchers.OPTIMAL_TRANSPORT,
    "dp-sgd": dp_sgd.METHOD,
    "dp-joint": dp_joint.METHOD,
    "dp-stat-share": dp_stat_share.METHOD,
    "dp-class-stats": dp_class_stats.METHOD,
    "fedcil": Method(
        _fedcil,
        "privately",
        _fedcil_schedule,
        meaning="private generator and head",
        faces_hostile=False,
        hides_people=False,
    ),
    "fedta": Method(
        _fedta, "openly", meaning="personal, tail anchors", keeps_head=False, hides_people=False
    ),
    "majority": MAJORITY,
    "zero-shot": ZERO_SHOT,
    "finetune": FINETUNE,
    "joint": JOINT,
}

YARDSTICKS: Final = ("majority", "zero-shot", "finetune", "joint")


def method_named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}; known methods: {', '.join(METHODS)}")
    return METHODS[name]

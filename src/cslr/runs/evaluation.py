"""What a method's answers on test rows are worth, exactly or as a noised count that is paid for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cslr.arrays import BoolArray
from cslr.methods.method import Learnt, Setting, Stage
from cslr.privacy.values import Bounded
from cslr.protocol.evaluation import answers_of, measured
from cslr.runs.embedded import Study
from cslr.runs.scoring import Scored, right_rows, score

__all__ = ["figures_of", "plain", "privately_measured"]


def figures_of(
    study: Study, setting: Setting, scenario: str, learnt: Learnt, after: int
) -> dict[str, Any]:
    """NON-PRIVATE. The row a[after, ·], scores by label and other measures, as plain values."""
    allowed, seen = _allowed_of(setting, scenario, after), _seen(setting, after)
    scored = _scored(study, learnt, allowed, seen)
    more = dict(scored.more)
    if learnt.personal and after == len(setting.tasks):
        more["personal"] = _personal(study, setting, learnt, allowed, seen)
    if learnt.own and len(study.stream.test):
        more["own_heads"] = _own_heads(study, learnt, allowed, seen, after)
    return {
        "scores": [plain(value) for value in scored.tasks],
        "labels": [plain(value) for value in scored.labels],
        "more": {name: plain(value) for name, value in more.items()},
    }


def privately_measured(
    study: Study, setting: Setting, scenario: str, last: Stage
) -> dict[str, Any]:
    """Right answers after the last task as one noised count, charged to the setting's ledger.

    Test rows that belong to no client are left out.
    """
    rows = study.stream.test
    if rows.clients is None:
        raise ValueError("study: its test rows must say whose they are")
    owners, held, count = rows.clients, rows.clients >= 0, len(setting.tasks)

    def ask() -> Bounded:
        allowed = _allowed_of(setting, scenario, count)
        right = np.zeros(len(rows), dtype=np.bool_)
        if len(rows):
            right = right_rows(study, last().scores(study.test.z), allowed)
        return answers_of(right[held], rows.tasks[held], owners[held], count)

    found = measured(ask, setting.plan, setting.ledger, setting.keep).value
    return {
        "private": True,
        "accuracy": [plain(value) for value in found.accuracy.tolist()],
        "standard_error": [plain(value) for value in found.error.tolist()],
        "sigma": setting.plan.evaluation_sigma,
    }


def plain(value: float) -> float | None:
    """JSON has neither NaN nor ∞."""
    return value if math.isfinite(value) else None


def _personal(
    study: Study, setting: Setting, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray
) -> float:
    """The mean over clients of each one's own model on the tasks it holds."""
    population, means = setting.population, []
    for client, scorer in learnt.personal:
        held = np.unique(population.tasks[population.held[population.clients == client]])
        scored = _scored(study, Learnt(scorer), allowed, seen)
        means.append(float(np.nanmean(np.array(scored.tasks)[held])))
    return float(np.mean(means))


def _own_heads(
    study: Study, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray, after: int
) -> float:
    """The mean over encoders of each one's own head, on the tasks so far or, before any, on all."""
    means = []
    for view, scorer in zip(study.views, learnt.own, strict=True):
        scored = _scored(view, Learnt(scorer), allowed, seen)
        means.append(float(np.nanmean(scored.tasks[: after or None])))
    return float(np.mean(means))


def _scored(study: Study, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray) -> Scored:
    """Nothing is known about a task without test rows."""
    if not len(study.stream.test):
        return Scored([math.nan] * len(allowed), [math.nan] * len(seen), {})
    scored = score(study, learnt.scores(study.test.z), allowed, seen)
    tested = np.isin(np.arange(len(allowed)), study.stream.test.tasks)
    return replace(scored, tasks=np.where(tested, scored.tasks, math.nan).tolist())


def _seen(setting: Setting, after: int) -> BoolArray:
    """(c,) the labels of the tasks so far, or all before the first."""
    return setting.seen(after) if after else np.ones(setting.labels, dtype=np.bool_)


def _allowed_of(setting: Setting, scenario: str, after: int) -> list[BoolArray]:
    """For each task, (c,) the labels an answer may have after so many tasks."""
    return [_allowed(scenario, setting, after, task) for task in range(len(setting.tasks))]


def _allowed(scenario: str, setting: Setting, after: int, task: int) -> BoolArray:
    """(c,) the labels an answer may have.

    class: those seen so far, or all of them on a task not seen yet (forward transfer);
    domain: all of them; task: those of the task.
    """
    if scenario == "task":
        allowed = np.zeros(setting.labels, dtype=np.bool_)
        allowed[list(setting.tasks[task])] = True
        return allowed
    if scenario == "class" and task < after:
        return setting.seen(after)
    return np.ones(setting.labels, dtype=np.bool_)

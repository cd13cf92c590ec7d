"""Scores on test rows: exact, or a noisy count that is charged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cslr.arrays import BoolArray, FloatArray
from cslr.methods.method import Fitted, MethodContext, Stage
from cslr.privacy.plan import Unit
from cslr.privacy.values import Bounded, Summed, plain_sum
from cslr.protocol.evaluation import Exam, Graded, measured
from cslr.protocol.messages import answer
from cslr.protocol.ports import Ask, Cohort
from cslr.runs.embedded import EmbeddedStream
from cslr.runs.scoring import Scored, right_rows, score

__all__ = [
    "PrivateFigures",
    "counted_by",
    "figures_of",
    "plain",
    "private_figures",
    "privately_measured",
]


def figures_of(
    embedded: EmbeddedStream, context: MethodContext, scenario: str, learnt: Fitted, after: int
) -> dict[str, Any]:
    """NON-PRIVATE. The row a[after, ·], scores by label and other measures, as plain values."""
    allowed, seen = _allowed_of(context, scenario, after), _seen(context, after)
    scored = _scored(embedded, learnt, allowed, seen)
    more = dict(scored.more)
    if learnt.personal and after == len(context.tasks):
        more["personal"] = _personal(embedded, context, learnt, allowed, seen)
    if learnt.own and len(embedded.stream.test):
        more["own_heads"] = _own_heads(embedded, learnt, allowed, seen, after)
    return {
        "scores": [plain(value) for value in scored.tasks],
        "labels": [plain(value) for value in scored.labels],
        "more": {name: plain(value) for name, value in more.items()},
    }


def privately_measured(
    embedded: EmbeddedStream, context: MethodContext, scenario: str, last: Stage
) -> dict[str, Any]:
    """The number of correct answers after the last task as one noisy count, charged to the ledger.

    Test rows that belong to no client are left out.
    """
    if embedded.stream.test.clients is None:
        raise ValueError("embedded: its test rows must have clients")
    allowed = _allowed_of(context, scenario, len(context.tasks))

    def cohort() -> Cohort:
        return TestCohort(embedded, allowed, last(), context.plan.budget.unit)

    return counted_by(cohort, context)


def counted_by(cohort: Callable[[], Cohort], context: MethodContext) -> dict[str, Any]:
    """What the units with test rows answer after the last task: noised, charged, as plain values.

    cohort: those units, who are given the model that is evaluated.
    """
    exam = Exam(len(context.tasks))
    shares = measured(cohort, exam, context.plan, context.ledger, context.keep).value
    return {
        "private": True,
        "accuracy": [plain(value) for value in shares.accuracy.tolist()],
        "standard_error": [plain(value) for value in shares.error.tolist()],
        "sigma": context.plan.evaluation_sigma,
    }


@dataclass(frozen=True, eq=False)
class TestCohort:
    """The units with test rows, with the model they are given."""

    embedded: EmbeddedStream
    allowed: list[BoolArray]
    """For each task, (c,) the labels an answer may have."""
    model: Fitted
    unit: Unit = "client"

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum of what all of them answer."""
        return plain_sum([answer(self._graded(), ask)])

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], list[Bounded]]:
        """An evaluation is a sum and nothing else."""
        raise ValueError(f"ask: {ask.kind} is not asked of single clients with test rows")

    def _graded(self) -> Graded:
        rows = self.embedded.stream.test
        units = rows.clients if self.unit == "client" else rows.people
        if rows.clients is None or units is None:
            raise ValueError("embedded: its test rows must say whose they are")
        right = np.zeros(len(rows), dtype=np.bool_)
        if len(rows):
            scores = self.model.scores(self.embedded.test.z)
            right = right_rows(self.embedded, scores, self.allowed)
        held = rows.clients >= 0
        return Graded(right[held], rows.tasks[held], units[held])


def plain(value: float) -> float | None:
    """JSON has neither NaN nor ∞."""
    return value if math.isfinite(value) else None


def _personal(
    embedded: EmbeddedStream,
    context: MethodContext,
    learnt: Fitted,
    allowed: list[BoolArray],
    seen: BoolArray,
) -> float:
    """The mean over clients of each one's own model on the tasks it holds."""
    population, means = context.open_rows(), []
    for client, scorer in learnt.personal:
        held = np.unique(population.tasks[population.held[population.clients == client]])
        scored = _scored(embedded, Fitted(scorer), allowed, seen)
        means.append(float(np.nanmean(np.array(scored.tasks)[held])))
    return float(np.mean(means))


def _own_heads(
    embedded: EmbeddedStream, learnt: Fitted, allowed: list[BoolArray], seen: BoolArray, after: int
) -> float:
    """The mean over encoders of each one's own head, on the tasks so far or, before any, on all."""
    means = []
    for view, scorer in zip(embedded.views, learnt.own, strict=True):
        scored = _scored(view, Fitted(scorer), allowed, seen)
        means.append(float(np.nanmean(scored.tasks[: after or None])))
    return float(np.mean(means))


def _scored(
    embedded: EmbeddedStream, learnt: Fitted, allowed: list[BoolArray], seen: BoolArray
) -> Scored:
    """Nothing is known about a task without test rows."""
    if not len(embedded.stream.test):
        return Scored([math.nan] * len(allowed), [math.nan] * len(seen), {})
    scored = score(embedded, learnt.scores(embedded.test.z), allowed, seen)
    tested = np.isin(np.arange(len(allowed)), embedded.stream.test.tasks)
    return replace(scored, tasks=np.where(tested, scored.tasks, math.nan).tolist())


def _seen(context: MethodContext, after: int) -> BoolArray:
    """(c,) the labels of the tasks so far, or all before the first."""
    return context.seen(after) if after else np.ones(context.labels, dtype=np.bool_)


def _allowed_of(context: MethodContext, scenario: str, after: int) -> list[BoolArray]:
    """For each task, (c,) the labels an answer may have after so many tasks."""
    return [_allowed(scenario, context, after, task) for task in range(len(context.tasks))]


def _allowed(scenario: str, context: MethodContext, after: int, task: int) -> BoolArray:
    """(c,) the labels an answer may have.

    class: those seen so far, or all of them on a task not seen yet (forward transfer);
    domain: all of them; task: those of the task.
    """
    if scenario == "task":
        allowed = np.zeros(context.labels, dtype=np.bool_)
        allowed[list(context.tasks[task])] = True
        return allowed
    if scenario == "class" and task < after:
        return context.seen(after)
    return np.ones(context.labels, dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class PrivateFigures:
    """Accuracy after the last task by noised counts that were paid for, means over seeds, in %."""

    accuracy: FloatArray  # (T,), NaN where too few clients have test rows
    error: FloatArray  # (T,) standard error by the noise
    before_upgrade: bool
    """Whether the head of the run before an exchange of encoders was measured, not this one's."""

    @property
    def aa(self) -> tuple[float, float]:
        """The mean over tasks and its standard error."""
        error = math.sqrt(float(np.square(self.error).sum())) / len(self.error)
        return float(self.accuracy.mean()), error

    def as_json(self, tasks: Sequence[str]) -> dict[str, Any]:
        """As plain values."""
        rows = zip(tasks, self.accuracy, self.error, strict=True)
        aa, error = self.aa
        return {
            "tasks": [
                {"task": task, "accuracy": _number(share), "standard_error": _number(deviation)}
                for task, share, deviation in rows
            ],
            "aa": _number(aa),
            "aa_standard_error": _number(error),
            "before_upgrade": self.before_upgrade,
        }


def private_figures(lines: Sequence[dict[str, Any]]) -> PrivateFigures | None:
    """Of the lines of kind ``evaluation``, one a seed; None if there are none."""
    if not lines:
        return None
    accuracy = 100 * np.array([line["accuracy"] for line in lines], dtype=np.float64)
    error = 100 * np.array([line["standard_error"] for line in lines], dtype=np.float64)
    return PrivateFigures(
        accuracy.mean(axis=0),
        np.sqrt(np.square(error).sum(axis=0)) / len(lines),
        any(line.get("before_upgrade", False) for line in lines),
    )


def _number(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None

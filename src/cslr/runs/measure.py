"""Scores on test rows: exact, or a noisy count that is charged.

Predictions are scored per task and per label, with further measures, as their family asks for:

classification   accuracy: the best allowed label is right
intents          accuracy: the best allowed label is one of the row's. Besides, with every label
                 chosen whose sigmoid is above a half, and the best one in any case: exact match
                 (the set is right), micro-F1 = 2 TP / (2 TP + FP + FN) over all decisions, and
                 macro-F1, its mean over the labels that occur
tagging          strict entity micro-F1: a predicted entity counts if type and both ends are right

A score is NaN where a right answer is not known to the model yet.

The paper's metrics are those of the score matrix a: a[r, j] is the score on task j after task r,
with r = 0 before any training, so the matrix is (T + 1, T). With T tasks and b_j the zero-shot
score on task j (paper, Section 6.1):

    AA  = 1/T Σ_j a[T, j]
    BWT = 1/(T−1) Σ_{j<T} (a[T, j] − a[j, j])
    FWT = 1/(T−1) Σ_{j≥2} (a[j−1, j] − b_j)

An entry that cannot exist (a label the model does not know yet, without a label prior) is NaN,
and so is whatever needs it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.methods.method import Fitted, MethodContext, Scorer, Stage
from cslr.privacy.plan import Unit
from cslr.privacy.values import Bounded, Summed, plain_sum
from cslr.protocol.evaluation import Exam, Graded, measured
from cslr.protocol.messages import answer
from cslr.protocol.ports import Ask, Cohort
from cslr.protocol.tags import decode, tag_names
from cslr.runs.embedded import EmbeddedStream

__all__ = [
    "PrivateFigures",
    "average_accuracy",
    "backward_transfer",
    "closed_share",
    "counted_by",
    "entity_f1",
    "figures_of",
    "forward_transfer",
    "plain",
    "private_figures",
    "privately_measured",
    "right_rows",
    "rounded",
    "score",
    "scores_by_unit",
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
    """The noised and charged counts of correct answers after the last task, as plain values.

    cohort: the units with test rows, with the model that is evaluated.
    """
    exam = Exam(len(context.tasks))
    shares = measured(cohort, exam, context.plan, context.ledger, context.keep).value
    return {
        "private": True,
        "accuracy": [plain(value) for value in shares.accuracy.tolist()],
        "standard_error": [plain(value) for value in shares.error.tolist()],
        "sigma": context.plan.evaluation_sigma,
    }


@dataclass(frozen=True, eq=False, repr=False)
class TestCohort:
    """PRIVATE. The units with test rows, and the model that is evaluated on them."""

    embedded: EmbeddedStream
    allowed: list[BoolArray]
    """For each task, (c,) the labels an answer may have."""
    model: Fitted
    unit: Unit = "client"

    def total(self, ask: Ask[Any]) -> Summed:
        """The sum of the units' answers."""
        return plain_sum([answer(self._graded(), ask)])

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], list[Bounded]]:
        """Refused: an evaluation is a sum and nothing else."""
        raise ValueError(f"ask: {ask.kind} is not asked of single clients with test rows")

    def _graded(self) -> Graded:
        rows = self.embedded.stream.test
        units = rows.clients if self.unit == "client" else rows.people
        if rows.clients is None or units is None:
            raise ValueError("embedded: its test rows must say whose they are")
        right = np.zeros(len(rows), dtype=np.bool_)
        if len(rows):
            scores = scores_by_unit(self.model.scores, self.embedded, units)
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
    """Mean over clients of the score of each client's own model on the tasks it has rows of."""
    population, means = context.open_rows(), []
    for client, scorer in learnt.personal:
        held = np.unique(population.tasks[population.held[population.clients == client]])
        scored = _scored(embedded, Fitted(scorer), allowed, seen)
        means.append(float(np.nanmean(np.array(scored.tasks)[held])))
    return float(np.mean(means))


def _own_heads(
    embedded: EmbeddedStream, learnt: Fitted, allowed: list[BoolArray], seen: BoolArray, after: int
) -> float:
    """Mean over encoders of the score of each one's own head on the tasks so far (first: all)."""
    means = []
    for view, scorer in zip(embedded.views, learnt.own, strict=True):
        scored = _scored(view, Fitted(scorer), allowed, seen)
        means.append(float(np.nanmean(scored.tasks[: after or None])))
    return float(np.mean(means))


def _scored(
    embedded: EmbeddedStream, learnt: Fitted, allowed: list[BoolArray], seen: BoolArray
) -> Scored:
    """The scores of a model; NaN for tasks without test rows."""
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
    """Accuracy after the last task from noised and charged counts, means over seeds, in %."""

    accuracy: FloatArray  # (T,), NaN where too few clients have test rows
    error: FloatArray  # (T,) standard error by the noise
    before_upgrade: bool
    """Whether it was measured on the head of the run before an encoder upgrade."""

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
                {"task": task, "accuracy": rounded(share), "standard_error": rounded(deviation)}
                for task, share, deviation in rows
            ],
            "aa": rounded(aa),
            "aa_standard_error": rounded(error),
            "before_upgrade": self.before_upgrade,
        }


def private_figures(lines: Sequence[dict[str, Any]]) -> PrivateFigures | None:
    """From the trace lines of kind ``evaluation``, one for each seed; None if there are none."""
    if not lines:
        return None
    accuracy = 100 * np.array([line["accuracy"] for line in lines], dtype=np.float64)
    error = 100 * np.array([line["standard_error"] for line in lines], dtype=np.float64)
    return PrivateFigures(
        accuracy.mean(axis=0),
        np.sqrt(np.square(error).sum(axis=0)) / len(lines),
        any(line.get("before_upgrade", False) for line in lines),
    )


def rounded(value: float) -> float | None:
    """To three digits; JSON has neither NaN nor ∞."""
    return round(float(value), 3) if math.isfinite(value) else None


# -- scores of a task ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """Shares in [0, 1] or NaN."""

    tasks: list[float]  # (T,)
    labels: list[float]  # (c,)
    more: dict[str, float]


def score(
    embedded: EmbeddedStream, scores: FloatArray, allowed: Sequence[BoolArray], seen: BoolArray
) -> Scored:
    """How good ``scores`` (m, outputs) are on the test examples.

    allowed: for each task the labels (c,) an answer may have; seen: (c,) those of the tasks so
    far, or all before the first: what the scores by label and ``more`` are about.
    """
    if embedded.family.name == "tagging":
        return _score_tags(embedded, scores, allowed, seen)
    rows, right = embedded.test, embedded.test.targets > 0
    chosen = np.stack(allowed)[rows.tasks]  # (m, c)
    hit = _hits(scores, right, chosen)
    hit_seen = _hits(scores, right, np.broadcast_to(seen, scores.shape))
    more = {}
    if embedded.family.name == "intents":
        is_seen = seen[rows.labels]
        more = intent_metrics(scores[is_seen], right[is_seen], seen)
    return Scored(
        [_mean(hit[rows.tasks == task]) for task in range(len(allowed))],
        [_mean(hit_seen[rows.labels == label]) for label in range(len(seen))],
        more,
    )


def scores_by_unit(scorer: Scorer, embedded: EmbeddedStream, units: IntArray) -> FloatArray:
    """Scores of all test examples, those of each unit computed alone.

    units: (n,) the unit of each test row. The rounding of a matrix product depends on its number of
    rows, so in one product one unit's rows could decide a tie in another unit's scores.
    """
    test = embedded.test
    of_example = units[test.rows]
    order = np.argsort(of_example, kind="stable")
    ends = np.flatnonzero(np.diff(of_example[order])) + 1
    parts = [scorer(test.z[examples]) for examples in np.split(order, ends)]
    scores: FloatArray = np.concatenate(parts)
    return scores[np.argsort(order, kind="stable")]


def right_rows(
    embedded: EmbeddedStream, scores: FloatArray, allowed: Sequence[BoolArray]
) -> BoolArray:
    """(n,) whether each test row is answered correctly; for tagging: whether all its tags are.

    A row that the model cannot answer correctly yet counts as wrong.
    """
    rows = embedded.test
    if embedded.family.name != "tagging":
        chosen = np.stack(allowed)[rows.tasks]
        return np.asarray(_hits(scores, rows.targets > 0, chosen) == 1.0)
    of_output = embedded.family.label_of_output()
    wrong = np.ones(len(rows.targets), dtype=np.bool_)  # (m,) words
    for task, labels in enumerate(allowed):
        words = rows.tasks == task
        masked = np.where(labels[of_output], scores[words], -np.inf)
        if not words.any() or not np.isfinite(masked[:, labels[of_output]]).all():
            continue
        lengths = np.diff(rows.starts)[embedded.stream.test.tasks == task]
        tags = decode(masked, np.concatenate([[0], np.cumsum(lengths)]))
        wrong[words] = tags != rows.targets[words].argmax(axis=1)
    mistakes = np.bincount(rows.rows, weights=wrong, minlength=len(embedded.stream.test))
    return np.asarray(mistakes == 0)


def _hits(scores: FloatArray, right: BoolArray, allowed: BoolArray) -> FloatArray:
    """(m,) 1 if the best allowed label is right, NaN if no right label could be chosen."""
    masked = np.where(allowed, scores, -np.inf)
    possible = (right & np.isfinite(masked)).any(axis=1)
    hit = right[np.arange(len(right)), masked.argmax(axis=1)]
    return np.where(possible, hit, np.nan)


def _mean(hits: FloatArray) -> float:
    return float(np.mean(hits)) if len(hits) else math.nan


def intent_metrics(scores: FloatArray, right: BoolArray, seen: BoolArray) -> dict[str, float]:
    """Exact match, micro- and macro-F1 of sets of labels, (n, c) each."""
    masked = np.where(seen, scores, -np.inf)
    if not len(right) or not np.isfinite(masked).any(axis=1).all():
        return {"exact_match": math.nan, "micro_f1": math.nan, "macro_f1": math.nan}
    chosen = masked > 0
    chosen[np.arange(len(chosen)), masked.argmax(axis=1)] = True
    hits = (chosen & right).sum(axis=0)
    sizes = chosen.sum(axis=0) + right.sum(axis=0)
    occur = right.any(axis=0)
    return {
        "exact_match": float((chosen == right).all(axis=1).mean()),
        "micro_f1": float(2 * hits.sum() / sizes.sum()),
        "macro_f1": float(np.mean(2 * hits[occur] / sizes[occur])),
    }


def _score_tags(
    embedded: EmbeddedStream, scores: FloatArray, allowed: Sequence[BoolArray], seen: BoolArray
) -> Scored:
    rows = embedded.test
    names = np.array(tag_names([label.name for label in embedded.stream.labels]))
    of_output = embedded.family.label_of_output()
    gold = names[rows.targets.argmax(axis=1)]
    of_rows = embedded.stream.test.tasks
    truth: list[list[str]] = []
    guess: list[list[str]] = []
    tasks = []
    for task, labels in enumerate(allowed):
        chosen = np.flatnonzero(of_rows == task)
        lengths = np.diff(rows.starts)[chosen]
        words = rows.tasks == task
        masked = np.where(labels[of_output], scores[words], -np.inf)
        if not len(chosen) or not np.isfinite(masked[:, labels[of_output]]).all():
            tasks.append(math.nan)
            continue
        ends = np.concatenate([[0], np.cumsum(lengths)])
        truth_here = _sentences(gold[words], ends)
        guess_here = _sentences(names[decode(masked, ends)], ends)
        tasks.append(entity_f1(truth_here, guess_here)["micro"])
        truth += truth_here
        guess += guess_here
    by_type = entity_f1(truth, guess) if truth else {}
    labels_f1 = [
        by_type.get(label.name, math.nan) if is_seen else math.nan
        for label, is_seen in zip(embedded.stream.labels, seen, strict=True)
    ]
    more = {f"{name}_f1": by_type.get(name, math.nan) for name in ("micro", "macro")}
    return Scored(tasks, labels_f1, more)


def _sentences(tags: np.ndarray, ends: IntArray) -> list[list[str]]:
    return [part.tolist() for part in np.split(tags, ends[1:-1])]


def entity_f1(truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> dict[str, float]:
    """Strict F1 of entities: ``micro`` over all, ``macro`` over types, and each type's.

    Types are those that occur in either; F1 is 0 where nothing is right.
    """
    sides = [
        {(number, *entity) for number, tags in enumerate(side) for entity in _entities(tags)}
        for side in (truth, guess)
    ]
    right, sizes = Counter(kind for _, kind, *_ in sides[0] & sides[1]), Counter[str]()
    for side in sides:
        sizes.update(kind for _, kind, *_ in side)
    by_type = {kind: 2 * right[kind] / sizes[kind] for kind in sorted(sizes)}
    micro = 2 * right.total() / max(sizes.total(), 1)
    macro = sum(by_type.values()) / max(len(by_type), 1)
    return {**by_type, "micro": micro, "macro": macro}


def _entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first, last + 1) of each entity: a B- tag and the I- tags of its type that follow."""
    kind, start = "", -1
    for position, tag in enumerate(tags):
        if kind and tag != f"I-{kind}":
            yield kind, start, position
            kind = ""
        if tag[0] == "B":
            kind, start = tag[2:], position
    if kind:
        yield kind, start, len(tags)


# -- metrics of an accuracy matrix -----------------------------------------------------------------


def average_accuracy(matrix: FloatArray) -> float:
    """AA: the mean of the last row."""
    return float(matrix[-1].mean())


def backward_transfer(matrix: FloatArray) -> float:
    """BWT: mean change of the score of a task since it was learnt; NaN with one task."""
    learnt = np.diagonal(matrix[1:])[:-1]
    return float(np.mean(matrix[-1, :-1] - learnt)) if len(learnt) else math.nan


def forward_transfer(matrix: FloatArray, zero_shot: FloatArray) -> float:
    """FWT: mean gain over zero-shot on a task just before it is learnt; NaN with one task."""
    before = np.diagonal(matrix[1:], offset=1)
    return float(np.mean(before - zero_shot[1:])) if len(before) else math.nan


def closed_share(score: float, floor: float, ceiling: float) -> float:
    """Share of the gap between ``floor`` and ``ceiling`` that ``score`` closes."""
    return (score - floor) / (ceiling - floor) if ceiling > floor else math.nan

"""Scores of predictions for each family: per task, per label, and further measures.

classification   accuracy: the best allowed label is right
intents          accuracy: the best allowed label is one of the row's. Besides, with every label
                 chosen whose sigmoid is above a half, and the best one in any case: exact match
                 (the set is right), micro-F1 = 2 TP / (2 TP + FP + FN) over all decisions, and
                 macro-F1, its mean over the labels that occur
tagging          strict entity micro-F1: a predicted entity counts if type and both ends are right

A score is NaN where a right answer is not known to the model yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.protocol.tags import decode, tag_names
from cslr.runs.embedded import EmbeddedStream

__all__ = ["Scored", "entity_f1", "intent_metrics", "right_rows", "score"]


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


def right_rows(
    embedded: EmbeddedStream, scores: FloatArray, allowed: Sequence[BoolArray]
) -> BoolArray:
    """(n,) whether each test row is answered rightly; for tagging: whether all its tags are right.

    A row that the model cannot answer rightly yet counts as wrong.
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
    """Type, first place and place after the last: a B- and the I- of its type that follow."""
    kind, start = "", -1
    for position, tag in enumerate(tags):
        if kind and tag != f"I-{kind}":
            yield kind, start, position
            kind = ""
        if tag[0] == "B":
            kind, start = tag[2:], position
    if kind:
        yield kind, start, len(tags)

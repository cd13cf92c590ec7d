"""What a node measures on its own test rows.

Exact figures on test rows are not covered by ε: they are shown on the node's own screen, and
neither stored nor sent. Where the charter has an evaluation, counts of right answers leave the node
like any vector: clipped, with noise, inside a secure sum.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.errors import ConfigError
from cslr.federation.parties.charter import Charter
from cslr.federation.parties.question import digest_of
from cslr.protocol.evaluation import Graded
from cslr.runs.deployment.node_rows import embedded_rows
from cslr.runs.deployment.source import Source
from cslr.runs.measure import right_rows, scores_by_unit
from cslr.runs.predict import ModelFacts, load_predictor

__all__ = ["graded_rows", "own_accuracy"]


def graded_rows(
    source: Source, charter: Charter, rows: dict[str, str | int], model: Path, head: str
) -> Graded:
    """This node's test rows, graded with the head that has this SHA-256.

    Empty if the node has no test rows, another head, or a head for other labels or tasks than those
    of the charter: it then sends zeros and noise. A score that is not a number counts as 0, so that
    one row cannot prevent the answers to others.
    """
    nothing = np.zeros(0, dtype=np.int64)
    empty = Graded(nothing > 0, nothing, nothing)
    files = sorted(model.glob("seed-*/head.safetensors"))
    if head not in {digest_of(file.read_bytes()) for file in files}:
        return empty
    _, embedded = embedded_rows(source, charter, rows)
    test, predictor = embedded.stream.test, load_predictor(model)
    facts = predictor.model
    if not len(test) or not _as_agreed(facts, charter):
        return empty
    task_is_known = facts.scenario == "task"
    allowed = [facts.allowed(name if task_is_known else None) for name in facts.tasks]
    units = np.zeros(len(test), dtype=np.int64) if charter.unit == "client" else test.people
    if units is None:
        raise ConfigError(
            "the declaration names no column of people, so test rows belong to no person"
        )
    scores = np.nan_to_num(scores_by_unit(predictor.scores, embedded, units))
    right = right_rows(embedded, scores, allowed)
    held = units >= 0  # a row without client belongs to no unit
    return Graded(right[held], test.tasks[held], units[held])


def _as_agreed(facts: ModelFacts, charter: Charter) -> bool:
    """Whether a model, which the server sent, is one of this federation."""
    tasks = {task.name: task.labels for task in charter.tasks}
    return (facts.family, facts.labels, facts.tasks) == (charter.family, charter.labels, tasks)


def own_accuracy(source: Source, charter: Charter, rows: dict[str, str | int], model: Path) -> str:
    """One line about the head in ``model``: the share of texts whose best answer is right.

    The test rows of an embedded stream belong to no node, so every node measures on all of them.
    """
    predictor = load_predictor(model)
    if charter.family == "tagging":
        return "a new head is there; measure it on your own sentences with `cslr predict`"
    _, embedded = embedded_rows(source, charter, rows)
    test = embedded.test
    learnt = np.flatnonzero(test.tasks < len(predictor.model.tasks))
    if not len(learnt):
        return "a new head is there; no own test rows to measure it on"
    allowed = predictor.model.allowed(None)
    scores = np.where(allowed, predictor.scores(test.z[learnt]), -np.inf)
    right = np.mean(scores.argmax(axis=1) == test.labels[learnt])
    tasks = ", ".join(predictor.model.tasks)
    return f"{100 * right:.1f} % right on own test rows after {tasks}; not stored"

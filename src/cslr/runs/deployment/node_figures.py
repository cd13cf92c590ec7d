"""What a node measures on its own test rows.

Exact figures on somebody's rows are covered by no ε: they are shown on the node's own screen,
stored and sent nowhere. Where the charter has an evaluation, right answers leave the node as any
vector does, clipped and with noise, inside a secure sum.
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
    """This node's test rows after the head with this SHA-256 answered them.

    None of them if the node has no test rows or another head, or one that is not for the labels and
    tasks of the charter, whatever rows there are: it then sends zeros and noise. No row's score can
    void another's answer.
    """
    nothing = np.zeros(0, dtype=np.int64)
    files = sorted(model.glob("seed-*/head.safetensors"))
    if head not in {digest_of(file.read_bytes()) for file in files}:
        return Graded(nothing > 0, nothing, nothing)
    _, embedded = embedded_rows(source, charter, rows)
    test, predictor = embedded.stream.test, load_predictor(model)
    facts = predictor.model
    if not len(test) or not _as_agreed(facts, charter):
        return Graded(nothing > 0, nothing, nothing)
    scored = facts.scenario == "task"
    allowed = [facts.allowed(name if scored else None) for name in facts.tasks]
    units = np.zeros(len(test), dtype=np.int64) if charter.unit == "client" else test.people
    if units is None:
        raise ConfigError("the declaration names no column of people; test rows are nobody's")
    scores = np.nan_to_num(scores_by_unit(predictor.scores, embedded, units))
    right = right_rows(embedded, scores, allowed)
    held = units >= 0  # a row without client is nobody's, and no unit
    return Graded(right[held], test.tasks[held], units[held])


def _as_agreed(facts: ModelFacts, charter: Charter) -> bool:
    """Whether a model, which the server sent, is one of this federation."""
    tasks = {task.name: task.labels for task in charter.tasks}
    return (facts.family, facts.labels, facts.tasks) == (charter.family, charter.labels, tasks)


def own_accuracy(source: Source, charter: Charter, rows: dict[str, str | int], model: Path) -> str:
    """One line about the head in ``model``: the share of texts whose first answer is right.

    The test rows of an embedded stream are nobody's, so every node measures on all of them.
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

"""What a node measures on its own test rows: shown on its own screen, stored and sent nowhere.

Exact figures on somebody's rows are covered by no ε, so they stay where the rows are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.federation.parties.charter import Charter
from cslr.runs.deployment.node_rows import embedded_rows
from cslr.runs.deployment.source import Source
from cslr.runs.predict import load_predictor

__all__ = ["own_accuracy"]


def own_accuracy(source: Source, charter: Charter, rows: dict[str, str | int], model: Path) -> str:
    """One line about the head in ``model``: the share of texts whose first answer is right.

    The test rows of an embedded stream are nobody's, so every node measures on all of them.
    """
    predictor = load_predictor(model)
    if charter.family == "tagging":
        return "a new head is there; measure it on your own sentences with `cslr predict`"
    _, embedded = embedded_rows(source, charter, rows)
    test = embedded.test
    mine = np.flatnonzero(test.tasks < len(predictor.model.tasks))
    if not len(mine):
        return "a new head is there; no own test rows to measure it on"
    allowed = predictor.model.allowed(None)
    scores = np.where(allowed, predictor.scores(test.z[mine]), -np.inf)
    right = np.mean(scores.argmax(axis=1) == test.labels[mine])
    tasks = ", ".join(predictor.model.tasks)
    return f"{100 * right:.1f} % right on own test rows after {tasks}; not stored"

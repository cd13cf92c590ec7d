"""What a node measures on its own test rows: shown on its own screen, stored and sent nowhere.

Exact figures on somebody's rows are covered by no ε, so they stay where the rows are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cslr.data.own import load_own
from cslr.data.stream import Rows
from cslr.runs.deployment.source import Source
from cslr.runs.predict import load_predictor

__all__ = ["own_accuracy"]


def own_accuracy(source: Source, rows: dict[str, str | int], model: Path) -> str:
    """One line about the head in ``model``: the share of texts whose first answer is right."""
    predictor = load_predictor(model)
    if predictor.model.family == "tagging":
        return "a new head is there; measure it on your own sentences with `cslr predict`"
    test = _test_rows(source, rows)
    mine = np.flatnonzero(test.tasks < len(predictor.model.tasks))
    if not len(mine):
        return "a new head is there; no own test rows to measure it on"
    answers = predictor.answers(test.texts[place] for place in mine)
    names = predictor.model.labels
    right = [
        answer.choices[0].label == names[test.answers[place][0]]
        for place, answer in zip(mine, answers, strict=True)
    ]
    tasks = ", ".join(predictor.model.tasks)
    return f"{100 * np.mean(right):.1f} % right on own test rows after {tasks}; not stored"


def _test_rows(source: Source, rows: dict[str, str | int]) -> Rows:
    """Of a file of own rows, or of an embedded stream, whose test rows are everybody's."""
    declaration = source.declared()
    if declaration is None:
        return source.with_rows().test
    return load_own(Path(str(rows["data"])), declaration, source.public).stream.test

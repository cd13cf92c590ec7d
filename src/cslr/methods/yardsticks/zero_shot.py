"""Zero-shot: the label whose text lies nearest. Uses label texts only: ε = 0.

Its scores on the tasks are also the b_j of forward transfer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cslr.arrays import FloatArray
from cslr.methods.method import Fitted, Method, MethodContext, Stages
from cslr.protocol.targets import Family

__all__ = ["METHOD"]


def stages(context: MethodContext) -> Stages:
    """The same scorer before and after every task."""
    for _ in range(len(context.tasks) + 1):
        yield partial(_nearest_text, context.label_texts, context.family)


def _nearest_text(texts: FloatArray, family: Family) -> Fitted:
    labels = family.label_of_output()

    def cosine(z: FloatArray) -> FloatArray:
        scores: FloatArray = (z @ texts.T)[:, labels]
        # Answered one by one, only the nearest label is a yes.
        return scores - scores.max(axis=1, keepdims=True) if family.sigmoid else scores

    return Fitted(cosine)


METHOD: Final = Method(stages, reads="nothing", meaning="nearest label text", keeps_head=False)

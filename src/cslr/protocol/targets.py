"""Replay targets: the bounded vector y that a head should predict (paper, Section 4.2).

| family         | a mode is about    | y of an example              | read by |
|----------------|--------------------|------------------------------|---------|
| classification | a label            | one-hot                      | softmax |
| intents        | a label            | multi-hot, of norm at most 2 | sigmoid |
| tagging        | O or a type        | one-hot over B- and I- tags  | softmax |

A client averages y over the examples of a mode: a distribution over labels, intent frequencies or
tag frequencies. An average of vectors in a ball lies in the ball, so clipping y to B_y bounds it.
What is sent is the difference from what is usual for the mode; where the mode settles the answer,
as in classification, the difference is zero and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_ball, onto_simplex
from cslr.numerics.mixture import Mixture
from cslr.protocol.step1_list import GroupLists, shares_of

if TYPE_CHECKING:
    from cslr.protocol.ports import Examples, Request

__all__ = ["Family", "FamilyName", "candidate_targets", "group_targets", "label_targets"]

OUTSIDE: Final = 0.8
"""Share of the words of running text that are part of no name."""

FamilyName = Literal["classification", "intents", "tagging"]


def label_targets(labels: IntArray, count: int) -> FloatArray:
    """Labels (n,) -> one-hot distributions (n, c)."""
    return np.eye(count, dtype=np.float32)[labels]


@dataclass(frozen=True)
class Family:
    """The prediction task over c labels; for tagging the first is O."""

    name: FamilyName
    labels: int  # c

    @property
    def outputs(self) -> int:
        """What a head scores: labels, or the tags O, B-1, I-1, B-2, ..."""
        return 2 * self.labels - 1 if self.name == "tagging" else self.labels

    @property
    def sigmoid(self) -> bool:
        """Whether outputs are answered one by one, and not against each other."""
        return self.name == "intents"

    def sent(self, pooled: bool = False) -> int:
        """Number of target values y that a client sends per mode: none if the label implies them.

        pooled: whether a mode may be about several labels.
        """
        return self.outputs if pooled or self.name != "classification" else 0

    @property
    def usual(self) -> FloatArray:
        """(c, outputs) what is publicly expected of y in the modes of each label."""
        return np.stack([self.usual_of((label,)) for label in range(self.labels)])

    @property
    def shares(self) -> FloatArray:
        """(c,) how often labels are publicly expected to be met."""
        if self.name != "tagging" or self.labels == 1:
            return np.full(self.labels, 1.0 / self.labels)
        names = np.full(self.labels - 1, (1.0 - OUTSIDE) / (self.labels - 1))
        return np.concatenate([[OUTSIDE], names])

    def usual_of(self, group: Sequence[int]) -> FloatArray:
        """(outputs,) what is publicly expected of y in a mode about any label of the group."""
        usual = np.zeros(self.outputs)
        for label in group:
            if self.name == "tagging" and label > 0:
                usual[2 * label - 1 : 2 * label + 1] += 0.5
            else:
                usual[label] += 1.0
        return usual / len(group)

    def label_of_output(self) -> IntArray:
        """(outputs,) the label each output is about."""
        outputs = np.arange(self.outputs)
        return (outputs + 1) // 2 if self.name == "tagging" else outputs

    @property
    def bound(self) -> float:
        """B_y: no y is longer; four intents at once are not cut."""
        return 2.0 if self.name == "intents" else 1.0

    def targets(self, answers: Sequence[Sequence[int]]) -> FloatArray:
        """y (n, outputs) of n examples, each with the outputs that are right for it, clipped."""
        y = np.zeros((len(answers), self.outputs), dtype=np.float32)
        for row, answer in enumerate(answers):
            y[row, list(answer)] = 1.0
        norm = np.linalg.norm(y, axis=1, keepdims=True)
        clipped: FloatArray = y * np.minimum(1.0, self.bound / np.maximum(norm, 1e-12))
        return clipped

    def projected(self, y: FloatArray) -> FloatArray:
        """The nearest possible targets: each row a distribution, or each entry in [0, 1]."""
        return np.clip(y, 0.0, 1.0) if self.sigmoid else onto_simplex(y)


def group_targets(
    examples: Examples, x: FloatArray, group: GroupLists, request: Request
) -> FloatArray:
    """(b, L, sent) the targets of b clients' candidates about a group, with coordinates x of it.

    They are the examples' answers, or a head's clipped logits where the request has a head.
    """
    if request.paper is not None:
        return _written_targets(examples, x, group, request)
    y, sent = examples.targets, request.layout.targets
    usual = request.family.usual_of(group.group)
    if request.head is not None:
        logits = request.head.scores(group.of(examples.z))
        logits = logits - logits.mean(axis=-1, keepdims=True)
        y, usual = onto_ball(logits, 1.0), np.zeros(logits.shape[-1])
    elif y is not None and sent:  # else the label settles the target
        y = group.of(y)
    return candidate_targets(y, x, group.mine, group.lists, usual, sent)


def _written_targets(
    examples: Examples, x: FloatArray, group: GroupLists, request: Request
) -> FloatArray:
    """(b, L, outputs) as the paper has them: mean logits clipped to B_g, tag frequencies, masks.

    Texts of one label each, in a study without a head, have their labels' distribution.
    """
    assert request.paper is not None
    family, y = request.family, examples.targets
    logits = family.name == "classification" and request.head is not None
    if logits and request.head is not None:
        y = request.head.scores(examples.z)
    elif y is None and family.outputs == family.labels:
        y = label_targets(examples.labels.ravel(), family.labels)
        y = y.reshape(*examples.labels.shape, -1)
    nothing = np.zeros(family.outputs)
    mean = candidate_targets(y, x, group.mine, group.lists, nothing, family.outputs)
    return onto_ball(mean, request.paper.b_g) if logits else mean


def candidate_targets(
    y: FloatArray | None,
    x: FloatArray,
    mask: BoolArray,
    lists: Mixture,
    usual: FloatArray,
    sent: int,
) -> FloatArray:
    """(b, L, sent) each candidate's mean target beyond the usual one, (outputs,).

    y: (b, n, outputs) of the examples x (b, n, r) under ``mask``, shared among the candidates as
    the examples are. None: nothing beyond the usual.
    """
    if y is None or not sent:
        return np.zeros((*lists.weights.shape, sent))
    beyond = (y - usual) * mask[..., None]
    if lists.weights.shape[-1] == 1:
        counts = np.maximum(mask.sum(axis=-1), 1)[:, None, None]
        alone: FloatArray = beyond.sum(axis=1, keepdims=True) / counts
        return alone
    shares = shares_of(lists, x, mask)
    mass = np.swapaxes(shares, -1, -2)  # (b, L, n)
    mean: FloatArray = mass @ beyond / np.maximum(mass.sum(axis=-1, keepdims=True), 1e-12)
    return mean

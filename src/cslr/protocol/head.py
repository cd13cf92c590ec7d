"""The task head: what it predicts, two layers over frozen embeddings, and how they are trained.

A ``Family`` says what the bounded vector y is that a head should predict (paper, Section 4.2):

| family         | a mode is about    | y of an example              | read by |
|----------------|--------------------|------------------------------|---------|
| classification | a label            | one-hot                      | softmax |
| intents        | a label            | multi-hot, of norm at most 2 | sigmoid |
| tagging        | O or a type        | one-hot over B- and I- tags  | softmax |

A head (paper, Appendix E: 384 -> 128 -> C) is plain arrays; using it and training it need NumPy
only. Gradients are computed for any number of heads at once: leading dimensions are heads, which do
not mix; n are rows, o outputs, h hidden units. Adam works on stacks of arrays, in place and in
float32. Reference: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015,
Algorithm 1, with β₁ = 0.9, β₂ = 0.999, ε = 1e-8. The moments are stored without their factors
1 − β; step size and ε are rescaled instead. This takes fewer passes over the arrays and gives the
steps of ``torch.optim.Adam`` up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.linear_algebra import onto_simplex

__all__ = [
    "Adam",
    "Batch",
    "Family",
    "FamilyName",
    "Head",
    "HeadSettings",
    "contrast_slope",
    "cross_entropy_slope",
    "initial_head",
    "label_targets",
    "linear_head",
    "mixed",
    "relative_spread",
    "rule_of",
    "sigmoid",
    "softmax",
    "train_head",
    "zero_shot_head",
]

OUTSIDE: Final = 0.8
"""Share of the words of running text that are part of no entity."""

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
        """Number of scores of a head: one per label, or per tag O, B-1, I-1, B-2, ..."""
        return 2 * self.labels - 1 if self.name == "tagging" else self.labels

    @property
    def sigmoid(self) -> bool:
        """Whether each output is a decision of its own (sigmoid), not one of a softmax."""
        return self.name == "intents"

    def sent(self, pooled: bool = False) -> int:
        """Number of target values y that a client sends per mode: 0 if the label implies them.

        pooled: whether a mode may be about several labels.
        """
        return self.outputs if pooled or self.name != "classification" else 0

    @property
    def usual(self) -> FloatArray:
        """(c, outputs) the publicly expected y of each label's modes."""
        return np.stack([self.usual_of((label,)) for label in range(self.labels)])

    @property
    def shares(self) -> FloatArray:
        """(c,) the publicly expected frequencies of labels."""
        if self.name != "tagging" or self.labels == 1:
            return np.full(self.labels, 1.0 / self.labels)
        names = np.full(self.labels - 1, (1.0 - OUTSIDE) / (self.labels - 1))
        return np.concatenate([[OUTSIDE], names])

    def usual_of(self, group: Sequence[int]) -> FloatArray:
        """(outputs,) the publicly expected y of a mode about any label of the group."""
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
        """B_y: the largest norm of y; 2 leaves up to four intents of one text unclipped."""
        return 2.0 if self.name == "intents" else 1.0

    def targets(self, answers: Sequence[Sequence[int]]) -> FloatArray:
        """y (n, outputs) of n examples from the correct outputs of each, clipped to B_y."""
        y = np.zeros((len(answers), self.outputs), dtype=np.float32)
        for row, answer in enumerate(answers):
            y[row, list(answer)] = 1.0
        norm = np.linalg.norm(y, axis=1, keepdims=True)
        clipped: FloatArray = y * np.minimum(1.0, self.bound / np.maximum(norm, 1e-12))
        return clipped

    def projected(self, y: FloatArray) -> FloatArray:
        """The nearest valid targets: each row a distribution, or each entry in [0, 1]."""
        return np.clip(y, 0.0, 1.0) if self.sigmoid else onto_simplex(y)


# -- the head and its training ---------------------------------------------------------------------

Batch = tuple[FloatArray, FloatArray]
"""Embeddings (n, d) and targets (n, c)."""


@dataclass(frozen=True)
class HeadSettings:
    """Shape and step size of a head."""

    hidden: int = 128
    learning_rate: float = 3e-4
    batch: int = 256
    sigmoid: bool = False
    """Whether each output is a binary decision of its own; otherwise a softmax over all."""


@dataclass(frozen=True)
class Head:
    """x ↦ relu(x W₁ + b₁) W₂ + b₂: logits over the outputs of a family."""

    weights1: FloatArray  # (d, h)
    bias1: FloatArray  # (h,)
    weights2: FloatArray  # (h, c)
    bias2: FloatArray  # (c,)

    def scores(self, z: FloatArray) -> FloatArray:
        """Logits (n, c) of embeddings (n, d)."""
        hidden = np.maximum(z @ self.weights1 + self.bias1, 0.0)
        return hidden @ self.weights2 + self.bias2


def initial_head(
    dimension: int, labels: int, settings: HeadSettings, rng: np.random.Generator
) -> Head:
    """A head with weights uniform in ±1/√fan-in; deterministic given the random stream."""

    def uniform(fan_in: int, *shape: int) -> FloatArray:
        limit = 1.0 / np.sqrt(fan_in)
        return rng.uniform(-limit, limit, size=shape).astype(np.float32)

    hidden = settings.hidden
    return Head(
        uniform(dimension, dimension, hidden),
        uniform(dimension, hidden),
        uniform(hidden, hidden, labels),
        uniform(hidden, labels),
    )


def train_head(
    start: Head,
    passes: Iterable[Batch],
    settings: HeadSettings,
    rng: np.random.Generator,
    on_pass: Callable[[], None] = lambda: None,
) -> Head:
    """Adam on the (binary) cross-entropy against the targets; a pass is split into random batches.

    Deterministic for the same start, passes and stream. In float32; weights differ from those of
    the same training in torch by rounding (relative 1e-6 in the tests).
    """
    adam = Adam(list(vars(start).values()), settings.learning_rate)
    for z, targets in passes:
        order = rng.permutation(len(z))
        rows = np.ascontiguousarray(z[order], dtype=np.float32)
        shuffled_targets = np.ascontiguousarray(targets[order], dtype=np.float32)
        for begin in range(0, len(order), settings.batch):
            batch = slice(begin, begin + settings.batch)
            _fill_gradients(adam, rows[batch], shuffled_targets[batch], settings.sigmoid)
            adam.step()
        on_pass()
    return Head(*(array.copy() for array in adam.parameters))


def _fill_gradients(adam: Adam, z: FloatArray, targets: FloatArray, one_by_one: bool) -> None:
    """The gradients of the loss of one batch, by back-propagation."""
    weights1, bias1, weights2, bias2 = adam.parameters
    to_weights1, to_bias1, to_weights2, to_bias2 = adam.gradients
    hidden = z @ weights1
    hidden += bias1
    np.maximum(hidden, 0.0, out=hidden)
    slope = cross_entropy_slope(hidden @ weights2 + bias2, targets, one_by_one)
    np.matmul(hidden.T, slope, out=to_weights2)
    slope.sum(axis=0, out=to_bias2)
    below = slope @ weights2.T
    below *= hidden > 0
    np.matmul(z.T, below, out=to_weights1)
    below.sum(axis=0, out=to_bias1)


# -- linear rules as heads -------------------------------------------------------------------------


def zero_shot_head(texts: FloatArray) -> Head:
    """A head whose scores are the similarities to the label texts (c, d)."""
    return linear_head(texts, np.zeros(len(texts)))


def linear_head(weights: FloatArray, bias: FloatArray) -> Head:
    """The rule z Wᵀ + b of weights (c, d) and bias (c,), as a head: u = relu(u) − relu(−u)."""
    rule, says = weights.T.astype(np.float32), np.eye(len(weights), dtype=np.float32)
    return Head(
        np.concatenate([rule, -rule], axis=1),
        np.zeros(2 * len(weights), dtype=np.float32),
        np.concatenate([says, -says]),
        bias.astype(np.float32),
    )


def rule_of(head: Head) -> tuple[FloatArray, FloatArray]:
    """W (c, d) and b (c,) of a head that is a linear rule.

    Its hidden units come in pairs u, −u whose output weights have opposite signs, or have zero
    output weights.
    """
    says = head.weights2.astype(np.float64) / 2
    return (head.weights1 @ says).T, head.bias1 @ says + head.bias2


def relative_spread(head: Head, other: Head, z: FloatArray, known: BoolArray) -> float:
    """The spread of the scores of ``head`` on samples z (n, d), in units of that of ``other``.

    known: (c,) the labels whose scores the spread is measured on.
    """
    scores = [each.scores(z)[:, known] for each in (head, other)]
    wide = [np.square(each - each.mean(axis=1, keepdims=True)).mean() for each in scores]
    return float(np.sqrt(wide[0] / max(wide[1], 1e-12)))


def mixed(head: Head, other: Head, share: float, factor: float = 1.0) -> Head:
    """(1 − share) × the scores of ``head`` + share × factor × those of ``other``, as one head."""
    scale, kind = share * factor, head.weights2.dtype
    return Head(
        np.concatenate([head.weights1, other.weights1], axis=1),
        np.concatenate([head.bias1, other.bias1]),
        np.concatenate([(1 - share) * head.weights2, scale * other.weights2]).astype(kind),
        ((1 - share) * head.bias2 + scale * other.bias2).astype(kind),
    )


# -- gradients of losses, and Adam -----------------------------------------------------------------

FIRST: Final = 0.9  # β₁
SECOND: Final = 0.999  # β₂
LEAST: Final = 1e-8  # ε
BLOCK: Final = 1 << 16
"""Parameters that are updated at a time, so that all their state stays in the cache."""


class Adam:
    """Adam for several arrays; values and gradients are views into one flat vector each.

    All operations are elementwise, so models that are stacked in an array do not mix.
    """

    def __init__(self, start: Sequence[FloatArray], learning_rate: float) -> None:
        """start: the initial arrays, of any shapes; they are copied."""
        shapes = [array.shape for array in start]
        count = sum(array.size for array in start)
        self._flat, self._slopes, self._mean, self._square = np.zeros((4, count), np.float32)
        self._scratch = np.empty(min(BLOCK, count), dtype=np.float32)
        self._rate = learning_rate
        self.parameters = _views(self._flat, shapes)
        self.gradients = _views(self._slopes, shapes)
        """Filled by the caller before every step."""
        self.restart(start)

    def restart(self, start: Sequence[FloatArray]) -> None:
        """Forget all steps, and start again at copies of these arrays, of the same shapes."""
        for array, first in zip(self.parameters, start, strict=True):
            array[...] = first
        self._steps = 0

    def step(self) -> None:
        """One step with the gradients that the caller has filled in."""
        self._steps += 1
        root = math.sqrt((1.0 - SECOND**self._steps) / (1.0 - SECOND))
        share = (1.0 - FIRST) / (1.0 - FIRST**self._steps)
        length, least = np.float32(-self._rate * share * root), np.float32(LEAST * root)
        for begin in range(0, len(self._flat), BLOCK):
            part = slice(begin, begin + BLOCK)
            slope, mean, square = self._slopes[part], self._mean[part], self._square[part]
            change = self._scratch[: len(slope)]
            if self._steps == 1:  # the moments of earlier steps are zero
                mean[:] = slope
                np.square(slope, out=square)
                np.abs(slope, out=change)  # the root of the square
            else:
                mean *= np.float32(FIRST)
                mean += slope
                square *= np.float32(SECOND)
                square += np.square(slope, out=change)
                np.sqrt(square, out=change)
            change += least
            np.divide(mean, change, out=change)
            change *= length
            self._flat[part] += change


def _views(flat: FloatArray, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    """Views of these shapes into consecutive parts of a flat vector."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        flat[end - math.prod(shape) : end].reshape(shape)
        for end, shape in zip(ends, shapes, strict=True)
    ]


def softmax(scores: FloatArray) -> FloatArray:
    """(..., o) the softmax of scores (..., o)."""
    shares: FloatArray = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(scores: FloatArray) -> FloatArray:
    """1 / (1 + exp(−s)) without overflow, to full relative precision in both tails."""
    small = np.exp(-np.abs(scores))
    answer: FloatArray = np.where(scores >= 0, 1.0, small) / (1.0 + small)
    return answer


def cross_entropy_slope(
    scores: FloatArray, targets: FloatArray, one_by_one: bool, weights: FloatArray | None = None
) -> FloatArray:
    """∂/∂scores (..., n, o) of the mean over rows of the cross-entropy against targets (..., n, o).

    one_by_one: binary cross-entropy, also averaged over outputs; otherwise that of the softmax,
    whose targets need not sum to one. weights: (..., n) factors of the rows instead of 1 / n.
    """
    n, outputs = scores.shape[-2:]
    if one_by_one:
        slope: FloatArray = sigmoid(scores) - targets
        slope /= np.float32(outputs if weights is not None else n * outputs)
    else:
        slope = softmax(scores)
        slope *= targets.sum(axis=-1, keepdims=True)
        slope -= targets
        if weights is None:
            slope /= np.float32(n)
    if weights is not None:
        slope *= weights[..., None]
    return slope


def contrast_slope(hidden: FloatArray, labels: IntArray, temperature: float) -> FloatArray:
    """∂/∂hidden (..., n, h) of the mean supervised contrastive loss (Khosla et al. 2020).

    labels: (n,). Samples of the same label attract each other, others repel each other.
    """
    n = len(labels)
    norm = np.maximum(np.linalg.norm(hidden, axis=-1, keepdims=True), np.float32(1e-12))
    unit = hidden / norm
    alike = unit @ np.swapaxes(unit, -1, -2) / np.float32(temperature)  # (..., n, n)
    itself = np.eye(n, dtype=np.bool_)
    same = ((labels[:, None] == labels) & ~itself).astype(np.float32)
    count = np.maximum(same.sum(axis=-1, keepdims=True), 1)
    slope = softmax(np.where(itself, np.float32(-1e9), alike))
    slope *= same.sum(axis=-1, keepdims=True) / count
    slope -= same / count
    slope /= np.float32(n * temperature)
    pull: FloatArray = (slope + np.swapaxes(slope, -1, -2)) @ unit
    pull -= unit * (pull * unit).sum(axis=-1, keepdims=True)
    pull /= norm
    return pull

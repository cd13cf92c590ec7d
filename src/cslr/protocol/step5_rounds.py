"""Step 5 by noisy gradient rounds: a linear head without a replay.

In each round every unit (a client or a person) sends the gradient of the cross-entropy of its own
rows, clipped, at the server's linear rule

    s(z) = Wᵀ x,   x = [(z − c) / ρ, BIAS],   c, ρ: mean and root mean square size of public text

The server sees the noised sum and updates W, which starts at the zero-shot rule, with the label
texts as columns, and moves as far as the noise allows. Along the i-th principal direction of public
text, of variance λᵢ, the gradient is read as a noisy measurement of the distance to the best rule,
E[g] = aᵢ (w − w*) with aᵢ = CURVATURE · λᵢ, and w* is estimated by a Kalman filter:

    kᵢ = Pᵢ aᵢ / ((1 + DAMPING) aᵢ² Pᵢ + rᵢ),   w ← w − kᵢ g,   Pᵢ ← (1 − kᵢ aᵢ) Pᵢ

Pᵢ is the remaining uncertainty about w*. rᵢ is the variance of g, from noise, few rows and
differences between tasks. Without noise these are damped Newton steps; if noise dominates the
gradient, the rule stays at its start. All of these numbers are public.

The part V of |w − w₁|² that is due to noise is known, w₁ being the start. Predictions use
w₁ + s (w − w₁) with s = 1 − V / |w − w₁|² (James and Stein); further rounds start from w.

Rounds learn from the rows of the current task alone. Texts are therefore learnt so only where every
task has all labels. In tagging tasks may have types of their own: a task then trains the columns of
its own tags against O, whose column stays, with a softmax over these. Words of O are in every task,
so each type learns what it is not, and no task changes the columns of another task's types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
from scipy.special import expit, softmax

from cslr.arrays import FloatArray, IntArray
from cslr.protocol.head import Family, Head, label_targets
from cslr.protocol.ports import Examples

__all__ = [
    "GradientRound",
    "LinearRule",
    "LinearSpace",
    "NoisyGradient",
    "linear_facts",
    "trained_outputs",
]

BIAS: Final = 0.3
"""The constant input, small so that biases change slowly."""
START: Final = 4.0
"""Length of a column of W at the start."""
USUAL: Final = 0.6
"""Factor of the log of public output frequencies in the biases at the start, with a softmax."""
FLOOR: Final = 1e-2
"""Least variance of a direction, as a share of the largest."""
REACH: Final = 30.0
"""Expected length of w* − w at the start, for each column, if the signal is strong."""
BIAS_REACH: Final = 1.5
"""The same for a bias."""
WEAK: Final = 60.0
"""Signal (units of a task over the noise multiplier of one release) at which half of REACH is
expected: with less signal a rule that moves far fits noise, and ends worse than it started."""
REACH_POWER: Final = 0.5
"""The best rule is expected further away along directions of small variance: P ∝ λ^(−this)."""
CURVATURE: Final = 0.25
"""Second derivative of the loss, in units of the inputs' variance: p (1 − p) at p = ½."""
DAMPING: Final = 4.0
"""Without noise a step is 1 / (1 + this) of a Newton step."""
TASK_EFFECT: Final = 0.1
"""Variance of the best rule between tasks, as a share of the uncertainty at the start."""
CHANCE: Final = 0.3
"""Sampling variance of a gradient over few rows, as a share of that of independent rows."""


def linear_facts() -> dict[str, float]:
    """The constants by name, for the plan in the ledger."""
    return {
        "bias": BIAS,
        "start": START,
        "usual": USUAL,
        "floor": FLOOR,
        "reach": REACH,
        "bias reach": BIAS_REACH,
        "weak": WEAK,
        "reach power": REACH_POWER,
        "curvature": CURVATURE,
        "damping": DAMPING,
        "task effect": TASK_EFFECT,
        "chance": CHANCE,
    }


def trained_outputs(family: Family, labels: Sequence[int]) -> IntArray:
    """The outputs whose columns the rounds of a task with these labels train.

    All of them, except in tagging where a task has some types only: then those of its types.
    """
    of_output = family.label_of_output()
    own = np.isin(of_output, [0, *labels])  # every task has words of O
    some = family.name == "tagging" and not own.all()
    return np.flatnonzero(own & (of_output > 0)) if some else np.arange(family.outputs)


@dataclass(frozen=True, eq=False)
class LinearSpace:
    """PUBLIC. The inputs of a linear head, and the variance of public text in them."""

    centre: FloatArray  # (d,) c
    size: float  # ρ
    directions: FloatArray  # (d, d) principal directions of public text, in columns
    variance: FloatArray  # (d + 1,) λ, of the constant input last

    @classmethod
    def of(cls, public: FloatArray) -> Self:
        """The inputs defined by embedded public sentences or words (n, d)."""
        z = public.astype(np.float64)
        centre = z.mean(axis=0)
        apart = z - centre
        size = float(np.sqrt(np.square(apart).sum(axis=1).mean()))
        values, vectors = np.linalg.eigh(apart.T @ apart / (len(z) * size**2))
        values = np.maximum(values, FLOOR * values.max())
        return cls(centre, size, vectors, np.append(values, BIAS**2))

    def inputs(self, z: FloatArray) -> FloatArray:
        """(..., d + 1) of embeddings (..., d)."""
        x = (z.astype(np.float64) - self.centre) / self.size
        constant = np.full((*x.shape[:-1], 1), BIAS)
        return np.concatenate([x, constant], axis=-1)


@dataclass(frozen=True, eq=False)
class GradientRound:
    """PUBLIC. The request for a gradient round: the rule at which units compute the gradient."""

    weights: FloatArray  # (d + 1, outputs) W
    space: LinearSpace
    family: Family
    trained: IntArray  # the outputs whose columns are trained

    @property
    def size(self) -> int:
        """D: the numbers of a gradient."""
        return len(self.weights) * len(self.trained)

    @cached_property
    def _outputs(self) -> IntArray:
        """The outputs that compete for a row: the trained ones, and O in tagging."""
        return self.trained if len(self.trained) == self.family.outputs else np.r_[0, self.trained]

    def updates(self, examples: Examples) -> FloatArray:
        """(b, D) the gradient of each unit's loss; zeros for a unit without rows.

        The loss is the mean over a unit's rows. Most words of a sentence are O and easy, so in
        tagging it is the sum divided by √n, with O down-weighted to the expected total of all
        entities. Words of types that are not trained are left out. No operation mixes two units.
        """
        y = examples.targets
        if y is None:
            y = label_targets(examples.labels.ravel(), self.family.labels)
            y = y.reshape(*examples.labels.shape, -1)
        x = self.space.inputs(examples.z)  # (b, n, d + 1)
        y, weights = (np.take(each, self._outputs, axis=-1) for each in (y, self.weights))
        wrong = self._answers(x @ weights) - (y > 0 if self.family.sigmoid else y)
        count = np.maximum(examples.mask.sum(axis=1), 1)
        share = 1 / (np.sqrt(count) if self.family.name == "tagging" else count)
        weight = examples.mask * share[:, None]
        if self.family.name == "tagging":
            weight = weight * (y @ _tag_weights(self.family)[self._outputs])
        wrong *= weight[..., None]
        wrong = wrong[..., len(self._outputs) - len(self.trained) :]  # O comes first
        gradient: FloatArray = np.swapaxes(x, -1, -2) @ wrong  # (b, d + 1, trained)
        return gradient.reshape(len(gradient), -1)

    def _answers(self, scores: FloatArray) -> FloatArray:
        answers: FloatArray = expit(scores) if self.family.sigmoid else softmax(scores, axis=-1)
        return answers


@dataclass(frozen=True)
class NoisyGradient:
    """PUBLIC. How a released mean gradient was measured."""

    noise: float
    """Variance of the noise in each of its coordinates."""
    units: float
    """Expected number of units it is averaged over."""
    rounds: int
    """Rounds of the task, whose gradients use the same rows."""


@dataclass(frozen=True, eq=False)
class LinearRule:
    """PUBLIC. The current linear rule, in principal directions, and its uncertainty."""

    space: LinearSpace
    family: Family
    mean: FloatArray  # (d + 1, outputs)
    unknown: FloatArray  # (d + 1, outputs) P
    at_start: FloatArray  # (d + 1, 1) P before the first gradient
    first: FloatArray  # (d + 1, outputs) the mean before the first gradient
    noise: FloatArray  # (d + 1, outputs) variance of ``mean`` due to noise so far

    @classmethod
    def start(
        cls,
        space: LinearSpace,
        family: Family,
        texts: FloatArray | None,
        signal: float = math.inf,
    ) -> Self:
        """The zero-shot rule of label texts (c, d); without texts, public frequencies alone.

        signal: expected units of a task over the noise multiplier of one release about it.
        """
        mean = np.zeros((len(space.variance), family.outputs))
        if texts is not None:
            columns = texts.astype(np.float64) - space.centre
            columns /= np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1e-12)
            columns = START * columns[family.label_of_output()]
            if not family.sigmoid:
                columns -= columns.mean(axis=0)
            mean[:-1] = (columns @ space.directions).T
        mean[-1] = _usual_scores(family) / BIAS
        at_start = _unknown_at_start(space, signal)[:, None]
        unknown = np.broadcast_to(at_start, mean.shape)
        return cls(space, family, mean, unknown, at_start, mean, np.zeros(mean.shape))

    def turned(self, columns: FloatArray) -> LinearRule:
        """This start with the directions (outputs, d) of another rule, at the same total norm."""
        mean = (columns @ self.space.directions).T
        longer = np.linalg.norm(self.mean[:-1]) / np.maximum(np.linalg.norm(mean), 1e-12)
        turned = np.concatenate([longer * mean, self.mean[-1:]])
        return replace(self, mean=turned, first=turned)

    @property
    def weights(self) -> FloatArray:
        """(d + 1, outputs) W of the inputs."""
        return np.concatenate([self.space.directions @ self.mean[:-1], self.mean[-1:]])

    def question(self, labels: Sequence[int] | None = None) -> GradientRound:
        """The request for the next round of a task with these labels, by default with all."""
        every = range(self.family.labels)
        trained = trained_outputs(self.family, every if labels is None else labels)
        return GradientRound(self.weights, self.space, self.family, trained)

    def moved(
        self, gradient: FloatArray, measured: NoisyGradient, trained: IntArray | None = None
    ) -> LinearRule:
        """The rule updated with a released mean gradient (D,) of the trained columns, or of all."""
        if trained is None:
            trained = np.arange(self.family.outputs)
        plain = gradient.reshape(len(self.mean), len(trained))
        turned = np.concatenate([self.space.directions.T @ plain[:-1], plain[-1:]])
        curvature = CURVATURE * self.space.variance[:, None]
        by_chance = CHANCE * measured.rounds * curvature / measured.units
        by_task = measured.rounds * curvature**2 * TASK_EFFECT * self.at_start
        spread = measured.noise + by_chance + by_task
        unknown, mean, noise = self.unknown.copy(), self.mean.copy(), self.noise.copy()
        gain = unknown[:, trained] * curvature
        gain /= (1 + DAMPING) * curvature**2 * unknown[:, trained] + spread
        mean[:, trained] -= gain * turned
        unknown[:, trained] *= 1 - gain * curvature
        noise[:, trained] *= (1 - gain * curvature) ** 2
        noise[:, trained] += gain**2 * measured.noise
        return replace(self, mean=mean, unknown=unknown, noise=noise)

    def without_noise(self) -> LinearRule:
        """The rule with its distance from the start reduced by the noise; biases stay."""
        away = self.mean[:-1] - self.first[:-1]
        moved, by_noise = float(np.square(away).sum()), self.noise[:-1].sum()
        kept = max(0.0, 1.0 - by_noise / moved) if moved > 0 else 1.0
        columns = self.first[:-1] + kept * away
        return replace(self, mean=np.concatenate([columns, self.mean[-1:]]))

    def head(self) -> Head:
        """The rule as a head with two hidden units per output: u = relu(u) − relu(−u)."""
        weights = self.weights
        direction = weights[:-1] / self.space.size
        offset = BIAS * weights[-1] - self.space.centre @ direction
        same = np.eye(self.family.outputs)
        return Head(
            np.concatenate([direction, -direction], axis=1).astype(np.float32),
            np.concatenate([offset, -offset]).astype(np.float32),
            np.concatenate([same, -same]).astype(np.float32),
            np.zeros(self.family.outputs, dtype=np.float32),
        )


def _tag_weights(family: Family) -> FloatArray:
    """(outputs,) weights of tags in the loss: O has less weight, as it occurs more often."""
    outside = family.shares[0]
    weights = np.ones(family.outputs)
    weights[0] = min(1.0, (1 - outside) / outside)
    return weights


def _usual_scores(family: Family) -> FloatArray:
    """(outputs,) scores of a text about which nothing is known, from public frequencies."""
    of_output = family.label_of_output()
    shares = family.shares[of_output] / np.bincount(of_output)[of_output]
    if family.sigmoid:
        odds: FloatArray = np.log(shares / np.maximum(1 - shares, 1e-3))
        return odds
    scores = USUAL * np.log(shares)
    centred: FloatArray = scores - scores.mean()
    return centred


def _unknown_at_start(space: LinearSpace, signal: float) -> FloatArray:
    """(d + 1,) variance of w* − w along each direction, and of a bias last."""
    values = space.variance[:-1]
    relative = (values / values.mean()) ** -REACH_POWER
    trusted = 1 / (1 + (WEAK / max(signal, 1e-12)) ** 2)
    columns: FloatArray = REACH**2 * relative / len(values)
    return trusted**2 * np.append(columns, BIAS_REACH**2)

"""NON-PRIVATE. The distance of a task's replay from the rows it represents (α_t of Theorem 5).

Theorem 5 bounds forgetting by TV(Q_t, Q*_t) and further terms. A total variation cannot be computed
from samples in hundreds of dimensions, but any classifier of rows and replay bounds it from below:

    TV ≥ P[rule says "row" | row] − P[rule says "row" | replay]

    means    the rule is logistic regression on the coordinates, trained on one half of the sample
             and tested on the other; it detects a wrong location of the replay
    shape    the same on four features: the squared length of x, the log density of Q_t at x, and
             the squared deviation of each from its mean over draws; it detects a wrong spread
    head     |error of the run's head on replay − on rows|: the difference that Theorem 5's proof
             bounds by α_t, for the head of this run
    labels   half the sum of absolute differences between the shares of labels

All four are lower bounds, up to the chance of a finite sample; ``low`` is at most the true value
with 95 % confidence, if rows are independent (words of a sentence are not quite). ``energy`` is
the energy distance over its largest possible value: 0 for equal distributions, 1 for points far
apart, and no bound on TV in either direction.

Distances other than ``labels`` use the rows' shares of labels on both sides, because the shares
enter a head separately. There is one rule per label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import expit, logsumexp
from scipy.stats import binomtest

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.numerics.mixture import log_density, sample
from cslr.protocol.head import Family, Head
from cslr.research.theory.kept import KeptReplay

__all__ = ["Quality", "VariationBound", "energy_distance", "logistic_rule", "quality", "told_apart"]

SAMPLES: Final = 1000
"""Rows of a task that are used at most, and as many draws of its replay."""
RIDGE: Final = 0.1
"""Penalty of the logistic regression: RIDGE/2 ‖w‖² is added to the mean loss."""


@dataclass(frozen=True)
class VariationBound:
    """A lower bound on a total variation: its estimate, and its lower 95 % confidence limit."""

    value: float
    low: float


@dataclass(frozen=True)
class Quality:
    """One task's replay against its evaluation rows."""

    rows: int
    means: VariationBound
    shape: VariationBound
    head: float  # NaN without a head
    labels: float
    energy: float


def quality(
    replay: KeptReplay,
    task: int,
    z: FloatArray,
    labels: IntArray,
    family: Family,
    head: Head | None,
    rng: np.random.Generator,
    *,
    samples: int = SAMPLES,
    together: IntArray | None = None,
) -> Quality:
    """The replay of a task against rows z (n, d) with these labels (n,).

    together: (n,) rows with the same number (words of a sentence) are in the same half.
    """
    joint = replay.joint(task)
    shares = np.bincount(labels, minlength=family.labels) / max(len(labels), 1)
    chosen = rng.permutation(len(z))[:samples]
    chosen = chosen[joint.sum(axis=0)[labels[chosen]] > 0]  # labels that the replay has
    if len(chosen) < 4:
        nothing = VariationBound(math.nan, math.nan)
        return Quality(len(chosen), nothing, nothing, math.nan, math.nan, math.nan)
    x, y = replay.into(z[chosen]), labels[chosen]
    drawn = _draw(replay, joint, y, rng)
    units = chosen if together is None else together[chosen]
    distinct, unit = np.unique(units, return_inverse=True)
    half = (rng.permutation(len(distinct)) < len(distinct) // 2)[unit]
    forms = _forms(replay, joint, np.stack([x, drawn]), y, half)
    return Quality(
        rows=len(chosen),
        means=told_apart(x, drawn, y, half),
        shape=told_apart(forms[0], forms[1], y, half),
        head=_head_gap(replay, head, x, drawn, y, family),
        labels=0.5 * float(np.abs(shares - joint.sum(axis=0)).sum()),
        energy=energy_distance(x, drawn),
    )


def told_apart(
    rows: FloatArray, drawn: FloatArray, groups: IntArray, half: BoolArray
) -> VariationBound:
    """How well rules trained on one half of the pairs tell rows from draws (n, p) on the other.

    groups: (n,) the rule that classifies row i and draw i; half: (n,) the pairs trained on.
    """
    says_row, says_drawn = np.zeros((2, len(rows)), dtype=np.bool_)
    for group in np.unique(groups):
        in_group = groups == group
        learnt = in_group & half
        if not learnt.any():
            continue  # no rule: everything is classified as a draw
        weights, offset = logistic_rule(rows[learnt], drawn[learnt])
        says_row[in_group] = rows[in_group] @ weights > offset
        says_drawn[in_group] = drawn[in_group] @ weights > offset
    count = int(np.sum(~half))
    right, wrong = int(says_row[~half].sum()), int(says_drawn[~half].sum())
    low = binomtest(right, count).proportion_ci(0.95).low
    high = binomtest(wrong, count).proportion_ci(0.95).high  # 2.5 % each: 95 % together
    return VariationBound(max(0.0, (right - wrong) / count), max(0.0, float(low - high)))


def logistic_rule(rows: FloatArray, drawn: FloatArray) -> tuple[FloatArray, float]:
    """Weights w (p,) and b such that x·w > b says "row", by penalised logistic regression.

    Minimises mean log(1 + exp(−s (x·w − b))) + RIDGE/2 ‖w‖² over standardised coordinates.
    """
    x = np.concatenate([rows, drawn]).astype(np.float64)
    sign = np.repeat([1.0, -1.0], [len(rows), len(drawn)])
    centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-12)
    x = np.hstack([(x - centre) / scale, np.ones((len(x), 1))])

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        score = sign * (x @ w)
        slope = -sign * expit(-score) / len(x)
        penalised = np.append(w[:-1], 0.0)
        value = np.logaddexp(0.0, -score).mean() + 0.5 * RIDGE * float(penalised @ penalised)
        return float(value), x.T @ slope + RIDGE * penalised

    coefficients = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    weights = coefficients[:-1] / scale
    return weights, float(weights @ centre - coefficients[-1])


def energy_distance(x: FloatArray, y: FloatArray) -> float:
    """(2 E‖X − Y‖ − E‖X − X'‖ − E‖Y − Y'‖) / 2 E‖X − Y‖ in [0, 1], for x (n, p) and y (n', p).

    Székely and Rizzo, 2013. Pairs of a point with itself are left out, so that the estimate is 0 on
    average for equal distributions; negative estimates are set to 0.
    """
    across = float(cdist(x, y).mean())
    within = sum(float(cdist(a, a).sum()) / max(len(a) * (len(a) - 1), 1) for a in (x, y))
    return max(0.0, 1.0 - within / (2.0 * across)) if across > 0 else 0.0


def _draw(
    replay: KeptReplay, joint: FloatArray, labels: IntArray, rng: np.random.Generator
) -> FloatArray:
    """(n, r) one draw of the replay for each label."""
    modes = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        of_label = labels == label
        share = joint[:, label] / joint[:, label].sum()
        modes[of_label] = rng.choice(len(share), size=int(of_label.sum()), p=share)
    return sample(replay.modes, modes, rng)


def _forms(
    replay: KeptReplay, joint: FloatArray, x: FloatArray, labels: IntArray, half: BoolArray
) -> FloatArray:
    """(2, n, 4) the four features of ``shape`` for rows and draws (2, n, r)."""
    at_modes = log_density(replay.modes, x)  # (2, n, K)
    with np.errstate(divide="ignore"):
        share = np.log(joint / np.maximum(joint.sum(axis=0), 1e-300))[:, labels].T  # (n, K)
    form = np.stack([np.square(x).sum(axis=-1), logsumexp(at_modes + share, axis=-1)], axis=-1)
    usual = form[1, half].mean(axis=0)
    return np.concatenate([form, np.square(form - usual)], axis=-1)


def _head_gap(
    replay: KeptReplay,
    head: Head | None,
    x: FloatArray,
    drawn: FloatArray,
    labels: IntArray,
    family: Family,
) -> float:
    """|error on draws − error on rows|, both in released coordinates; NaN without a head."""
    if head is None:
        return math.nan
    of_output = family.label_of_output()
    errors = [
        np.mean(of_output[head.scores(replay.lift(part)).argmax(axis=1)] != labels)
        for part in (x, drawn)
    ]
    return float(abs(errors[0] - errors[1]))

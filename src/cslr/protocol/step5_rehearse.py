"""Step 5: train a head on the replay (paper, Section 4.6).

The default head is trained on samples of Q_{1:t} only, which is post-processing: its end-to-end ε
is that of the replay release.

Label texts and public sentences cost nothing, so a head must not be worse than the rule that they
give without any client (the free rule). The head is mixed with that rule: if a release is mostly
noise, the rule dominates, and the less noise there is, the less it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.linear_algebra import SquareRoots
from cslr.protocol.head import (
    Batch,
    Family,
    Head,
    HeadSettings,
    linear_head,
    mixed,
    relative_spread,
    rule_of,
    train_head,
    zero_shot_head,
)
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.seeding import Seeds

__all__ = ["Rehearsal", "Sampler", "free_rule", "rehearse", "share_of_zero_shot"]

OVERLAP: Final = 1.5
"""Root mean square distance of a task's modes from the ``centre`` of their replay, in standard
deviations of their samples."""
WORDS_OVERLAP: Final = 1.0
"""The same for modes of words."""
TRUSTED: Final = 3.0
"""The same for modes of words whose means are known without noise.

O is far more frequent than the other labels, and a rare label needs evidence to outweigh its low
frequency: at a distance of one standard deviation O nearly always wins. How much evidence there is
depends on how well means are known, so the distance grows from ``WORDS_OVERLAP`` to this with the
replay's ``trust``."""
POOLED_RATE: Final = 1e-3
"""Least step size where modes are about several labels."""
POOLED_PASSES: Final = 5
"""Factor of the passes there."""
INTENT_SHARES: Final = 0.25
"""Factor of the log label frequencies with intents: samples overlap more than texts do, so scores
underestimate the evidence of a text."""
COMPANY: Final = 0.5
"""If at least this share of a label's texts have another label too, they are predicted together."""
BESIDE: Final = 3.0
"""A label beside the best one needs a score above this multiple of the largest wrong score."""
CALIBRATION: Final = 200
"""Samples of each label that the thresholds of independent outputs are calibrated on."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """How a head is trained on a replay. All of it is public."""

    start: Head
    settings: HeadSettings
    samples: int
    """Samples of each label in a pass; of each task, if modes are about several labels."""
    passes: int
    seeds: Seeds
    free: Head | None = None
    """The rule of label texts and public sentences, mixed into the head under heavy noise."""
    goes_on: bool = False
    """Whether clients train the head further: its thresholds are then calibrated, not strict."""


def rehearse(replay: Replay, space: PublicSpace, family: Family, how: Rehearsal) -> Head:
    """A head trained on fresh samples of the replay, initialised with the best linear rule.

    For intents the linear rule itself is the head if each label has one mode: many labels have few
    units, and training moved the rule towards noise. If no label has a mode, the initial head is
    returned.
    """
    if not replay.heard.any():
        return how.start
    settings, passes, seeds = how.settings, how.passes, how.seeds
    samples, of_words = how.samples, family.name == "tagging"
    sampler = Sampler.of(replay, space, of_words=of_words)
    start = sampler.linear_start(how.start, family)

    def draws() -> Iterator[Batch]:
        for number in range(passes):
            z, targets = sampler.draw(samples, seeds.at("replay", number))
            yield z, targets if replay.pooled else _distributions(targets)

    if replay.pooled:
        # There is no linear rule to start from: the head is learnt from soft targets.
        settings = replace(settings, learning_rate=max(settings.learning_rate, POOLED_RATE))
        passes *= POOLED_PASSES
    else:
        # A draw is one batch, because parts of it would not be balanced between classes. The loss
        # is a softmax over labels, even if several may be correct.
        size = samples * len(np.unique(sampler.kinds))
        settings = replace(settings, batch=size, sigmoid=False)
        if family.sigmoid and start is not how.start and not _several_modes(replay):
            passes = 0
    head = train_head(start, draws(), settings, seeds.at("batches"))
    if replay.pooled:  # targets contain the label frequencies
        return head
    draw = sampler.draw(CALIBRATION, seeds.at("thresholds"))
    if how.free is not None and not of_words:
        spread = relative_spread(head, how.free, draw[0], replay.heard)
        head = mixed(head, how.free, share_of_free(replay, TRUST_HALF), spread)
    count = INTENT_SHARES if family.sigmoid else 1.0
    bias = head.bias2 + count * np.log(_shares(replay, family))[family.label_of_output()]
    head = replace(head, bias2=bias.astype(head.bias2.dtype))
    if how.free is not None and of_words:  # the rule counts label frequencies itself
        head = mixed(head, how.free, share_of_free(replay, WORDS_TRUST_HALF))
    if not family.sigmoid:
        return head
    return _one_by_one(head, draw, _company(replay), strict=not how.goes_on)


def free_rule(
    prior: Replay,
    space: PublicSpace,
    family: Family,
    how: Rehearsal,
    texts: FloatArray,
    share: float,
) -> Head | None:
    """The rule that needs no client: from label texts, and from public sentences about the labels.

    prior: the replay before any release. texts: (c, d) label texts, whose zero-shot scores have
    weight ``share``. None if a mode may be about several labels. Tagging has another rule
    (``step5_rounds.LinearRule.start``), since public words are of no use for types of words.
    """
    if prior.pooled:
        return None
    zero_shot = zero_shot_head(texts)
    sampler = Sampler.of(prior, space)
    rule = sampler.linear_start(how.start, family)
    if rule is how.start:  # too narrow for a rule of all labels
        return zero_shot
    z, _ = sampler.draw(CALIBRATION, how.seeds.at("free"))
    spread = relative_spread(rule, zero_shot, z, prior.heard)
    return linear_head(*rule_of(mixed(rule, zero_shot, share, spread)))


def _several_modes(replay: Replay) -> bool:
    """Whether some label has several modes in a task, so that no linear rule is best."""
    pairs = np.stack([replay.tasks, replay.labels])
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])


def _distributions(targets: FloatArray) -> FloatArray:
    """(n, outputs) targets scaled to sum to one: the correct outputs share the probability."""
    shares: FloatArray = targets / np.maximum(targets.sum(axis=1, keepdims=True), 1e-12)
    return shares


def _one_by_one(head: Head, draw: Batch, company: FloatArray, strict: bool) -> Head:
    """``head`` with scores that are calibrated as logits of independent sigmoids.

    The new scores are a (s − s̄) + k C (s − s̄) − b, s̄ the mean score of a text and C the ``company``
    of labels. a, b and k are shared by all outputs and maximise the likelihood of a draw's targets.
    Without company they do not change the order of labels.

    If ``strict`` and without company, b is at least a × ``BESIDE`` × the largest score of a wrong
    label that is not the best one. Scores of texts vary more than those of samples, and otherwise
    labels would be predicted by chance beside the best one, which is always predicted.
    """
    z, targets = draw
    known = targets.any(axis=0)
    head = replace(
        head,
        weights2=head.weights2 - head.weights2[:, known].mean(axis=1, keepdims=True),
        bias2=head.bias2 - head.bias2[known].mean(),
    )
    scores = head.scores(z).astype(np.float64)
    along = (scores @ company)[:, known]
    scores = scores[:, known]
    right = targets[:, known].astype(np.float64)

    wrong = (right < 0.5) & (scores < scores.max(axis=1, keepdims=True))
    alone = not company.any()
    least = BESIDE * float(scores.max(where=wrong, initial=0.0)) if alone and strict else -np.inf

    def threshold(found: FloatArray) -> float:
        return float(max(found[1], np.exp(found[0]) * least))

    def loss(found: FloatArray) -> float:
        logits = np.exp(found[0]) * scores - threshold(found) + along * found[2:].sum()
        return float((np.logaddexp(0.0, logits) - right * logits).mean())

    from scipy.optimize import minimize  # takes a while to load, and few heads need it

    start = [0.0, float(scores.max(axis=1).mean()), *([] if alone else [0.0])]
    found = minimize(loss, start, method="Nelder-Mead").x
    combined = np.exp(found[0]) * np.eye(len(company)) + found[2:].sum() * company
    weights, bias = head.weights2 @ combined, head.bias2 @ combined - threshold(found)
    return replace(
        head,
        weights2=weights.astype(head.weights2.dtype),
        bias2=bias.astype(head.bias2.dtype),
    )


def _company(replay: Replay) -> FloatArray:
    """(outputs, outputs) how often texts of one label have each other label too.

    Frequencies below ``COMPANY`` are set to zero: they are noise, or too low to predict from.
    """
    outputs = replay.targets.shape[1]
    company = np.zeros((outputs, outputs))
    for label in np.unique(replay.labels):
        mine = replay.labels == label
        company[label] = np.average(
            replay.targets[mine], axis=0, weights=replay.weights[mine] + 1e-12
        )
    company[company < COMPANY] = 0.0
    np.fill_diagonal(company, 0.0)
    return company


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws (z, y) from Q_{1:t}, lifted back to embeddings.

    Released directions have the replay's means; the others have the public centre. The modes of a
    task are rescaled to a common distance from the ``centre`` of the replay. The distance that
    noise and shrinkage left them at carries no information about their labels, but a head would
    learn it as a bias for or against them. At ``OVERLAP`` standard deviations the classes overlap
    as real ones do, so that a head has to find the best direction between them and not just any
    that separates.
    """

    replay: Replay
    mean: FloatArray  # (K, d) embeddings
    shape: SquareRoots  # in the public basis
    scale: FloatArray  # (K, d) standard deviations relative to the public ones
    own: FloatArray | None  # (K, d, d) white noise -> noise of a mode, with full covariances
    basis: FloatArray  # (d, d)
    centre: FloatArray  # (d,)
    length: float | None = None
    """Norm that samples are scaled to; None: they are not scaled."""

    @classmethod
    def of(
        cls, replay: Replay, space: PublicSpace, among_texts: bool = False, of_words: bool = False
    ) -> Sampler:
        """The sampler of a replay in a public space.

        among_texts: whether samples are mixed with real embeddings. They must then be distributed
        as real ones, or a head would learn to separate replay from text instead of labels.
        of_words: whether modes are types of words, which occur in any topic, and O.
        """
        d, r = len(space.centre), replay.mean.shape[1]
        shape = space.whole_shape if of_words else space.shape
        shape = space.plain_shape if among_texts else shape
        if replay.tied is not None:
            shape = replay.tied
        spread = SquareRoots(shape)
        contrast, centre = np.zeros((2, len(replay.mean), d))
        contrast[:, :r], centre[:, :r] = replay.mean - replay.centre, replay.centre
        if not among_texts and replay.tied is None:  # else they are distributed as rows
            contrast *= _apart(contrast @ spread.whitening, replay, of_words)[:, None]
        coordinates = centre + contrast
        relative = np.repeat(replay.relative.mean(axis=1, keepdims=True), d, axis=1)
        relative[:, :r] = replay.relative
        return cls(
            replay,
            space.lift(coordinates).astype(np.float32),
            spread,
            np.sqrt(relative).astype(np.float32),
            _own_factors(replay, space),
            space.basis.astype(np.float32),
            space.centre,
        )

    @property
    def factor(self) -> FloatArray:
        """(d, d) white noise -> noise in the public basis."""
        return self.shape.factor

    @property
    def kinds(self) -> IntArray:
        """(K,) what is drawn equally often: labels, or tasks if a mode may have several labels."""
        return self.replay.tasks if self.replay.pooled else self.replay.labels

    def draw(self, samples: int, rng: np.random.Generator) -> Batch:
        """``samples`` (n_r) embeddings of each kind, with the targets of their modes.

        Kinds are drawn equally often, since their weights in the sums count clients and not how
        often a label occurs; modes within a kind are drawn by their weights. All kinds share the
        same noise, and every noise vector is used with its negative too, so that chance does not
        shift the samples of one class relative to another.
        """
        kinds = np.unique(self.kinds)
        modes = np.stack([self._modes_of(int(kind), samples, rng) for kind in kinds])
        half = rng.standard_normal((-(-samples // 2), self.mean.shape[1]), dtype=np.float32)
        white = np.concatenate([half, -half])[:samples]
        if self.own is not None:
            spread = _each(white, modes, self.own)
        elif (self.scale == self.scale[:, :1]).all():  # one scale per mode commutes with the basis
            spread = (white @ self.factor @ self.basis.T) * self.scale[modes, :1]
        else:
            spread = (white @ self.factor * self.scale[modes]) @ self.basis.T
        z = (self.mean[modes] + spread).reshape(-1, self.mean.shape[1])
        if self.length is not None:
            z *= self.length / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
        return z, self.replay.targets[modes.ravel()].astype(np.float32)

    def linear_start(self, head: Head, family: Family) -> Head:
        """``head`` with the linear rule that would be best if every label had one mode.

        The rule uses two hidden units per label, since u = relu(u) − relu(−u); the others keep
        their random input weights, and their output weights are zero. A head that is too narrow is
        returned as it is, and so is one for modes that are about several labels.
        """
        known = np.unique(self.replay.labels)
        units = 2 * len(known)
        if units > len(head.bias1) or self.replay.pooled:
            return head
        shape = self.factor.astype(np.float64) @ self.factor
        precision = np.linalg.inv(shape + self._between_tasks()) @ self.basis.T
        rules, offsets = [], []
        for label in known:
            mine = self.replay.labels == label
            mean = self.mean[mine].mean(axis=0).astype(np.float64)
            direction = self.basis @ (precision @ (mean - self.centre))
            direction /= float(np.mean(np.square(self.scale[mine])))
            rules.append(direction)
            offsets.append(-direction @ (self.centre + mean) / 2)
        rule, offset = np.stack(rules, axis=1), np.array(offsets)
        weights1, bias1 = head.weights1.copy(), head.bias1.copy()
        weights2, bias2 = np.zeros_like(head.weights2), np.zeros_like(head.bias2)
        weights1[:, :units] = np.concatenate([rule, -rule], axis=1)
        bias1[:units] = np.concatenate([offset, -offset])
        says = (family.label_of_output() == known[:, None]).astype(weights2.dtype)
        weights2[:units] = np.concatenate([says, -says])
        return Head(weights1, bias1, weights2, bias2)

    def _between_tasks(self) -> FloatArray:
        """(d, d) covariance, in the public basis, of the replay's centres."""
        centres = np.unique(self.replay.centre, axis=0)
        between = np.zeros((len(self.centre), len(self.centre)))
        r, apart = centres.shape[1], centres - centres.mean(axis=0)
        between[:r, :r] = apart.T @ apart / len(centres)
        return between

    def _modes_of(self, kind: int, samples: int, rng: np.random.Generator) -> IntArray:
        modes = np.flatnonzero(self.kinds == kind)
        weights = self.replay.weights[modes]
        total = weights.sum()
        share = weights / total if total > 0 else np.full(len(modes), 1 / len(modes))
        return rng.choice(modes, size=samples, p=share)


def _own_factors(replay: Replay, space: PublicSpace) -> FloatArray | None:
    """(K, d, d) white noise -> a mode's embeddings minus its mean; None without full covariances.

    The covariance is the mode's own in the released directions and public in the others.
    """
    if replay.covariance is None:
        return None
    d, r = len(space.centre), replay.mean.shape[1]
    whole = np.zeros((len(replay.mean), d, d))
    whole[:, :r, :r] = replay.covariance
    if r < d:
        whole[:, r:, r:] = space.shape[r:, r:]
    return (np.swapaxes(np.linalg.cholesky(whole), -1, -2) @ space.basis.T).astype(np.float32)


def _each(white: FloatArray, modes: IntArray, factors: FloatArray) -> FloatArray:
    """(kinds, n, d) the same white noise (n, d) for every kind, times the factors of its modes."""
    shaped = np.empty((modes.size, white.shape[1]), dtype=np.float32)
    for mode in np.unique(modes):
        chosen = np.flatnonzero(modes == mode)
        shaped[chosen] = white[chosen % len(white)] @ factors[mode]
    return shaped.reshape(*modes.shape, -1)


def _shares(replay: Replay, family: Family) -> FloatArray:
    """(c,) label frequencies relative to equal ones, since labels are drawn equally often.

    Within a task they follow its weights (which count clients more than examples) to the degree
    ``counted``; this is multiplied by the publicly expected frequencies.
    """
    total = np.zeros(len(replay.weights))
    for task in np.unique(replay.tasks):
        mine = replay.tasks == task
        count = len(np.unique(replay.labels[mine]))
        total[mine] = replay.weights[mine] / max(replay.weights[mine].sum(), 1e-12) * count
    shares = np.ones(family.labels)
    for label in np.unique(replay.labels):
        beyond = float(total[replay.labels == label].mean()) - 1.0
        shares[label] = max(1.0 + replay.counted * beyond, 0.05)
    shares *= family.shares * family.labels
    return shares


def _apart(whitened: FloatArray, replay: Replay, of_words: bool) -> FloatArray:
    """(K,) factors that bring whitened contrasts (K, d) to the wanted distance."""
    distance = _by_task(np.linalg.norm(_middles(whitened, replay), axis=1), replay.tasks)
    wanted: FloatArray | float = OVERLAP
    if of_words:
        trust = _by_task(replay.trust, replay.tasks)
        wanted = WORDS_OVERLAP + (TRUSTED - WORDS_OVERLAP) * trust
    apart: FloatArray = wanted / np.maximum(distance, 1e-12)
    return apart


def _middles(contrast: FloatArray, replay: Replay) -> FloatArray:
    """(K, d) for each mode the mean contrast of all modes of its task and label."""
    middles = contrast.copy()
    _, group = np.unique(np.stack([replay.tasks, replay.labels]), axis=1, return_inverse=True)
    for number in np.unique(group):
        mine = group.ravel() == number
        if mine.sum() > 1:
            weights = np.maximum(replay.weights[mine], 1e-12)
            middles[mine] = np.average(contrast[mine], axis=0, weights=weights)
    return middles


def _by_task(values: FloatArray, tasks: IntArray) -> FloatArray:
    """(K,) for each mode the root mean square of the values (K,) over its task.

    Modes without a task (−1) keep their absolute value.
    """
    squares = np.square(values)
    for task in np.unique(tasks[tasks >= 0]):
        squares[tasks == task] = squares[tasks == task].mean()
    return np.sqrt(squares)


# -- the free rule: label texts and public sentences -----------------------------------------------

TRUST_HALF: Final = 0.14
"""Trust in released modes, times their clarity, at which the free rule has weight ½."""
WORDS_TRUST_HALF: Final = 0.05
"""The same for modes of words."""
STEEP: Final = 3
"""Exponent with which its weight falls as trust grows."""
CLEAR_HALF: Final = 1.4
"""``clearness`` at which zero-shot has weight ½ in the free rule."""


def share_of_free(replay: Replay, half: float) -> float:
    """Weight of the free rule: 1 if no mode is known, nearly 0 if all are known well.

    half: trust, times clarity, at which it is ½.
    """
    trust = float(replay.trust[replay.known].mean()) if replay.known.any() else 0.0
    return 1.0 / (1.0 + (trust * replay.clarity / half) ** STEEP)


def share_of_zero_shot(clearness: float) -> float:
    """Weight of zero-shot in the free rule; the rest is the rule of the label prior.

    clearness: of the sentences that the prior is made from, see ``public_space.clearness``. If they
    are hardly about their labels, the label texts alone give the better rule.
    """
    return 1.0 / (1.0 + (clearness / CLEAR_HALF) ** 4)

"""Noisy gradient rounds of a linear head, and the rule that chooses them.

They are for streams in which every task has all labels, and for tagging. There no replay is needed,
and the whole budget is spent on gradients of a linear rule, which have far fewer coordinates than
statistics that would give a rule of the same quality. If labels of texts arrive task by task, such
rounds would forget all but the last task's labels, and the replay is needed. Types of names may
arrive task by task, since every task has words that are no names (``step5_rounds``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cslr.errors import ConfigError
from cslr.methods.method import Corpus, MethodContext, rounds_keep_labels
from cslr.privacy.plan import Plan
from cslr.protocol.head import FamilyName, Head, rule_of
from cslr.protocol.ports import Cohort
from cslr.protocol.step5_rounds import LinearRule, LinearSpace, NoisyGradient, linear_facts
from cslr.protocol.updates import UpdateId, release_update, update_ask

__all__ = [
    "ROUNDS",
    "check_tasks",
    "gradient_facts",
    "gradient_stage",
    "prefers_rounds",
    "signal_of",
    "start_rule",
]

ROUNDS: Final = 15
"""Rounds of a task."""
CLIP: Final = 0.3
"""Clipping bound of a unit's gradient."""
LEAST_UNITS: Final[Mapping[FamilyName, int]] = {
    "classification": 500,
    "intents": 500,
    "tagging": 100,
}
"""Registered clients or people from which on rounds are chosen automatically."""
LEAST_SIGNAL: Final[Mapping[FamilyName, float]] = {
    "classification": 120.0,
    "intents": 120.0,
    "tagging": 20.0,
}
"""Signal (expected units of a task over the noise multiplier of one release) from which on rounds
are chosen: below it statistics and the label prior are better. Tagging needs less, since a sentence
has many words."""


def prefers_rounds(plan: Plan, units: int, family: FamilyName) -> bool:
    """Whether there are enough registered units for gradient rounds under this plan."""
    enough = units >= LEAST_UNITS[family]
    return enough and signal_of(plan, units) >= LEAST_SIGNAL[family]


def signal_of(plan: Plan, units: int) -> float:
    """Expected units of a task over the noise multiplier that one release about it would have."""
    return UpdateId(0, 0, units).expected(plan) / plan.unit if plan.unit else math.inf


def check_tasks(context: MethodContext) -> None:
    """Refuse gradient rounds that would forget the labels of earlier tasks."""
    if not rounds_keep_labels(context.family.name, context.tasks, context.labels):
        raise ConfigError(
            "head.kind = 'rounds' learns from the rows of the current task alone, and here tasks "
            "have different labels: earlier ones would be forgotten; use --head released"
        )


def gradient_facts(context: MethodContext) -> dict[str, object]:
    """The facts that the ledger fixes together with the plan."""
    return {"rounds": {**linear_facts(), "clip": context.head.clip or CLIP}}


def start_rule(context: MethodContext, free: Head | None = None) -> LinearRule:
    """The rule before the first round: ``free``, the rule without clients, or the zero-shot rule.

    With intents and in tagging it is the zero-shot rule with public frequencies, whose scores suit
    independent outputs and words.
    """
    texts = context.label_texts if context.replay.prior == "labels" else None
    signal = signal_of(context.plan, context.clients.count)
    rule = LinearRule.start(_space(Corpus(context.public)), context.family, texts, signal)
    if free is None or context.family.name != "classification":
        return rule
    weights, _ = rule_of(free)
    return rule.turned(weights - weights.mean(axis=0))


@lru_cache(maxsize=8)
def _space(public: Corpus) -> LinearSpace:
    """The inputs that a corpus defines: all seeds share them, so they are computed once."""
    return LinearSpace.of(public.z)


def gradient_stage(
    context: MethodContext, task: int, rule: LinearRule, pooled: Cohort | None = None
) -> LinearRule:
    """``rule`` after the rounds of a task.

    pooled: the cohort of a curator who pools all tasks, instead of the units of this task.

    Guarantee: one Gaussian release of multiplier ``plan.head_sigma`` per round.
    """
    plan, clip = context.plan, context.head.clip or CLIP
    rounds, clients_per_unit = context.head.rounds or ROUNDS, context.units.clients_per_person
    labels = context.tasks[task] if pooled is None else range(context.labels)
    for number in range(rounds):
        update, question = UpdateId(task, number, context.clients.count), rule.question(labels)
        gradient = release_update(
            update_ask(update, question, clip, clients_per_unit),
            update,
            lambda: pooled or context.cohort(task, number),  # noqa: B023 asked within the round
            plan,
            context.ledger,
            context.keep,
        )
        units = update.expected(plan)
        carried = context.ledger.carried(update.label)
        sigma = plan.head_sigma if carried is None else carried
        noise = ((sigma or 0.0) * clip * clients_per_unit / units) ** 2
        rule = rule.moved(gradient, NoisyGradient(noise, units, rounds), question.trained)
    return rule

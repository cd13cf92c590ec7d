"""Rounds of federated training of a head in one task, with noise or without.

Used by every method whose head is trained by clients: the paper's protocol, ``dp-fedavg`` and
DP-SGD without replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cslr.methods.method import MethodContext
from cslr.privacy.accounting import Charge
from cslr.privacy.mechanism import release
from cslr.protocol.head import Batch, Head
from cslr.protocol.public_space import PublicSpace
from cslr.protocol.step4_aggregate.estimate import Replay
from cslr.protocol.step5_federate import LocalTraining, applied
from cslr.protocol.step5_rehearse import Sampler
from cslr.protocol.updates import UpdateId, release_update, update_ask

__all__ = ["ROUNDS", "federated_stage"]

ROUNDS: Final = 50
"""Rounds per task, as in the paper."""
WIDE: Final = 4.0
"""Clipping bound of updates without noise: large, but the grid needs a bound."""
CLIP: Final = 0.05
"""Clipping bound of updates with noise."""


def federated_stage(
    context: MethodContext, task: int, head: Head, replay: Replay | None, space: PublicSpace | None
) -> Head:
    """``head`` after the rounds of a task; ``replay`` is estimated from earlier tasks."""
    private = context.head.kind == "dp-fedavg"
    sampler = None
    if replay is not None and space is not None:
        sampler = Sampler.of(replay, space, among_texts=True)
        if context.paper is not None and context.paper.unit_length:
            sampler = replace(sampler, length=context.paper.b_z)
    teacher = head
    for number in range(context.head.rounds or ROUNDS):
        seeds = context.seeds.under("federated", task, "round", number)
        training = LocalTraining(
            head=head,
            family=context.family,
            heard=context.seen(task + 1),
            replay=None if sampler is None else _samples(sampler, context, seeds.at("replay")),
            teacher=teacher,
            taught=context.seen(task),
            loss=context.constants.replay_loss,
            weight=context.constants.replay_weight,
            learning_rate=context.head_settings.learning_rate,
            last_layer=private,
            seeds=seeds,
        )
        trained = _private if private else _open
        head = trained(context, task, number, training)
    return head


def _samples(sampler: Sampler, context: MethodContext, rng: np.random.Generator) -> Batch:
    """n_r samples in total, as in the paper."""
    kinds = len(np.unique(sampler.kinds))
    return sampler.draw(max(2, context.constants.n_r // kinds), rng)


def _private(context: MethodContext, task: int, number: int, training: LocalTraining) -> Head:
    update = UpdateId(task, number, context.clients.count)
    mean = release_update(
        update_ask(update, training, context.head.clip or CLIP, context.units.clients_per_person),
        update,
        lambda: context.cohort(task, number),
        context.plan,
        context.ledger,
        context.keep,
    )
    return applied(training.head, mean, training)


def _open(context: MethodContext, task: int, number: int, training: LocalTraining) -> Head:
    """The average over the participating clients, without noise: the ledger records ε = ∞."""
    cohort = context.open_cohort(task, number)
    if not cohort.size:
        return training.head
    ask = update_ask(UpdateId(task, number, context.clients.count), training, WIDE)
    charge = Charge(ask.label, context.plan.releases + task, "head", None, task=task)
    mean = release(cohort.total(ask), charge, context.ledger).value / cohort.size
    return applied(training.head, mean, training)

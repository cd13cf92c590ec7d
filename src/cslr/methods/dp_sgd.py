"""DP-SGD without replay: a head trained by clients, each update clipped and noised.

Reference: McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language
models", ICLR 2018 (DP-FedAvg); the paper's first baseline.

Departures: it starts at the head from label texts and public sentences, as every method here does,
and trains only the last layer, since noise grows with the number of parameters. It has few rounds,
each with all clients, because sampling does not reduce ε against the roster.

Privacy: end to end; only the updates are released.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from cslr.config import Config
from cslr.methods.cslr import agree, prior_head
from cslr.methods.federated_head import federated_stage
from cslr.methods.method import Fitted, Method, MethodContext, Stages, fitted_by
from cslr.privacy.plan import Schedule
from cslr.protocol.head import Head

__all__ = ["METHOD"]

ROUNDS: Final = 3


def stages(context: MethodContext) -> Stages:
    """One head carried from task to task."""
    agreement = agree(context)
    context.ledger.fix_plan(context.plan, agreement.public_facts())
    head = prior_head(context)
    yield partial(_learnt, context, head, 0)
    for task in range(len(context.tasks)):
        head = federated_stage(context, task, head, replay=None, space=None)
        yield partial(_learnt, context, head, task + 1)


def _learnt(context: MethodContext, head: Head, tasks: int) -> Fitted:
    """With label texts it predicts every label."""
    every = np.full(context.labels, context.replay.prior == "labels")
    return fitted_by(head, context.seen(tasks) | every, context.family)


def schedule(config: Config) -> Schedule:
    """Updates of a head only."""
    return Schedule(replay=0, head=config.head.rounds or ROUNDS)


METHOD: Final = Method(
    stages,
    reads="privately",
    schedule=schedule,
    settings={"head.kind": "dp-fedavg"},
    defaults={"head.rounds": ROUNDS},
    head_q=1.0,
    meaning="private updates, no replay",
)

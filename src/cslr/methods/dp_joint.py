"""Central DP: a trusted curator pools all rows of all tasks and trains a linear head with noise.

Reference: Abadi et al., "Deep learning with differential privacy", CCS 2016 (DP-SGD), full batch.
It is the alternative if rows could be pooled: its lead over CSLR at the same ε, δ and unit is the
cost of federated and continual training.

Departures: every step uses all units (one clipped gradient each, noise on their sum, no sampling).
The head is linear and starts at the zero-shot rule; step sizes are those of ``step5_rounds``. A
unit's rows of all tasks make one gradient, so a cap on tasks does not apply: all steps compose.
Rows of later tasks are used from the first step on; after t of T tasks t / T of the steps are done.

Privacy: end to end, in simulations only; the curator sees the rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cslr.config import Config
from cslr.errors import PrivacyError
from cslr.federation.simulation import Population
from cslr.methods.gradient_rounds import gradient_facts, gradient_stage, start_rule
from cslr.methods.method import Fitted, Method, MethodContext, Stages, fitted_by
from cslr.privacy.plan import Schedule
from cslr.protocol.head import Head
from cslr.protocol.ports import Cohort

__all__ = ["METHOD"]

ROUNDS: Final = 8
"""Steps for each task of the stream, all of them over all rows."""


def stages(context: MethodContext) -> Stages:
    """One rule, trained on all rows from the first stage on."""
    everybody = _everybody(context)
    context.ledger.fix_plan(context.plan, gradient_facts(context))
    rule = start_rule(context)
    yield partial(_fitted, context, rule.head())
    for task in range(len(context.tasks)):
        rule = gradient_stage(context, task, rule, pooled=everybody)
        yield partial(_fitted, context, rule.head())


def _everybody(context: MethodContext) -> Cohort:
    """All units, each with its rows of all tasks."""
    clients = context.clients
    if context.enforced or not isinstance(clients, Population):
        raise PrivacyError("dp-joint pools rows, which only a simulation allows; use cslr")
    pooled = replace(clients, tasks=np.zeros_like(clients.tasks))
    return pooled.cohort(0, np.ones(pooled.count, dtype=np.bool_), cap=1)


def _fitted(context: MethodContext, head: Head) -> Fitted:
    return fitted_by(head, np.ones(context.labels, dtype=np.bool_), context.family)


def schedule(config: Config) -> Schedule:
    """Gradients only."""
    return Schedule(replay=0, head=config.head.rounds or ROUNDS)


METHOD: Final = Method(
    stages,
    reads="privately",
    schedule=schedule,
    defaults={"head.rounds": ROUNDS},
    head_q=1.0,
    meaning="a curator pools all rows, noised",
    pools=True,
)

"""One run of the whole pipeline with canaries: which of them an adversary can detect.

The code is that of a real run, from contributions to the replay, adaptive over tasks. The auditor
is as strong as the guarantee assumes: it knows the plan, the honest clients' data and what canaries
would send, everything but their coins. It guesses only about the canaries it is surest of. The
number of guesses is chosen on simulated releases, never on the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from cslr.arrays import BoolArray, FloatArray
from cslr.audit.black_box import shifts_of
from cslr.audit.canaries import Canaries, CohortWithCanaries, draw_canaries, surest
from cslr.audit.confidence import Bound, one_run_epsilon, one_run_mu
from cslr.errors import ConfigError
from cslr.methods.cslr import agree
from cslr.methods.method import MethodContext
from cslr.privacy.accounting import Charge, gaussian_epsilon
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Budget, Plan, Schedule
from cslr.privacy.values import Grid, Summed
from cslr.protocol.agreement import Agreement
from cslr.protocol.ports import Request
from cslr.protocol.round import Session, sum_ask
from cslr.protocol.step4_aggregate.contribution import Layout
from cslr.seeding import Seeds

__all__ = ["CANARIES", "CONFIDENCE", "OneRun", "one_run"]

CANARIES: Final = 1_000
CONFIDENCE: Final = 0.95
SIMULATIONS: Final = 10
"""Simulated outcomes on which the number of guesses is chosen."""
SHARES: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""Numbers of guesses that are compared, as shares of the canaries."""
_NO_NOISE: Final = 1e-3
"""σ that scores assume if no noise is added."""

OnStep = Callable[[str, int, int], None]
"""Progress callback: description, steps done, steps in total."""


@dataclass(frozen=True)
class OneRun:
    """Lower bounds from one run for an adversary who sees the releases, or the replay only."""

    white: Bound
    black: Bound
    coordinates: int
    """D over all tasks; more canaries than a task has coordinates interfere with each other."""


def one_run(
    context: MethodContext,
    canaries: int | None = None,
    confidence: float = CONFIDENCE,
    seeds: Seeds | None = None,
    on_step: OnStep | None = None,
) -> OneRun:
    """Run the pipeline of ``context`` with canaries among its clients, and guess which are in.

    canaries: m; by default 1,000, or as many as can have orthogonal directions.
    seeds: of directions and coins; by default those of ``context``, under names of their own.
    """
    _check(context, canaries)
    seeds = (context.seeds if seeds is None else seeds).under("audit")
    plan, agreement = context.plan, agree(context)
    layouts = [_layout(agreement, labels) for labels in context.tasks]
    room = min(layout.size for layout in layouts) * plan.releases // plan.cap
    count = min(CANARIES, room) if canaries is None else canaries
    agreement = replace(agreement, clients=agreement.clients + count)
    sizes = [layout.size for layout in layouts]
    drawn = draw_canaries(count, sizes, plan.cap, seeds.at("directions"))
    guesses = _guesses(drawn, plan, confidence, seeds.at("simulated"))
    included = seeds.at("coins").random(count) < 0.5
    session, expected = _released(context, agreement, drawn, included, on_step)
    guess = partial(_guess, drawn, included, guesses, plan, confidence)
    bound = agreement.bounds[0]
    white = [(_kept(context, task) - usual) / bound for task, usual in enumerate(expected)]
    usual_sums = [
        replace(each.value, sums=layout.unpack(usual))
        for each, layout, usual in zip(session.releases, layouts, expected, strict=True)
    ]
    shifts = shifts_of(session.replay(), usual_sums, agreement)
    black = [layout.pack(shift) for layout, shift in zip(layouts, shifts, strict=True)]
    return OneRun(
        guess("pipeline, white box", drawn.projections(white)),
        guess("pipeline, black box", drawn.projections(black)),
        sum(sizes),
    )


def _released(
    context: MethodContext,
    agreement: Agreement,
    drawn: Canaries,
    included: BoolArray,
    on_step: OnStep | None,
) -> tuple[Session, list[FloatArray]]:
    """All rounds with the included canaries, and the expected value (D_t,) of each sum."""
    plan, tasks = context.plan, len(context.tasks)
    grid = Grid(agreement.bounds[0], share=agreement.clients_per_person)
    context.ledger.fix_plan(plan, agreement.public_facts())
    session = Session(agreement, plan, context.ledger, context.keep)
    expected: list[FloatArray] = []
    for task, labels in enumerate(context.tasks):
        if on_step is not None:
            on_step(f"task {task + 1} with canaries", task, tasks)
        honest = context.open_cohort(task)
        cohort = CohortWithCanaries(honest, drawn.sent(task, included, grid.bound), grid)
        session.release(task, labels, cohort)
        without_canaries = _exact(honest.total(sum_ask(_told(session))))
        expected.append(without_canaries + grid.bound * drawn.half(task))
    return session, expected


def _told(session: Session) -> Request:
    """The request of the last round."""
    if session.request is None:
        raise ValueError("session: it has released nothing yet")
    return session.request


def _kept(context: MethodContext, task: int) -> FloatArray:
    """(D_t,) the released vector of a task."""
    kept = context.keep.load(f"task {task}")
    if kept is None:
        raise ValueError("context.keep must return what was saved in it")
    return kept


def _check(context: MethodContext, canaries: int | None) -> None:
    replay = context.replay
    if canaries is not None and canaries < 2:
        raise ConfigError(f"an audit needs at least 2 canaries, not {canaries}")
    if context.ledger.federation.privacy == "enforced":
        raise ConfigError(
            "an audit reads sums without noise, which is not allowed with enforced privacy: "
            "audit the same plan on synthetic data with `cslr audit`"
        )
    one_sum = replay.release in (None, "sum", "pooled")
    if context.plan.schedule != Schedule() or not one_sum:
        raise ConfigError(
            "the pipeline audit requires one averaged sum per task; audit the mechanism "
            "instead: `cslr audit --what mechanism`"
        )


def _layout(agreement: Agreement, labels: tuple[int, ...]) -> Layout:
    modes = agreement.modes
    return agreement.layout(len(modes.of_groups(modes.groups_of(labels))))


def _exact(summed: Summed) -> FloatArray:
    """The exact sum, charged with ε = ∞ to a separate ledger."""
    federation = Federation("audit", Budget(math.inf), "simulated")
    ledger = Ledger.in_memory(federation, SeededKeys(Seeds(0)))
    return release(summed, Charge("honest clients", 0, "replay", None), ledger).value


def _guesses(drawn: Canaries, plan: Plan, confidence: float, rng: np.random.Generator) -> int:
    """The number of guesses with the largest expected bound, if the noise is that of the plan."""
    sigma, m = plan.sigma or _NO_NOISE, drawn.count
    coins = rng.random((SIMULATIONS, m)) < 0.5
    noise = [drawn.projections(_noise(drawn, sigma, rng)) for _ in range(SIMULATIONS)]
    scores = drawn.scores(drawn.overlaps @ (coins - 0.5).T + np.stack(noise, axis=1), sigma)

    def shown(guesses: int) -> float:
        right = [surest(scores[:, i], guesses, coins[i]) for i in range(SIMULATIONS)]
        return float(np.mean([one_run_mu(m, guesses, each, confidence) for each in right]))

    return max((max(1, round(share * m)) for share in SHARES), key=shown)


def _noise(drawn: Canaries, sigma: float, rng: np.random.Generator) -> list[FloatArray]:
    """(D_t,) the noise of each task, in bounds."""
    return [sigma * rng.standard_normal((rows.shape[1],)) for rows in drawn.directions]


def _guess(
    drawn: Canaries,
    included: BoolArray,
    guesses: int,
    plan: Plan,
    confidence: float,
    what: str,
    projections: FloatArray,
) -> Bound:
    right = surest(drawn.scores(projections, plan.sigma or _NO_NOISE), guesses, included)
    delta, m = plan.budget.delta, drawn.count
    mu = one_run_mu(m, guesses, right, confidence)
    return Bound(
        what=what,
        claimed=plan.epsilon("roster"),
        lower=gaussian_epsilon(mu, delta),
        mu=mu,
        delta=delta,
        confidence=confidence,
        runs=1,
        guesses=guesses,
        correct=right,
        canaries=m,
        any_noise=one_run_epsilon(m, guesses, right, delta, confidence),
    )

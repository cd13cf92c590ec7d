"""The privacy cost of a schedule of lists, separate statistics and rounds: ``cslr plan``."""

from __future__ import annotations

from cslr.errors import ConfigError
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.theorem4 import ReplayRound, theorem4_epsilon

__all__ = ["priced_schedule", "schedule_text"]


def priced_schedule(text: str, budget: Budget, tasks: int, q: float) -> dict[str, float | int]:
    """σ of every list and statistic of a schedule, and its ε by Theorem 4 of the paper.

    text: LISTS,STATISTICS,ROUNDS, the last per task. σ comes from the ledger's accounting.
    """
    try:
        lists, statistics, rounds = (int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--schedule is LISTS,STATISTICS,ROUNDS in whole numbers, e.g. 1,4,50, not {text!r}"
        ) from None
    if lists < 0 or statistics < 0 or rounds < 1 or lists + statistics < 1:
        raise ConfigError("--schedule needs a list or a statistic, and at least one round per task")
    times = tasks * rounds
    plan = calibrate(budget, times, q, schedule=Schedule(replay=statistics, lists=lists))
    if plan.sigma is None:
        raise ConfigError("--schedule needs a finite --epsilon")
    amplified = q if budget.adversary == "public" and not lists else 1.0
    each = ReplayRound((plan.sigma,) * statistics, (plan.sigma,) * lists, amplified)
    return {
        "lists": lists,
        "statistics": statistics,
        "rounds": times,
        "sigma": plan.sigma,
        "epsilon": plan.epsilon(budget.adversary),
        "theorem4_epsilon": theorem4_epsilon([(each, times)], budget.delta),
    }


def schedule_text(priced: dict[str, float | int]) -> str:
    """The result of ``priced_schedule`` as a sentence."""
    return (
        f"Schedule: {priced['lists']} lists and {priced['statistics']} separate statistics in each "
        f"of {priced['rounds']} rounds need σ = {priced['sigma']:.4g} each for "
        f"ε = {priced['epsilon']:.3g}; by Theorem 4 of the paper (Rényi orders 2 to 64) the same "
        f"noise costs ε = {priced['theorem4_epsilon']:.3g}."
    )

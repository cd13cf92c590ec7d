"""What to expect of a plan before any data: signal to noise, and warnings of weak parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cslr.privacy.plan import Plan, Unit

__all__ = ["Forecast", "forecast", "promise_warnings", "weak_delta"]

_WEAK_EPSILON: Final = 20.0
"""ε above which a guarantee hardly limits what an adversary learns."""


@dataclass(frozen=True)
class Forecast:
    """Before any data: how a mode's signal will compare with the noise."""

    signal_to_noise: float
    """N / (σ √D): the norm of a sum in which all units agree, over the norm of the noise."""
    advice: str


def forecast(plan: Plan, clients: int, dimension: int) -> Forecast:
    """Signal to noise of one mode's mean in ``dimension`` coordinates, and what to do about it.

    Every client's vector has norm at most S, so N agreeing clients (qN expected) sum to at most
    qNS, while the noise has norm about σS√D.
    """
    if plan.sigma is None:
        return Forecast(math.inf, "No noise: nothing is protected.")
    units = {"client": "clients", "person": "people"}[plan.budget.unit]
    ratio = plan.q * clients / (plan.sigma * math.sqrt(dimension))
    if ratio >= 3:
        advice = f"Strong signal: what the {units} say together outweighs the noise."
    elif ratio >= 0.5:
        advice = (
            f"Workable with the label prior; more {units} or a larger ε will still help "
            "considerably."
        )
    elif ratio >= 0.1:
        advice = (
            "Weak: the result will be little better than the label prior. Fewer releases per "
            f"{plan.budget.unit} (--cap), more {units} or a larger ε help most."
        )
    else:
        need = math.ceil(0.5 * plan.sigma * math.sqrt(dimension) / plan.q)
        advice = f"Not useful: the noise outweighs the data. About {need} {units} would be needed."
    return Forecast(ratio, advice)


def weak_delta(delta: float, count: int, unit: Unit = "client") -> str | None:
    """A warning where δ ≥ 1/N: giving one unit's rows away outright satisfies (0, 1/N).

    count: N, registered units.
    """
    if delta * count < 1:
        return None
    units = {"client": "clients", "person": "people"}[unit]
    return (
        f"delta = {delta:g} is not below 1/{count}, one over the number of {units}: "
        f"publishing all rows of one random {unit} would also satisfy it. Choose a smaller δ"
    )


def promise_warnings(epsilon: float, delta: float, count: int, unit: Unit = "client") -> list[str]:
    """Warnings about a weak guarantee: ε above 20, or δ ≥ 1/N."""
    warnings = [weak_delta(delta, count, unit)]
    if _WEAK_EPSILON < epsilon < math.inf:
        warnings.insert(
            0,
            f"epsilon = {epsilon:g} is above {_WEAK_EPSILON:g}: it hardly limits what an adversary "
            f"learns about a {unit}. Values from 1 to 8 are usual",
        )
    return [warning for warning in warnings if warning is not None]

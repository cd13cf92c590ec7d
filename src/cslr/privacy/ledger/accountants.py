"""ε of the same charges by several independent accountants.

The charges are grouped into rounds here again, independently of ``cslr.privacy.accounting``: an
error in how releases share a coin, or in the cap, would otherwise affect all accountants alike.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cslr.privacy.accounting import RDP_ORDERS, Charge, pld_epsilon, rdp_epsilon

__all__ = ["Opinion", "opinions", "recount"]

Kinds = Counter[tuple[float, float]]
"""The number of rounds of each (σ, q)."""
_Coin = tuple[int, int, int]
"""Task, round, and how often a label of the round was released before."""

_SHARED_ORDERS: Final = RDP_ORDERS[::6]
"""Enough orders to compare two Rényi accountants; with all of them Opacus takes seconds."""
_FEW: Final = 24
"""Kinds of rounds up to which PLD and PRV are exact and quick."""
_PRV_ERROR: Final = 0.02


@dataclass(frozen=True)
class Opinion:
    """ε by one accountant, and whether it agrees with the ledger."""

    accountant: str
    says: str
    agrees: bool | None
    """None: it is not installed, or not applicable."""


def recount(charges: Sequence[Charge], sampled: bool, cap: int | None) -> Kinds:
    """The rounds of the worst client; releases that share a coin compose to one Gaussian.

    sampled: whether amplification counts. With a cap only the costliest tasks count, or all tasks
    if sampling leaves open which those are. Evaluations always count.
    """
    tasks = _by_task([charge for charge in charges if charge.part != "evaluation"], sampled)
    evaluations = _by_task([charge for charge in charges if charge.part == "evaluation"], sampled)
    if sampled and not _ordered(tasks):
        cap = None
    return sum([*tasks[:cap], *evaluations], Counter())


def _by_task(charges: Sequence[Charge], sampled: bool) -> list[Kinds]:
    """The rounds of each task, the costliest first."""
    precision: dict[int, dict[_Coin, float]] = defaultdict(lambda: defaultdict(float))
    rate: dict[_Coin, float] = {}
    times: Counter[tuple[int, str]] = Counter()
    for charge in charges:
        if charge.sigma is None:
            raise ValueError("not applicable: a release has no noise")
        task = charge.round if charge.task is None else charge.task
        coin = (task, charge.round, times[charge.round, charge.label])
        times[charge.round, charge.label] += 1
        precision[task][coin] += charge.sigma**-2
        rate[coin] = charge.q if sampled else 1.0
    return [
        Counter((total**-0.5, rate[coin]) for coin, total in coins.items())
        for coins in sorted(precision.values(), key=lambda coins: -math.fsum(coins.values()))
    ]


def _ordered(tasks: Sequence[Kinds]) -> bool:
    """Whether each task surely costs no more than the one before it."""
    if all(before >= after for before, after in pairwise(tasks)):
        return True
    return all(task.total() == 1 for task in tasks) and len({q for t in tasks for _, q in t}) == 1


def opinions(rounds: Kinds, delta: float, epsilon: float) -> list[Opinion]:
    """All accountants' results beside ``epsilon``, the ledger's cost of these rounds at δ."""
    results: list[Opinion] = []
    for accountant, ask in _ACCOUNTANTS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about edge orders and old NumPy names
                results.append(Opinion(accountant, *ask(rounds, delta, epsilon)))
        except ImportError:
            results.append(Opinion(accountant, "not installed", None))
    return results


_Answer = tuple[str, bool | None]


def _pld(rounds: Kinds, delta: float, epsilon: float) -> _Answer:
    """Privacy-loss distributions, never optimistic; many kinds are rounded up first."""
    computed = pld_epsilon(list(rounds.elements()), delta)
    slack = 1e-3 if len(rounds) <= _FEW else 5e-2
    low, high = (1 - 1e-6) * epsilon - 1e-6, (1 + slack) * epsilon + 1e-4
    return f"{computed:.5g}", low <= computed <= high


def _rdp(rounds: Kinds, delta: float, epsilon: float) -> _Answer:
    """Rényi: never below, and never much above."""
    computed = rdp_epsilon(list(rounds.elements()), delta)
    return f"{computed:.5g}", (1 - 1e-6) * epsilon <= computed <= 1.25 * epsilon + 0.05


def _opacus(rounds: Kinds, delta: float, epsilon: float) -> _Answer:
    """Rényi by Opacus, which must equal ours at the same orders."""
    from opacus.accountants.analysis import rdp

    orders = list(_SHARED_ORDERS)
    costs = [0.0] * len(orders)
    for (sigma, q), count in rounds.items():
        more = rdp.compute_rdp(q=q, noise_multiplier=sigma, steps=count, orders=orders)
        costs = [cost + float(each) for cost, each in zip(costs, more, strict=True)]
    computed = float(rdp.get_privacy_spent(orders=orders, rdp=costs, delta=delta)[0])
    ours = rdp_epsilon(list(rounds.elements()), delta, orders)
    agrees = math.isclose(computed, ours, rel_tol=1e-6, abs_tol=1e-9) and computed >= epsilon - 1e-6
    return f"{computed:.5g}", agrees


def _prv(rounds: Kinds, delta: float, epsilon: float) -> _Answer:
    """Privacy random variables: lower and upper bounds that must enclose ε."""
    import prv_accountant as prv

    if len(rounds) > _FEW or epsilon > 200:
        return "skipped: too many kinds of releases, or ε above 200", None
    mechanisms = [
        prv.GaussianMechanism(sigma)
        if q == 1
        else prv.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=sigma)
        for sigma, q in rounds
    ]
    counts = list(rounds.values())
    accountant = prv.PRVAccountant(
        mechanisms, eps_error=_PRV_ERROR, delta_error=delta / 1000, max_self_compositions=counts
    )
    low, _, high = map(float, accountant.compute_epsilon(delta, counts))
    return f"{max(low, 0):.4g} to {high:.4g}", low - 1e-4 <= epsilon <= high + 1e-4


_ACCOUNTANTS: Final[dict[str, Callable[[Kinds, float, float], _Answer]]] = {
    "PLD": _pld,
    "RDP": _rdp,
    "Opacus": _opacus,
    "PRV": _prv,
}

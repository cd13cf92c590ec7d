"""What releases cost: from charges to ε, by scope and by adversary.

Unit: one client's whole contribution over the stream, under zero-out adjacency (the client's
vector becomes zero). A joint vector clipped to S and noised with σS is then one Gaussian
mechanism of multiplier σ.

========= ====================================== ==============================================
adversary sees                                   ε
========= ====================================== ==============================================
public    what is published, not who took part   Poisson amplification counts (PLD)
roster    also who took part in every release    q = 1: closed form
server    what reaches the aggregator            ∞ where the aggregator adds the noise; the
                                                 roster's where the clients add all of it, and
                                                 no more of them collude than the plan allows
========= ====================================== ==============================================

References: Balle and Wang 2018, Theorem 8 (closed form); Dong, Roth and Su 2022, Corollary 3.3
(composition of Gaussians); Koskela et al. 2020 and Google's dp-accounting (PLD); Mironov 2017
(RDP, the cross-check, see ``renyi``).

Roots are found by Brent's method ("Algorithms for minimization without derivatives", 1973, chapter
4). Numbers and their order are those of ``scipy.optimize.brentq``, so the roots are the same bit
for bit, and nothing of ``scipy.optimize`` is loaded, which takes longer than planning a budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

from scipy.special import log_ndtr

from cslr.privacy.renyi import renyi_costs

__all__ = [
    "ADVERSARIES",
    "RDP_ORDERS",
    "SCOPES",
    "Adversary",
    "Charge",
    "Scope",
    "brentq",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_epsilon",
    "pld_epsilon",
    "rdp_epsilon",
    "replace_one_epsilon",
    "total_mu",
]

Adversary = Literal["public", "roster", "server"]
Scope = Literal["replay", "end_to_end"]
ADVERSARIES: Final[tuple[Adversary, ...]] = get_args(Adversary)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Dense near 1, where the optimum lies for large ε; a coarse grid of integers would miss it.
RDP_ORDERS: Final[tuple[float, ...]] = tuple(
    [1 + k / 50 for k in range(1, 50)] + [2 + k / 10 for k in range(200)] + list(range(22, 513))
)

_KINDS: Final = 20
"""Distinct (σ, q) that are composed exactly; more are first rounded to fewer that cost no less."""


@dataclass(frozen=True)
class Charge:
    """One release as the accountant sees it; everything here is public."""

    label: str
    round: int
    """Releases of one round share one participation coin: their composition is amplified once."""
    part: Literal["replay", "head", "evaluation"]
    """What is released; an evaluation is about all tasks at once, so no cap applies to it."""
    sigma: float | None
    """Noise multiplier; None: released without noise."""
    q: float = 1.0
    """Participation rate: the probability with which each client participated."""
    task: int | None = None
    """The task it belongs to; a cap limits how many a client has. None: the round is a task."""
    noise: Literal["aggregator", "clients"] = "aggregator"
    """Who adds the noise: the aggregator, or every client a share of it before the secure sum."""
    reserved: float = 0.0
    """What the clients' samplers take from δ, see ``noise_shares.reserved_delta``."""
    carried: float | None = None
    """The multiplier of all noise in the release, where survivors added more than is claimed."""

    def __post_init__(self) -> None:
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma must be positive and finite, or None, not {self.sigma}")
        if not 0 < self.q <= 1:
            raise ValueError(f"q must lie in (0, 1], not {self.q}")
        if not 0 <= self.reserved < 1:
            raise ValueError(f"reserved must lie in [0, 1), not {self.reserved}")


def epsilon_of(
    charges: Iterable[Charge],
    delta: float,
    adversary: Adversary,
    scope: Scope = "end_to_end",
    cap: int | None = None,
    interval: float | None = None,
) -> float:
    """ε at δ of everything charged; ``cap`` is the most tasks any client contributes to."""
    counted = [c for c in charges if scope == "end_to_end" or c.part == "replay"]
    if not counted:
        return 0.0
    if any(charge.sigma is None for charge in counted):
        return math.inf
    if adversary == "server" and any(charge.noise != "clients" for charge in counted):
        return math.inf
    delta -= math.fsum(charge.reserved for charge in counted)
    if delta <= 0:
        return math.inf
    rounds = _worst_client(counted, cap, ordered=adversary != "public")
    exact = gaussian_epsilon(_mu(rounds), delta)
    if adversary != "public" or all(q == 1.0 for _, q in rounds):
        return exact
    # The public adversary sees less than the roster: its ε is no larger, even if the PLD is coarse.
    return min(exact, pld_epsilon(rounds, delta, interval))


def total_mu(
    charges: Iterable[Charge], scope: Scope = "end_to_end", cap: int | None = None
) -> float:
    """μ of everything charged, against the roster: the composition is one Gaussian mechanism."""
    counted = [c for c in charges if scope == "end_to_end" or c.part == "replay"]
    if any(charge.sigma is None for charge in counted):
        return math.inf
    return _mu(_worst_client(counted, cap, ordered=True))


def replace_one_epsilon(
    charges: Iterable[Charge],
    delta: float,
    scope: Scope = "end_to_end",
    cap: int | None = None,
) -> float:
    """ε of the same releases had neighbours one client *replaced* by another, against the roster.

    Replacing moves a sum by up to 2S where zeroing moves it by S, so μ doubles: at δ = 10⁻⁵ a
    zero-out ε of 1 / 4 / 8 is 2.2 / 9.1 / 19.1 here. For comparison with others, never charged.
    """
    charges = list(charges)
    delta -= math.fsum(charge.reserved for charge in charges)
    return gaussian_epsilon(2 * total_mu(charges, scope, cap), delta)


Rounds = list[tuple[float, float]]
"""(σ, q) of rounds, each with its own participation coin."""


def _mu(rounds: Rounds) -> float:
    return math.sqrt(sum(sigma**-2 for sigma, _ in rounds))


def _rounds(charges: Sequence[Charge]) -> dict[int, Rounds]:
    """The rounds of each task. Gaussians that share a coin compose to one: Σ σ⁻² = σ_round⁻².

    A label that is repeated in a round is another release, with its own coin.
    """
    precision: dict[tuple[int, int, int], float] = {}
    q: dict[tuple[int, int, int], float] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for charge in charges:
        if charge.sigma is None:
            raise ValueError("charges: a release without noise has no finite ε")
        task = charge.round if charge.task is None else charge.task
        coin = (task, charge.round, seen[charge.round, charge.label])
        seen[charge.round, charge.label] += 1
        precision[coin] = precision.get(coin, 0.0) + charge.sigma**-2
        if q.setdefault(coin, charge.q) != charge.q:
            raise ValueError(
                f"charges: round {charge.round} has two different participation rates q"
            )
    rounds: dict[int, Rounds] = {}
    for coin in sorted(precision):
        rounds.setdefault(coin[0], []).append((precision[coin] ** -0.5, q[coin]))
    return rounds


def _worst_client(charges: Sequence[Charge], cap: int | None, ordered: bool) -> Rounds:
    """The rounds that a client can be in at most: its costliest tasks, and every evaluation."""
    capped = [charge for charge in charges if charge.part != "evaluation"]
    always = [charge for charge in charges if charge.part == "evaluation"]
    evaluations = [each for rounds in _rounds(always).values() for each in rounds]
    return [*_worst_tasks(_rounds(capped), cap, ordered), *evaluations]


def _worst_tasks(tasks: Mapping[int, Rounds], cap: int | None, ordered: bool) -> Rounds:
    """The rounds of the ``cap`` costliest tasks.

    Without amplification (``ordered``) the cost of a task is Σ σ⁻². With it, tasks can be ordered
    if each has all rounds of the next, or if all have one round at the same rate; else all count.
    """
    by_cost = sorted(tasks.values(), key=lambda rounds: -sum(sigma**-2 for sigma, _ in rounds))
    if cap is not None and not ordered:
        single = all(len(rounds) == 1 for rounds in by_cost)
        nested = all(not Counter(b) - Counter(a) for a, b in pairwise(by_cost))
        if not nested and not (single and len({q for ((_, q),) in by_cost}) == 1):
            cap = None
    return [each for rounds in by_cost[:cap] for each in rounds]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a μ-Gaussian-DP mechanism: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return -math.exp(first) * math.expm1(min(second - first, 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ δ for a μ-Gaussian-DP mechanism, rounded up by about 1e-12."""
    _check_delta(delta)
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1.0
    root = brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-13)
    return float(root) * (1 + 1e-12) + 1e-12


def pld_epsilon(
    rounds: Sequence[tuple[float, float]], delta: float, interval: float | None = None
) -> float:
    """ε by composing the privacy-loss distributions of the rounds (σ, q); never optimistic.

    interval: width of the grid of privacy losses; a coarse one is fast and a little pessimistic.
    By default 1e-4, or 1e-3 where every σ < 1: losses are then large, and ε is still accurate to
    1e-6. For ε in the hundreds it grows with ε, which is then accurate to 1e-4. Rounds whose
    losses are no larger than the interval (q/σ below 1e-3) are overestimated by a few percent.
    """
    _check_delta(delta)
    from dp_accounting import pld

    if interval is None:
        least = 1e-3 if all(sigma < 1 for sigma, _ in rounds) else 1e-4
        interval = max(least, 1e-6 * gaussian_epsilon(_mu(list(rounds)), delta))
    accountant = pld.PLDAccountant(value_discretization_interval=interval)
    accountant.compose(_event(_alike(Counter(rounds))))
    return float(accountant.get_epsilon(delta))


def _alike(rounds: Counter[tuple[float, float]]) -> Counter[tuple[float, float]]:
    """At most ``_KINDS`` kinds of rounds that cost no less, since every kind takes some 30 ms.

    σ is rounded down and q up, in steps of a percent or as much coarser as needed. With at most
    four different rates q is not rounded.
    """
    few = len({q for _, q in rounds}) <= 4
    alike, step = rounds, 0.01
    while len(alike) > _KINDS:
        alike = Counter()
        for (sigma, q), count in rounds.items():
            less = math.exp(step * math.floor(math.log(sigma) / step))
            more = math.exp(step * math.ceil(math.log(q) / step))
            alike[min(sigma, less), q if few else max(q, more)] += count
        step *= 1.5
    return alike


def rdp_epsilon(
    rounds: Sequence[tuple[float, float]],
    delta: float,
    orders: Sequence[float] = RDP_ORDERS,
    classic: bool = False,
) -> float:
    """ε by Rényi DP, the cross-check: never below PLD.

    ``classic`` uses the conversion of the paper's Theorem 4, ε = ε(α) + log(1/δ)/(α − 1), instead
    of the tighter one of Canonne, Kamath and Steinke (2020).
    """
    _check_delta(delta)
    from dp_accounting import rdp

    costs = [0.0] * len(orders)
    for (sigma, q), count in Counter(rounds).items():
        each = renyi_costs(sigma, q, orders)
        costs = [cost + count * float(more) for cost, more in zip(costs, each, strict=True)]
    if not classic:
        return float(rdp.compute_epsilon(orders, costs, delta)[0])
    pairs = zip(orders, costs, strict=True)
    return min(cost + math.log(1 / delta) / (order - 1) for order, cost in pairs)


def _event(rounds: Counter[tuple[float, float]]):  # type: ignore[no-untyped-def]
    import dp_accounting as dp

    def one(sigma: float, q: float):  # type: ignore[no-untyped-def]
        gaussian = dp.GaussianDpEvent(sigma)
        return gaussian if q == 1.0 else dp.PoissonSampledDpEvent(q, gaussian)

    return dp.ComposedDpEvent(
        [dp.SelfComposedDpEvent(one(*round_), count) for round_, count in rounds.items()]
    )


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}")


# -- roots of a function of one number -------------------------------------------------------------

_RELATIVE: Final = 4 * 2.0**-52
"""Tolerance relative to the root; the smallest that rounding allows."""
_MOST_STEPS: Final = 100
"""Steps before giving up: bisection alone needs 64 or so."""


def brentq(f: Callable[[float], float], low: float, high: float, xtol: float = 2e-12) -> float:
    """A root of f between ``low`` and ``high``, where f has different signs, within xtol.

    ``best`` is the best point so far, ``before`` the one before it and ``across`` a point where f
    has the other sign. A step is interpolated if it is short enough; otherwise it bisects.
    """
    before, best = float(low), float(high)
    f_before, f_best = f(before), f(best)
    if f_before == 0:
        return before
    if f_best == 0:
        return best
    if (f_before < 0) == (f_best < 0):
        raise ValueError(f"f({low}) and f({high}) must have different signs")
    across, f_across, last, step = 0.0, 0.0, 0.0, 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0 and (f_before < 0) != (f_best < 0):
            across, f_across = before, f_before
            last = step = best - before
        if abs(f_across) < abs(f_best):
            before, best, across = best, across, best
            f_before, f_best, f_across = f_best, f_across, f_best
        tolerance = (xtol + _RELATIVE * abs(best)) / 2
        half = (across - best) / 2
        if f_best == 0 or abs(half) < tolerance:
            return best
        tried = None
        if abs(last) > tolerance and abs(f_best) < abs(f_before):
            tried = _interpolated((before, f_before), (best, f_best), (across, f_across))
        if tried is not None and 2 * abs(tried) < min(abs(last), 3 * abs(half) - tolerance):
            last, step = step, tried
        else:
            last = step = half
        before, f_before = best, f_best
        best += step if abs(step) > tolerance else (tolerance if half > 0 else -tolerance)
        f_best = f(best)
    raise ValueError(f"no root of f was found in {_MOST_STEPS} steps")


def _interpolated(
    before: tuple[float, float], best: tuple[float, float], across: tuple[float, float]
) -> float:
    """The step from ``best`` to the zero of the line through two points, or a curve through three.

    Points are pairs (x, f(x)).
    """
    (x0, f0), (x, f), (x1, f1) = before, best, across
    if x0 == x1:
        return -f * (x - x0) / (f - f0)
    slope0, slope1 = (f0 - f) / (x0 - x), (f1 - f) / (x1 - x)
    return -f * (f1 * slope1 - f0 * slope0) / (slope1 * slope0 * (f1 - f0))

"""The plan: σ is an output, and everything that shapes a release is fixed before the first one.

>>> plan = calibrate(Budget(epsilon=4.0), releases=6)
>>> round(plan.sigma, 2)
2.65

``forecast`` says what to expect of a plan before any data, and ``promise_warnings`` warns of weak
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from cslr.errors import ConfigError
from cslr.privacy.accounting import Adversary, Charge, Scope, brentq, epsilon_of, gaussian_epsilon

__all__ = [
    "DRAW_ERROR",
    "Budget",
    "ClientNoise",
    "Forecast",
    "Plan",
    "Schedule",
    "Unit",
    "calibrate",
    "forecast",
    "promise_warnings",
    "weak_delta",
    "with_noise",
]

DRAW_ERROR: Final = 2.0**-48
"""Total variation between one draw of ``mechanism.discrete_gaussian`` and the discrete Gaussian."""


@dataclass(frozen=True)
class ClientNoise:
    """How clients add the noise themselves, inside a secure sum. All of it is public."""

    members: int  # n
    threshold: int  # t
    colluders: int  # c
    coordinates: int
    """D: the most coordinates of one release."""
    spare: int = 0
    """Sessions beyond the planned ones that the budget has room for: a session that ends without a
    sum is charged, and so is its repetition."""

    def __post_init__(self) -> None:
        if not 1 <= self.colluders < self.threshold <= self.members:
            raise ConfigError(
                "colluders and threshold must satisfy 1 ≤ c < t ≤ n, not "
                f"c = {self.colluders}, t = {self.threshold}, n = {self.members}"
            )
        if self.spare < 0 or self.coordinates < 1:
            raise ConfigError("spare must be at least 0, and coordinates at least 1")

    @property
    def reserved(self) -> float:
        """n · D · 2⁻⁴⁸: what the samplers take from δ in one session."""
        return self.members * self.coordinates * DRAW_ERROR


Unit = Literal["client", "person"]
"""Whose whole contribution one ε hides: a client with all its rows, or one person inside it."""

_LEAST_SIGMA: Final = 0.05
"""Where q is as small as δ, (ε, δ) holds without any noise; the plan has this much anyway."""


@dataclass(frozen=True)
class Budget:
    """What each unit is promised: (ε, δ) under zero-out adjacency, against an adversary."""

    epsilon: float
    delta: float = 1e-5
    adversary: Adversary = "roster"
    scope: Scope = "end_to_end"
    """What it holds for: everything that is released, or the replay alone."""
    unit: Unit = "client"

    def __post_init__(self) -> None:
        if not self.epsilon > 0 or math.isnan(self.epsilon):
            raise ConfigError(f"epsilon must be greater than 0, not {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must lie strictly between 0 and 1, not {self.delta:g}")
        if self.adversary not in ("public", "roster"):
            raise ConfigError(
                f"adversary must be 'public' or 'roster', not {self.adversary!r}: the "
                "aggregator adds the noise, so ε against the server is infinite"
            )

    def as_dict(self) -> dict[str, object]:
        """Plain values; JSON has no ∞, so no budget at all is null."""
        plain = {**asdict(self), "epsilon": self.epsilon if math.isfinite(self.epsilon) else None}
        for name, usual in (("scope", "end_to_end"), ("unit", "client")):
            if plain[name] == usual:  # as in ledgers from before there were others
                del plain[name]
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Budget:
        """The inverse of ``as_dict``."""
        epsilon = math.inf if plain["epsilon"] is None else plain["epsilon"]
        scope = plain.get("scope", "end_to_end")
        unit = plain.get("unit", "client")
        return cls(epsilon, plain["delta"], plain["adversary"], scope, unit)


@dataclass(frozen=True)
class Schedule:
    """What a method releases about each task."""

    replay: int = 1
    """Sums about the replay; all share one participation coin."""
    lists: int = 0
    """Messages noised on the device, under their sender's name: sampling does not amplify them."""
    head: int = 0
    """Updates of a model, each with a participation coin of its own."""
    evaluation: int = 0
    """Counts of right answers after the last task, about all tasks at once: no cap applies."""

    @property
    def coins(self) -> int:
        """Rounds, each with its own coin, of one task."""
        return (self.replay > 0) + self.lists + self.head


_ONE_SUM: Final = Schedule()


@dataclass(frozen=True)
class Plan:
    """Releases, participation, cap and the resulting noise. Made by ``calibrate`` only.

    Where a task has both, releases about the replay and updates of a model get half of the budget
    each (exactly so without amplification); within a half all have the same multiplier. An
    evaluation costs as much as a half of one task.
    """

    budget: Budget
    releases: int
    """Tasks that are released."""
    q: float
    cap: int
    """The most of them that any one client contributes to."""
    unit: float | None
    """Noise multiplier that one release would have alone in its half; None exactly when ε = ∞."""
    schedule: Schedule = _ONE_SUM
    head_q: float = 1.0
    """q of a model's updates."""
    clients: ClientNoise | None = None
    """Set where clients add the noise; None: the aggregator adds it."""

    @property
    def sigma(self) -> float | None:
        """Noise multiplier of each list and each sum about the replay."""
        return self._shared(self.schedule.replay + self.schedule.lists)

    @property
    def head_sigma(self) -> float | None:
        """Noise multiplier of each update of a model."""
        return self._shared(self.schedule.head)

    @property
    def evaluation_sigma(self) -> float | None:
        """Noise multiplier of an evaluation."""
        return self.unit if self.schedule.evaluation else None

    def _shared(self, count: int) -> float | None:
        """The multiplier of ``count`` releases that together cost one of ``unit``."""
        return self.unit * math.sqrt(count) if self.unit is not None and count else None

    def charge(self, label: str, task: int) -> Charge:
        """What a sum about the replay costs.

        With lists, which have their senders' names, it is known who took part, so q is 1.
        """
        q = 1.0 if self.schedule.lists else self.q
        return self._paid(Charge(label, task * self.schedule.coins, "replay", self.sigma, q, task))

    def list_charge(self, label: str, task: int) -> Charge:
        """What a message noised on the device costs."""
        coin = task * self.schedule.coins + (self.schedule.replay > 0)
        return Charge(label, coin, "replay", self.sigma, 1.0, task)

    def head_charge(self, label: str, task: int, update: int) -> Charge:
        """What an update of a model costs, the ``update``-th of its task."""
        number = self.schedule.coins - self.schedule.head + update
        coin = task * self.schedule.coins + number
        return self._paid(Charge(label, coin, "head", self.head_sigma, self.head_q, task))

    def evaluation_charge(self, label: str) -> Charge:
        """The charge of an evaluation: all clients participate, after all tasks are released."""
        coin = self.releases * self.schedule.coins
        return self._paid(Charge(label, coin, "evaluation", self.evaluation_sigma))

    def _paid(self, charge: Charge) -> Charge:
        """The charge; where clients add the noise, with the part of δ that their samplers take."""
        if self.clients is None:
            return charge
        return replace(charge, noise="clients", reserved=self.clients.reserved)

    def charges(self) -> list[Charge]:
        """A charge for everything the plan will release; the labels are placeholders."""
        charges: list[Charge] = []
        for task in range(self.releases):
            charges += [self.charge(f"{task} sum {i}", task) for i in range(self.schedule.replay)]
            charges += [
                self.list_charge(f"{task} list {i}", task) for i in range(self.schedule.lists)
            ]
            charges += [
                self.head_charge(f"{task} update {i}", task, i) for i in range(self.schedule.head)
            ]
        counts = range(self.schedule.evaluation)
        return [*charges, *(self.evaluation_charge(f"evaluation {i}") for i in counts)]

    def epsilon(self, adversary: Adversary) -> float:
        """ε once everything planned has happened."""
        return epsilon_of(self.charges(), self.budget.delta, adversary, cap=self.cap)

    def as_dict(self) -> dict[str, object]:
        """Plain values for the ledger; an evaluation is named only where there is one."""
        plain = {**asdict(self), "budget": self.budget.as_dict()}
        sigmas = {"sigma": self.sigma, "head_sigma": self.head_sigma}
        if self.schedule.evaluation:
            sigmas["evaluation_sigma"] = self.evaluation_sigma
        else:
            del plain["schedule"]["evaluation"]
        if self.clients is None:  # as plans were before clients could add noise
            del plain["clients"]
        return {**plain, **sigmas}


def calibrate(
    budget: Budget,
    releases: int,
    q: float = 1.0,
    cap: int | None = None,
    schedule: Schedule = _ONE_SUM,
    head_q: float = 1.0,
    *,
    clients: ClientNoise | None = None,
) -> Plan:
    """The least noise with which ``releases`` tasks of ``schedule`` stay within the budget.

    q: probability that a client takes part in a release; it lowers ε only against ``public``.
    cap: the most tasks any client contributes to (default: all of them).
    clients: set where clients add the noise; then spare sessions and the samplers' part of δ count.
    """
    if releases < 1:
        raise ConfigError(f"releases must be at least 1, not {releases}")
    for rate in (q, head_q):
        if not 0 < rate <= 1:
            raise ConfigError(f"the participation rate q must lie in (0, 1], not {rate:g}")
    if schedule.coins < 1:
        raise ConfigError("schedule: a plan must release at least one sum, list or update per task")
    cap = releases if cap is None else cap
    if not 1 <= cap <= releases:
        raise ConfigError(
            "cap, the maximum number of tasks a client contributes to, must lie in "
            f"1..{releases}, not {cap}"
        )
    plan = Plan(budget, releases, q, cap, None, schedule, head_q, clients)
    if clients is not None:
        _check_client_noise(plan)
    if math.isinf(budget.epsilon):
        return plan
    halves = (schedule.replay + schedule.lists > 0) + (schedule.head > 0)
    count, promised = cap * halves + schedule.evaluation, budget
    if clients is not None:
        sessions = len(plan.charges()) + clients.spare
        promised = replace(budget, delta=budget.delta - sessions * clients.reserved)
        count += clients.spare
    plan = replace(plan, unit=_unit_full(promised, count))
    amplified = any(charge.q < 1 for charge in plan.charges())
    return _sampled(plan) if budget.adversary == "public" and amplified else plan


def _check_client_noise(plan: Plan) -> None:
    """Refuse what is not possible where clients add the noise."""
    if min(plan.q, plan.head_q) < 1 or plan.schedule.lists:
        raise ConfigError(
            "where clients add the noise all of them take part (q = 1), and no lists are released"
        )
    if math.isinf(plan.budget.epsilon):
        raise ConfigError("epsilon must be finite where clients add the noise")


def with_noise(plan: Plan, sigma: float) -> Plan:
    """The plan with this multiplier on each list and each sum of the replay, whatever it costs.

    Only for the paper's table of noise multipliers, in simulations; all other plans are calibrated.
    The budget of the result is the ε that it costs, which is also what the ledger will say.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be greater than 0, not {sigma}")
    count = plan.schedule.replay + plan.schedule.lists
    if not count:
        raise ValueError("plan: it releases nothing about the replay")
    noised = replace(plan, unit=sigma / math.sqrt(count))
    cost = noised.epsilon(plan.budget.adversary)
    return replace(noised, budget=replace(plan.budget, epsilon=cost))


def _unit_full(budget: Budget, count: int) -> float:
    """Closed form: the largest μ that stays within the budget, shared by ``count`` Gaussians."""

    def excess(log_mu: float) -> float:
        return gaussian_epsilon(math.exp(log_mu), budget.delta) - budget.epsilon

    least, most = math.log(1e-6), math.log(1e3)
    if not excess(least) < 0 < excess(most):
        raise ConfigError(
            f"epsilon = {budget.epsilon:g} is outside the range that can be calibrated; use 0.1 "
            "to 20"
        )
    mu = math.exp(brentq(excess, least, most, xtol=1e-13))
    return math.sqrt(count) / mu * (1 + 1e-9)


def _sampled(plan: Plan) -> Plan:
    """The least noise under sampling, found by a coarse PLD and then checked by a fine one.

    It is accepted if it costs 0.995 ε to ε. A coarse PLD is up to a hundred times faster and a
    little pessimistic; where it is too pessimistic the search is repeated with a finer one.
    """
    epsilon = plan.budget.epsilon
    coarse = max(1e-4, min(1e-2, epsilon / 100))
    for interval in (coarse, coarse / 8, 1e-4):
        found = _root_of_pld(plan, interval)
        if found.unit == _LEAST_SIGMA or 0.995 * epsilon <= found.epsilon("public") <= epsilon:
            return found
    return plan


def _root_of_pld(plan: Plan, interval: float) -> Plan:
    """``plan`` with the ``unit`` at which it costs ε, at least ``_LEAST_SIGMA``."""
    epsilon, delta = 0.998 * plan.budget.epsilon, plan.budget.delta

    def at(log_unit: float) -> Plan:
        return replace(plan, unit=math.exp(log_unit))

    def excess(log_unit: float) -> float:
        charges = at(log_unit).charges()
        return epsilon_of(charges, delta, "public", cap=plan.cap, interval=interval) - epsilon

    assert plan.unit is not None
    start = plan.unit
    high = math.log(1.01 * start)
    if excess(high) > 0:
        return plan
    while start > _LEAST_SIGMA:
        start = max(start / 2, _LEAST_SIGMA)
        low = math.log(start)
        if excess(low) > 0:
            return at(brentq(excess, low, high, xtol=1e-6))
        high = low
    return replace(plan, unit=_LEAST_SIGMA)


# -- what to expect of a plan ----------------------------------------------------------------------

_WEAK_EPSILON: Final = 20.0
"""ε above which a guarantee hardly limits what an adversary learns."""


@dataclass(frozen=True)
class Forecast:
    """How a mode's signal will compare with the noise, computed before any data."""

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
        advice = f"Strong signal: the sum over all {units} outweighs the noise."
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

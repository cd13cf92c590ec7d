"""What a plan will release, and a forecast of its utility, before any row is read.

Everything follows from declared numbers: units, tasks, labels, rows and tasks per unit, ε. The
resolution is chosen by the rule of a run. The variances of directions are taken to be those of
public sentences under the usual encoder.

The forecast is based on one number, the signal-to-noise ratio of a mode,

    s = speakers of a task × share of its labels a unit has × weight of its rows / (σ √r)

where speakers are units that contribute to a task, and on one curve, share of the gap =
MOST · s / (s + HALF). Its constants were fitted to groupings of the shared data. It does not use
the data and can be far off on others: docs/planning.md compares forecasts with outcomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import ConfigError
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate
from cslr.protocol.step4_aggregate.contribution import Resolution, Units, resolve

if TYPE_CHECKING:
    from cslr.protocol.head import FamilyName

__all__ = ["CapChoice", "Federated", "Outlook", "outlook_of", "usual_spread"]

_calibrated = lru_cache(maxsize=64)(calibrate)
"""Noise is the same for any number of units, so it is computed once for all that are tried."""
MOST: Final = 0.95
"""Share of the gap that was closed where noise hardly mattered."""
HALF: Final = 3.0
"""Signal-to-noise ratio at which half of that is closed."""
OFF: Final = {"person": 45, "client": 45}
"""Largest error of forecasts, in percentage points."""
NOTHING, LITTLE, PART = 0.15, 0.3, 0.6
"""Forecasts below which the verdict says: nothing, little, or a part of the gap."""
_SPREAD: Final = (
    *(3.4e-2, 6.0e-3, 4.0e-3, 3.0e-3, 2.4e-3, 1.9e-3, 1.5e-3),
    *(1.2e-3, 8.9e-4, 5.4e-4, 3.3e-4, 2.3e-4, 6.6e-5),
)
"""Variances of Wikipedia sentences along 384 directions of MiniLM, at 13 evenly spaced ranks."""


@dataclass(frozen=True)
class Federated:
    """PUBLIC. What is declared about a federation."""

    budget: Budget
    units: int  # N, registered clients or people
    tasks: int
    labels_per_task: int = 1
    rows_per_unit: int = 8
    """Rows that a unit is expected to have of one task."""
    tasks_per_unit: int | None = None
    """Tasks that a unit is expected to have rows of; None: one for people, all for clients."""
    all_labels: bool = False
    """Whether every task has all labels."""
    clients_per_person: int = 1
    q: float = 1.0
    dimension: int = 384  # r
    sub_modes: int = 1  # J
    family: FamilyName = "classification"

    def __post_init__(self) -> None:
        for name, count in (("units", self.units), ("tasks", self.tasks)):
            if count < 1:
                raise ConfigError(f"{name} must be at least 1, not {count}")
        if not 1 <= self.spoken <= self.tasks:
            raise ConfigError(
                f"a unit can have rows of 1 to {self.tasks} tasks, not {self.tasks_per_unit}"
            )

    @property
    def spoken(self) -> int:
        """Tasks that a unit has rows of."""
        if self.tasks_per_unit is not None:
            return self.tasks_per_unit
        return 1 if self.budget.unit == "person" else self.tasks


@dataclass(frozen=True)
class CapChoice:
    """Noise and forecast under one cap."""

    cap: int
    sigma: float | None
    speakers: float
    """Expected units that contribute to a task."""
    share: float
    """Forecast share of the gap from zero-shot to pooled training."""

    @property
    def percent(self) -> int:
        """The share as it is printed."""
        return round(100 * self.share)


@dataclass(frozen=True)
class Outlook:
    """A plan, what it releases, and the forecast of its utility."""

    federation: Federated
    plan: Plan
    resolution: Resolution
    rounds: bool
    """Whether a run would choose gradient rounds."""
    speakers: float
    share: float
    caps: tuple[CapChoice, ...]
    """Some caps for comparison, with the one of the best forecast among them."""

    @property
    def best_cap(self) -> int:
        """The smallest cap with the best forecast in whole percent.

        It is the plan's own cap where no other is better, or where none gives a useful forecast.
        """
        own = self.plan.cap
        best = max(self.caps, key=lambda each: (each.percent, each.cap == own, -each.cap))
        return best.cap if best.share >= NOTHING else own

    @property
    def cap_matters(self) -> bool:
        """Whether the forecasts under the compared caps differ in whole percent."""
        return len({each.percent for each in self.caps}) > 1

    @property
    def signal(self) -> float:
        """s: the signal-to-noise ratio that the forecast follows from."""
        return _signal(self)

    @property
    def messages(self) -> int:
        """Messages of a unit for each task that it contributes to."""
        return self.plan.schedule.replay + self.plan.schedule.lists + self.plan.schedule.head

    def releases(self) -> str:
        """What is released about a task, in words."""
        r, units = self.federation.dimension, _UNITS[self.federation.budget.unit]
        if self.rounds:
            shared = self.federation.all_labels
            why = "every task has all labels" if shared else "tagging needs no replay"
            return (
                f"{why}, and there are enough {units} for gradient rounds: "
                f"{self.plan.schedule.head} rounds of a linear head for each task, one message "
                f"per round from each of the {units} that contribute to it"
            )
        known = f"means in {r} directions"
        if self.federation.sub_modes > 1:
            known = f"{self.federation.sub_modes} means per label in {r} directions"
        if self.resolution.tied:
            return f"{known}, a tied matrix in {self.resolution.tied}; one message a task"
        return f"{known}, one number for the spread; one message a task"

    def verdict(self) -> str:
        """What to expect, in one sentence; a forecast is not a guarantee."""
        if self.plan.unit is None:
            return "No noise: nothing is protected."
        share = 5 * round(20 * self.share)
        percent = f"about {share:d} % of the gap from zero-shot to pooled training"
        unit = self.federation.budget.unit
        doubt = f"On other streams such forecasts were off by up to {OFF[unit]} points."
        guess = ""
        if self.federation.family == "tagging":
            doubt = "Forecasts were fitted to texts; for names they are a guess."
            guess = f" {doubt}"
        if self.share >= PART:
            return f"Expected to close {percent}. {doubt}"
        if self.share >= LITTLE:
            return f"Expected to close {percent}; more units or a larger ε help. {doubt}"
        units = _UNITS[unit]
        if self.share >= NOTHING:
            return (
                f"Little: {percent} at best, and it may be no better than zero-shot. Compare with "
                f"--method zero-shot (ε = 0); more {units} or a larger ε help.{guess}"
            )
        return (
            "Not useful: expect nothing beyond zero-shot (--method zero-shot, ε = 0), and perhaps "
            f"less. About {self.needed():,} {units} would be needed to close 30 % of the gap."
            f"{guess}"
        )

    def needed(self) -> int:
        """Number of units from which on the forecast is 30 % of the gap, at the same ε and cap.

        It is found by trying numbers, as more units also change what a run releases.
        """

        def enough(units: int) -> bool:
            federation = replace(self.federation, units=units)
            return _planned(federation, self.plan.cap).share >= LITTLE

        most = 1
        while not enough(most):
            most *= 2
        few = most // 2
        while most - few > 1:
            middle = (few + most) // 2
            few, most = (few, middle) if enough(middle) else (middle, most)
        return most


_UNITS: Final = {"client": "clients", "person": "people"}


def outlook_of(federation: Federated, cap: int | None = None) -> Outlook:
    """The outlook under a cap, by default that of a run: the tasks that a person has, or all."""
    if cap is None:
        cap = federation.spoken if federation.budget.unit == "person" else federation.tasks
    chosen = _planned(federation, cap)
    tried = sorted({1, federation.spoken, min(2, federation.tasks), federation.tasks, cap})
    choices = tuple(_choice(_planned(federation, each)) for each in tried)
    return replace(chosen, caps=choices)


def _choice(outlook: Outlook) -> CapChoice:
    plan = outlook.plan
    return CapChoice(plan.cap, plan.sigma or plan.head_sigma, outlook.speakers, outlook.share)


def _planned(federation: Federated, cap: int) -> Outlook:
    """The outlook under one cap, without the comparison of caps."""
    plan = _rounds_of(federation, cap)
    rounds = plan is not None
    if plan is None:
        plan = _calibrated(federation.budget, federation.tasks, federation.q, cap)
    units = Units(
        federation.units,
        federation.rows_per_unit,
        federation.clients_per_person,
        tasks=federation.spoken,
    )
    may_tie = federation.sub_modes == 1 and not rounds
    spread = usual_spread(federation.dimension)
    resolution = resolve(units, plan, federation.labels_per_task, spread, may_tie)
    speakers = federation.q * federation.units * min(cap, federation.spoken) / federation.tasks
    outlook = Outlook(federation, plan, resolution, rounds, speakers, 0.0, ())
    signal = _signal(outlook)
    share = MOST if math.isinf(signal) else MOST * signal / (signal + HALF)
    return replace(outlook, share=share)


def _rounds_of(federation: Federated, cap: int) -> Plan | None:
    """The plan of gradient rounds under a cap, if a run would choose it."""
    kept = federation.all_labels or federation.family == "tagging"
    if not kept or federation.sub_modes > 1:
        return None
    from cslr.methods.gradient_rounds import ROUNDS, prefers_rounds  # loads what training needs

    q, schedule = federation.q, Schedule(replay=0, head=ROUNDS)
    plan = _calibrated(federation.budget, federation.tasks, q, cap, schedule, q)
    return plan if prefers_rounds(plan, federation.units, federation.family) else None


def _signal(outlook: Outlook) -> float:
    """s: the signal-to-noise ratio of a mode."""
    federation, full = outlook.federation, outlook.resolution.full_weight
    if outlook.plan.unit is None:
        return math.inf
    rows = federation.rows_per_unit
    labels = min(1.0, rows / federation.labels_per_task)
    weight = 1.0 if outlook.rounds else min(rows, full) / full
    noise = outlook.plan.unit * federation.clients_per_person * math.sqrt(federation.dimension)
    return outlook.speakers * labels * weight / (noise * federation.sub_modes)


def usual_spread(dimension: int) -> FloatArray:
    """(r,) the usual public variances of directions."""
    known = np.array(_SPREAD)
    places = np.linspace(0, len(known) - 1, dimension)
    variances: FloatArray = np.interp(places, np.arange(len(known)), known)
    return variances

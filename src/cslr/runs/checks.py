"""Checks of a configuration before anything is read or released."""

from __future__ import annotations

import math
from dataclasses import replace

from cslr.config import Config
from cslr.data.streams import Stream
from cslr.errors import BudgetExceeded, ConfigError, PlanChanged
from cslr.privacy.accounting import Charge, epsilon_of
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Plan, Schedule
from cslr.protocol.evaluation import LABEL
from cslr.runs.directory import SeedDirectory
from cslr.runs.own_data import is_own
from cslr.runs.settled import SettledConfig

__all__ = [
    "check_affordable",
    "check_evaluation",
    "check_people",
    "check_privacy",
    "check_upgrade",
]


def check_privacy(settled: SettledConfig) -> None:
    """Refuse settings that contradict enforced privacy or the method."""
    config, method = settled.config, settled.method
    enforced = config.privacy.mode == "enforced"
    if enforced and method.reads == "openly":
        raise ConfigError(
            f"method {config.method!r} reads rows without noise, which is not allowed with "
            "enforced privacy; use --method cslr"
        )
    if enforced and method.pools:
        raise ConfigError(
            f"method {config.method!r} needs the rows of all clients in one place, so it is for "
            f"simulations alone; where privacy is enforced use --method cslr"
        )
    if enforced and config.head.kind == "federated":
        raise ConfigError(
            "--head federated sends updates without noise, which is not allowed with "
            "enforced privacy; use --head released, --head rounds or --head dp-fedavg"
        )
    if enforced and config.replay.sends_lists:
        raise ConfigError(
            f"replay.release = {config.replay.release!r} reveals which clients hold rows of a "
            "task, which ε does not cover, so it is not allowed with enforced privacy; use --set "
            "replay.release=sum"
        )
    if config.stream.hostile and (enforced or method.reads != "privately"):
        raise ConfigError(
            "stream.poisoning requires a private method and simulated privacy; remove it, or "
            "use --method cslr with --privacy simulated"
        )
    if config.stream.hostile and not method.faces_hostile:
        raise ConfigError(f"{config.method} does not study hostile clients; use cslr or dp-sgd")
    if config.privacy.unit == "person":
        _check_person(settled)
    if config.upgrade and not method.carries:
        raise ConfigError(
            f"method {config.method!r} has no releases to carry over to another encoder; use "
            "--method cslr"
        )
    declaration = settled.declaration
    public_rows = declaration is not None and declaration.public_rows
    if is_own(config.stream) and not enforced and not public_rows:
        raise ValueError("config must be settled (runs.settled.settle) before own rows are read")


def _check_person(settled: SettledConfig) -> None:
    """Refuse a person as the unit where a contribution cannot be one person's."""
    config = settled.config
    if not settled.method.hides_people:
        raise ConfigError(
            f"{config.method} trains models on all rows of a client and cannot hide one person "
            f"inside it; use --unit client, or another method such as cslr"
        )
    if config.replay.sends_lists:
        raise ConfigError(
            f"{config.method} with replay.release = 'list' cannot hide one person: a list comes "
            "under its sender's name, so people in a client could be distinguished; use --unit "
            "client or --set replay.release=sum"
        )
    if config.stream.hostile:
        raise ConfigError(
            "stream.poisoning is about hostile clients, not about people inside them; use "
            "--unit client"
        )


def check_people(settled: SettledConfig, stream: Stream) -> None:
    """Refuse settings that cannot protect a person in several clients."""
    privacy = settled.config.privacy
    if privacy.unit == "client" or stream.clients_per_person == 1:
        return
    rates = (privacy.participation, settled.method.head_q or 1.0)
    if privacy.adversary == "public" and min(rates) < 1:
        raise ConfigError(
            "with clients_per_person > 1 each client samples a person independently, so sampling "
            "amplifies privacy less than is accounted for; use --q 1 or adversary = 'roster'"
        )
    if privacy.evaluation == "private":
        raise ConfigError(
            "--evaluate private counts a person's answers in one client; with clients_per_person "
            "> 1 use --evaluate shown or none"
        )


def check_evaluation(settled: SettledConfig, stream: Stream) -> None:
    """Refuse a private evaluation without test rows of clients or without a budget."""
    config = settled.config
    if config.privacy.evaluation != "private":
        return
    if settled.method.reads != "privately":
        raise ConfigError(
            "--evaluate private requires a method with a privacy budget, and "
            f"{config.method!r} has none; use --evaluate shown or --method cslr"
        )
    if math.isinf(config.privacy.epsilon) or config.head.kind == "federated":
        raise ConfigError("--evaluate private requires a finite ε; use --evaluate shown")
    if config.client_encoders:
        raise ConfigError(
            "--evaluate private requires that all clients run one encoder; use --evaluate shown"
        )
    if stream.test.clients is None:
        raise ConfigError(
            "--evaluate private requires test rows that belong to clients, and those of "
            f"{stream.name!r} do not; use --evaluate shown or stored"
        )


def check_upgrade(config: Config, tasks: int) -> None:
    """Refuse an upgrade after more tasks than the stream has."""
    if config.upgrade > tasks:
        raise ConfigError(
            f"upgrade = {config.upgrade}: the stream has only {tasks} tasks; set upgrade to at "
            f"most {tasks}"
        )


def check_affordable(
    ledger: Ledger, plan: Plan, kept: SeedDirectory, evaluated: bool = False
) -> None:
    """Refuse, before the first release, a run that would exceed the budget.

    Releases that were kept or charged before an interruption are paid for already, and so is an
    evaluation in the trace (``evaluated``).
    """
    name, budget = ledger.federation.name, ledger.federation.budget
    for record in ledger.records:
        if record["kind"] == "plan" and record["body"]["plan"] != plan.as_dict():
            fixed = record["body"]["plan"]
            raise PlanChanged(
                f"the plan of {name!r} was fixed by an earlier run: {fixed['releases']} "
                f"releases for ε = {fixed['budget']['epsilon']:g}, q = {fixed['q']:g}, cap = "
                f"{fixed['cap']}. Run with the same --epsilon, --q and --cap, and with "
                "--evaluate private if and only if that run had it"
            )
    due = _due(ledger, plan, kept, evaluated)
    if not ledger.charges or not due:
        return
    charges = [*ledger.charges, *due]
    labels = [charge.label for charge in charges if charge.part != "evaluation"]
    cap = ledger.cap if len(set(labels)) == len(labels) else None
    after = epsilon_of(charges, budget.delta, budget.adversary, cap=cap)
    if after > budget.epsilon + 1e-9:
        spent = ledger.epsilon("end_to_end", budget.adversary)
        raise BudgetExceeded(
            f"this run's {len(due)} releases would bring {name!r} to ε = {after:.3g} against "
            f"{budget.adversary}, beyond its budget of {budget.epsilon:g} (spent: {spent:.3g}). "
            f"Nothing was released"
        )


def _due(ledger: Ledger, plan: Plan, kept: SeedDirectory, evaluated: bool) -> list[Charge]:
    """The charges that the run still has to make."""
    if replace(plan.schedule, evaluation=0) != Schedule():
        # Of several releases a task: all are due, or the run is already under way.
        return [] if kept.path.exists() else plan.charges()
    charges = [plan.charge(f"task {task}", task) for task in range(plan.releases)]
    if plan.schedule.evaluation and not evaluated:
        charges.append(plan.evaluation_charge(LABEL))
    open_ = {label for label, _ in ledger.unsettled}
    return [
        charge
        for charge in charges
        if kept.load(charge.label) is None and charge.label not in open_
    ]

"""What is refused before anything is read or released."""

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

__all__ = ["check_affordable", "check_evaluation", "check_privacy", "check_upgrade"]


def check_privacy(settled: SettledConfig) -> None:
    """Nobody's own rows are read without noise, and nothing is noted about who holds them."""
    config, method = settled.config, settled.method
    enforced = config.privacy.mode == "enforced"
    if enforced and method.reads == "openly":
        raise ConfigError(
            f"method {config.method!r} reads rows without noise, so it cannot be run where privacy "
            f"is enforced; use --method cslr"
        )
    if enforced and config.head.kind == "federated":
        raise ConfigError(
            "a federated head sends updates without noise, so it cannot be run where privacy is "
            "enforced; use --head released or --head dp-fedavg"
        )
    if enforced and config.replay.release == "list":
        raise ConfigError(
            "lists come under their senders' names and show who holds rows of a task, which no ε "
            "covers, so they cannot be released where privacy is enforced; use "
            "--set replay.release=sum"
        )
    if enforced and config.replay.clipping == "separate" and config.privacy.participation < 1:
        raise ConfigError(
            "sums that are clipped apart share one participation coin, which an interruption would "
            "flip again; where privacy is enforced use --q 1 or --set replay.clipping=joint"
        )
    if config.stream.hostile and (enforced or method.reads != "privately"):
        raise ConfigError(
            "stream.hostile is for simulated clients of a private method; remove it, or use "
            "--method cslr with simulated privacy"
        )
    if config.stream.hostile and not method.faces_hostile:
        raise ConfigError(f"{config.method} does not study hostile clients; use cslr or dp-sgd")
    if config.upgrade.after and not method.carries:
        raise ConfigError(
            f"method {config.method!r} has nothing to carry over to another encoder; use cslr"
        )
    if is_own(config.stream) and not enforced:
        raise ValueError("config must be settled (runs.settled.settle) before own rows are read")


def check_evaluation(settled: SettledConfig, stream: Stream) -> None:
    """An evaluation is paid for where there is something to pay for, and something to pay with."""
    config = settled.config
    if config.privacy.evaluation != "private":
        return
    if settled.method.reads != "privately":
        raise ConfigError(
            f"--evaluate private needs a method with a privacy budget; {config.method!r} has none. "
            f"Use --evaluate shown or --method cslr"
        )
    if math.isinf(config.privacy.epsilon) or config.head.kind == "federated":
        raise ConfigError(
            "--evaluate private adds noise within ε, and here ε is infinite; use --evaluate shown"
        )
    if config.encoders:
        raise ConfigError(
            "--evaluate private is for clients that all run one encoder; use --evaluate shown"
        )
    if stream.test.clients is None:
        raise ConfigError(
            f"--evaluate private counts right answers by client, and the test rows of "
            f"{stream.name!r} belong to none; use --evaluate shown or stored"
        )


def check_upgrade(config: Config, tasks: int) -> None:
    """An encoder is exchanged within the stream, or it is not exchanged."""
    if config.upgrade.after > tasks:
        raise ConfigError(
            f"upgrade.after = {config.upgrade.after}: the stream has {tasks} tasks; say after how "
            f"many of them the encoder is exchanged"
        )


def check_affordable(
    ledger: Ledger, plan: Plan, kept: SeedDirectory, evaluated: bool = False
) -> None:
    """Refuse before the first release a run that could not pay for its last.

    What is kept or was charged before an interruption is paid for, and so is an evaluation that
    stands in the trace (``evaluated``).
    """
    name, budget = ledger.federation.name, ledger.federation.budget
    for record in ledger.records:
        if record["kind"] == "plan" and record["body"]["plan"] != plan.as_dict():
            fixed = record["body"]["plan"]
            raise PlanChanged(
                f"an earlier run on {name!r} fixed its plan: {fixed['releases']} releases for "
                f"ε = {fixed['budget']['epsilon']:g}, q = {fixed['q']:g}, cap = {fixed['cap']}. "
                f"Run with the same --epsilon, --q and --cap, and with --evaluate private if and "
                f"only if that run had it"
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
    """What the run has still to pay for."""
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

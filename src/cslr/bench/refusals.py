"""What is refused before anything is read or released."""

from __future__ import annotations

from cslr.bench.methods import method_named
from cslr.bench.own_run import is_own
from cslr.bench.rundir import SeedDirectory
from cslr.config import Config
from cslr.errors import BudgetExceeded, ConfigError, PlanChanged
from cslr.privacy.accounting import epsilon_of
from cslr.privacy.ledger import Ledger
from cslr.privacy.plan import Plan, Schedule

__all__ = ["check_affordable", "check_privacy", "check_upgrade"]


def check_privacy(config: Config) -> None:
    """Nobody's own rows are read without noise, and nothing is noted about who holds them."""
    method = method_named(config.method)
    enforced, settled = config.privacy.mode == "enforced", method.settled(config)
    if enforced and method.reads == "openly":
        raise ConfigError(
            f"method {config.method!r} reads rows without noise, so it cannot be run where privacy "
            f"is enforced; use --method cslr"
        )
    if enforced and settled.head.kind == "federated":
        raise ConfigError(
            "a federated head sends updates without noise, so it cannot be run where privacy is "
            "enforced; use --head released or --head dp-fedavg"
        )
    if enforced and settled.replay.release == "list":
        raise ConfigError(
            "lists come under their senders' names and show who holds rows of a task, which no ε "
            "covers, so they cannot be released where privacy is enforced; use "
            "--set replay.release=sum"
        )
    if enforced and settled.replay.clipping == "separate" and config.privacy.participation < 1:
        raise ConfigError(
            "sums that are clipped apart share one participation coin, which an interruption would "
            "flip again; where privacy is enforced use --q 1 or --set replay.clipping=joint"
        )
    if config.stream.hostile and (enforced or method.reads != "privately"):
        raise ConfigError(
            "stream.hostile is for simulated clients of a private method; remove it, or use "
            "--method cslr with simulated privacy"
        )
    if config.upgrade.after and not method.carries:
        raise ConfigError(
            f"method {config.method!r} has nothing to carry over to another encoder; use cslr"
        )
    if is_own(config.stream) and not enforced:
        raise ValueError("config must be completed (own_run.complete) before own rows are read")


def check_upgrade(config: Config, tasks: int) -> None:
    """An encoder is exchanged within the stream, or it is not exchanged."""
    if config.upgrade.after > tasks:
        raise ConfigError(
            f"upgrade.after = {config.upgrade.after}: the stream has {tasks} tasks; say after how "
            f"many of them the encoder is exchanged"
        )


def check_affordable(ledger: Ledger, plan: Plan, kept: SeedDirectory) -> None:
    """Refuse before the first release a run that could not pay for its last.

    What is kept or was charged before an interruption is paid for.
    """
    name, budget = ledger.federation.name, ledger.federation.budget
    for record in ledger.records:
        if record["kind"] == "plan" and record["body"]["plan"] != plan.as_dict():
            fixed = record["body"]["plan"]
            raise PlanChanged(
                f"an earlier run on {name!r} fixed its plan: {fixed['releases']} releases for "
                f"ε = {fixed['budget']['epsilon']:g}, q = {fixed['q']:g}, cap = {fixed['cap']}. "
                f"Run with the same --epsilon, --q and --cap"
            )
    open_ = {label for label, _ in ledger.unsettled}
    if plan.schedule == Schedule():
        labels = [f"task {task}" for task in range(plan.releases)]
        due = [
            plan.charge(label, task)
            for task, label in enumerate(labels)
            if kept.load(label) is None and label not in open_
        ]
    else:  # of several releases a task: all are due, or the run is already under way
        due = [] if kept.path.exists() else plan.charges()
    if not ledger.charges or not due:
        return
    charges = [*ledger.charges, *due]
    once = len({charge.label for charge in charges}) == len(charges)
    cap = ledger.cap if once else None
    after = epsilon_of(charges, budget.delta, budget.adversary, cap=cap)
    if after > budget.epsilon + 1e-9:
        spent = ledger.epsilon("end_to_end", budget.adversary)
        raise BudgetExceeded(
            f"this run's {len(due)} releases would bring {name!r} to ε = {after:.3g} against "
            f"{budget.adversary}, beyond its budget of {budget.epsilon:g} (spent: {spent:.3g}). "
            f"Nothing was released"
        )

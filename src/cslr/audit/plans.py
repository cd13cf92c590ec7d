"""Whose plan is audited: one by hand, that of a configuration, or one that a ledger has fixed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cslr.config import Config
from cslr.data.own import load_declaration
from cslr.data.streams import load_stream
from cslr.errors import ConfigError, LedgerCorrupted
from cslr.methods.registry import method_named
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Budget, Plan, Schedule
from cslr.runs.own_data import complete, is_own
from cslr.runs.prepare import plan_of

__all__ = ["Audited", "Shape", "plan_of_config", "plan_of_ledger", "shape_of_stream"]


@dataclass(frozen=True)
class Shape:
    """The public numbers of a stream that a plan follows from."""

    tasks: int
    labels: int
    """Labels of a task."""
    clients: int
    cap: int | None = None


@dataclass(frozen=True)
class Audited:
    """A plan and the public numbers that shape what is released under it."""

    name: str
    plan: Plan
    clients: int
    labels: int
    dimension: int

    @property
    def one_sum(self) -> bool:
        """Whether a task releases one sum, so that the whole pipeline can be audited."""
        return self.plan.schedule == Schedule()


def plan_of_config(config: Config, shape: Shape) -> Audited:
    """The plan that a run of ``config`` on a stream of this shape would fix."""
    method = method_named(config.method)
    if method.reads != "privately":
        raise ConfigError(
            f"method {config.method!r} learns nothing privately from clients: there is no noise to "
            "audit"
        )
    plan = plan_of(config, shape.tasks, shape.cap)
    clients = config.stream.clients or shape.clients
    directions = method.settled(config).replay.directions
    return Audited(config.stream.name, plan, clients, shape.labels, directions)


def shape_of_stream(config: Config) -> tuple[Config, Shape]:
    """The configuration, completed, and the shape of the stream it names.

    Of one's own rows only the declaration is read.
    """
    config = complete(config)
    wanted = config.stream
    if is_own(wanted) and wanted.declaration is not None:
        declared = load_declaration(wanted.declaration)
        most = max(len(task.labels or declared.labels) for task in declared.tasks)
        return config, Shape(len(declared.tasks), most, declared.clients)
    stream = load_stream(wanted.name, wanted.data, wanted.rows, wanted.scenario)
    most = max(len(task.labels) for task in stream.tasks)
    return config, Shape(len(stream.tasks), most, stream.clients, stream.cap)


def plan_of_ledger(path: Path) -> Audited:
    """The plan that a ledger fixed before its first release."""
    ledger = Ledger.read(path)
    for record in ledger.records:
        if record["kind"] == "plan":
            return _audited(ledger.federation.name, record["body"], path)
    raise ConfigError(f"{path} fixes no plan: nothing was about to be released")


def _audited(name: str, body: dict[str, Any], path: Path) -> Audited:
    fixed, public = body["plan"], body["public"]
    try:
        plan = Plan(
            Budget.from_dict(fixed["budget"]),
            fixed["releases"],
            fixed["q"],
            fixed["cap"],
            fixed["unit"],
            Schedule(**fixed["schedule"]),
            fixed["head_q"],
        )
    except (KeyError, TypeError) as error:
        raise LedgerCorrupted(f"{path}: the plan is not one that can be read: {error}") from None
    # Methods without a replay write no such numbers; the mechanism is audited without them.
    modes = int(public.get("modes", plan.releases))
    clients, dimension = int(public.get("clients", 20)), int(public.get("dimension", 128))
    return Audited(name, plan, clients, max(1, modes // plan.releases), dimension)

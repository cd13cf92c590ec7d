"""The plan to audit: from flags, from a configuration, or from a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cslr.config import Config
from cslr.data.streams import load_stream
from cslr.errors import ConfigError, LedgerCorrupted
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Budget, Plan, Schedule
from cslr.runs.embedded import SettledConfig, settle
from cslr.runs.prepare import plan_of

__all__ = ["Audited", "Shape", "plan_of_config", "plan_of_ledger", "shape_of_stream"]


@dataclass(frozen=True)
class Shape:
    """The public numbers of a stream from which a plan follows."""

    tasks: int
    labels: int
    """The largest number of labels of a task."""
    clients: int
    cap: int | None = None
    people: int | None = None
    """Registered people, if they can be the units."""
    clients_per_person: int = 1
    tasks_per_person: int = 1


@dataclass(frozen=True)
class Audited:
    """A plan and the public numbers that determine the shape of its releases."""

    name: str
    plan: Plan
    clients: int
    """Registered units: clients, or the people inside them if the plan protects people."""
    labels: int
    dimension: int
    clients_per_person: int = 1

    @property
    def one_sum(self) -> bool:
        """Whether a task releases one sum, so that the whole pipeline can be audited."""
        return self.plan.schedule == Schedule()


def plan_of_config(settled: SettledConfig, shape: Shape) -> Audited:
    """The plan that a run on a stream of this shape would fix."""
    config = settled.config
    if settled.method.reads != "privately":
        raise ConfigError(
            f"method {config.method!r} adds no noise, so there is nothing to audit; use "
            "--method cslr"
        )
    plan = plan_of(settled, shape.tasks, shape.cap, shape.tasks_per_person)
    units = config.stream.clients or shape.clients
    if config.privacy.unit == "person":
        units = shape.people or units
    directions, shared = config.replay.directions, shape.clients_per_person
    return Audited(config.stream.name, plan, units, shape.labels, directions, shared)


def shape_of_stream(config: Config) -> tuple[SettledConfig, Shape]:
    """The settled configuration, and the shape of the stream it names.

    For your own rows only the declaration is read.
    """
    settled = settle(config)
    chosen, declared = settled.config.stream, settled.declaration
    if declared is not None:
        most = max(len(task.labels or declared.labels) for task in declared.tasks)
        numbers = (declared.clients, None, declared.people, declared.clients_per_person)
        tasks = declared.tasks_per_person
        return settled, Shape(len(declared.tasks), most, *numbers, tasks_per_person=tasks)
    stream = load_stream(chosen.name, chosen.data, chosen.rows, chosen.scenario)
    most = max(len(task.labels) for task in stream.tasks)
    people = stream.registered_people
    return settled, Shape(len(stream.tasks), most, stream.clients, stream.cap, people)


def plan_of_ledger(path: Path) -> Audited:
    """The plan that a ledger fixed before its first release."""
    ledger = Ledger.read(path)
    for record in ledger.records:
        if record["kind"] == "plan":
            return _audited(ledger.federation.name, record["body"], path)
    raise ConfigError(
        f"{path} contains no plan, because nothing was released yet; audit the TOML file of the "
        "run instead"
    )


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
        raise LedgerCorrupted(f"{path}: the plan cannot be read: {error}") from None
    # Methods without a replay do not record these numbers; defaults suffice for the mechanism.
    modes = int(public.get("modes", plan.releases))
    units, dimension = int(public.get("clients", 20)), int(public.get("dimension", 128))
    shared = int(public.get("clients_per_person", 1))
    return Audited(name, plan, units, max(1, modes // plan.releases), dimension, shared)

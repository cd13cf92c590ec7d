"""Run a configuration: every seed, the method and its yardsticks, one traced step at a time.

A step is a row of the accuracy matrix. Finished steps are in the trace, so an interrupted run
resumes where it stopped. Stored scores can be rebuilt from the trace alone; scores that are only
shown are computed again if the run is repeated, at no privacy cost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from cslr.config import Config, with_settings
from cslr.data.stream import describe_partition
from cslr.data.streams import EMBEDDED, Stream, load_stream
from cslr.errors import BudgetExceeded, ConfigError, PlanChanged
from cslr.federation.simulation import Population
from cslr.methods.method import MethodContext, Stage
from cslr.methods.registry import YARDSTICKS, method_named
from cslr.privacy.accounting import ADVERSARIES, SCOPES, Charge, epsilon_of
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Plan, Schedule, Unit
from cslr.protocol.evaluation import LABEL
from cslr.runs.directory import RunDirectory, SeedDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, as_settled
from cslr.runs.measure import figures_of, plain, privately_measured
from cslr.runs.mixed_encoders import in_common, translation_arrays
from cslr.runs.predict import ModelFacts
from cslr.runs.prepare import (
    check_evaluation,
    check_people,
    check_privacy,
    check_upgrade,
    context_of,
    ledger_of,
    plan_of,
    population_of,
    with_head,
)
from cslr.runs.results import Result, collect
from cslr.seeding import Seeds

__all__ = ["Step", "check_affordable", "learn", "run", "units_of", "usual_unit", "with_unit"]

Step = Callable[[str, int, int], None]
"""Called at every step with its description, the number of steps done, and their total."""


def run(
    config: Config | SettledConfig,
    embedded: EmbeddedStream,
    directory: RunDirectory,
    on_step: Step,
) -> Result:
    """Run the whole configuration; finished steps are read from the trace."""
    started = time.perf_counter()
    settled = as_settled(config)
    shown = learn(settled, embedded, directory, on_step)
    _model(settled.given, embedded).save(directory.path)
    if directory.find(kind="finished") is None:
        seconds = embedded.seconds + time.perf_counter() - started
        directory.note(kind="finished", **_seconds(directory, seconds))
    return collect(settled.given, directory, embedded.stream, shown)


def _model(config: Config, embedded: EmbeddedStream) -> ModelFacts:
    """The public facts for using the heads of a finished run."""
    stream, others = embedded.stream, embedded.others
    return ModelFacts(
        config.method,
        stream.family,
        stream.scenario(config.stream.scenario),
        tuple(label.name for label in stream.labels),
        {task.name: task.labels for task in stream.tasks},
        config.encoder,
        embedded.encoder,
        config.seeds,
        {name: other.encoder for name, other in zip(config.client_encoders, others, strict=True)},
    )


def learn(
    config: Config | SettledConfig,
    embedded: EmbeddedStream,
    directory: RunDirectory,
    on_step: Step,
    until: int | None = None,
) -> list[dict[str, Any]]:
    """Run all unfinished steps; returns the scores that are shown and not stored.

    config: complete, or settled.
    until: stop after this many tasks, without yardsticks; the run can be resumed later.
    """
    settled = with_head(as_settled(config), embedded.stream)
    given, tasks = settled.given, len(embedded.stream.tasks)
    check_privacy(settled)
    check_upgrade(given, tasks)
    check_evaluation(settled, embedded.stream)
    check_people(settled, embedded.stream)
    plan = plan_of(settled, tasks, embedded.stream.cap, embedded.stream.tasks_per_person)
    streams = [embedded] * len(given.seeds)
    if embedded.others or given.translates:
        streams = [in_common(embedded, given, Seeds(seed)) for seed in given.seeds]
    populations = [
        population_of(given, stream, seed)
        for stream, seed in zip(streams, given.seeds, strict=True)
    ]
    _check_affordable(settled, plan, directory)
    directory.begin()
    names = () if until is not None else _compared_with(given)
    methods = [settled, *[settled.compared_with(name) for name in names if name != given.method]]
    rows = (tasks if until is None else until) + 1
    total, shown = len(given.seeds) * len(methods) * rows, []
    done = iter(range(total))
    for seed, stream, population in zip(given.seeds, streams, populations, strict=True):
        _note_partition(directory, population, seed)
        if stream.translations:
            directory.seed(seed).save_arrays("translations", translation_arrays(stream))
        for each in methods:
            with ledger_of(each, seed, directory) as ledger:
                context = context_of(each, stream, population, seed, plan, ledger, directory)
                for after, stage in enumerate(islice(each.method.stages(context), rows)):
                    on_step(f"seed {seed} · {each.name} · after {after} tasks", next(done), total)
                    row = _Row(directory, stream, context, each.name, after, cache(stage))
                    shown += row.finish(whole=until is None)
                if not each.is_compared and until is None:
                    row.measure()
                    _note_cost(directory, ledger, plan, seed)
    on_step("done", total, total)
    return shown


def _check_affordable(settled: SettledConfig, plan: Plan, directory: RunDirectory) -> None:
    """With enforced privacy: refuse a run that the federation's budget does not allow."""
    if settled.config.privacy.mode == "enforced" and settled.method.reads == "privately":
        seed = settled.config.seeds[0]
        evaluated = directory.find(kind="evaluation", seed=seed) is not None
        with ledger_of(settled, seed, directory) as ledger:
            check_affordable(ledger, plan, directory.seed(seed), evaluated)


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
                f"tasks for ε = {fixed['budget']['epsilon']:g}, q = {fixed['q']:g}, cap = "
                f"{fixed['cap']}. Run with the same --epsilon, --q, --cap and --head, and with "
                "--evaluate private if and only if that run had it. If all are the same, another "
                "version of cslr chose what is released: finish the run with that version"
            )
    due = _due(ledger, plan, kept, evaluated)
    if not ledger.charges or not due:
        return
    # A release that an earlier run has made, too, loses the cap. Labels of due charges may be
    # placeholders, so releases are told apart by their participation coins.
    again = {charge.round for charge in due if charge.task is not None}
    again &= {charge.round for charge in ledger.charges if charge.task is not None}
    cap = None if again else ledger.effective_cap
    after = epsilon_of([*ledger.charges, *due], budget.delta, budget.adversary, cap=cap)
    if after > budget.epsilon + 1e-9:
        spent = ledger.epsilon("end_to_end", budget.adversary)
        raise BudgetExceeded(
            f"this run's {len(due)} releases would bring {name!r} to ε = {after:.3g} against "
            f"{budget.adversary}, beyond its budget of {budget.epsilon:g} (spent: {spent:.3g}). "
            f"Nothing was released. An interrupted run continues with its --run-dir; a finished "
            f"one answers with `cslr predict`"
        )


def _due(ledger: Ledger, plan: Plan, kept: SeedDirectory, evaluated: bool) -> list[Charge]:
    """The charges that the run still has to make."""
    if replace(plan.schedule, evaluation=0) != Schedule():
        # A task has several releases: all charges are due, unless the run has begun.
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


def _compared_with(config: Config) -> tuple[str, ...]:
    """The yardsticks of a run; those that read rows without noise only in a simulation.

    Without exact scores there are none. Zero-shot is otherwise always included: forward transfer
    is measured against it.
    """
    if config.privacy.evaluation in ("private", "none"):
        return ()
    if not config.yardsticks:
        return ("zero-shot",)
    enforced = config.privacy.mode == "enforced"
    return tuple(
        name for name in YARDSTICKS if not (enforced and method_named(name).reads == "openly")
    )


def _note_partition(directory: RunDirectory, population: Population, seed: int) -> None:
    """Report the partition as realised; never where privacy is enforced."""
    if directory.config.privacy.mode == "enforced":
        return
    if directory.find(kind="partition", seed=seed) is None:
        directory.note(
            kind="partition",
            seed=seed,
            clients=population.count,
            realised=describe_partition(
                population.clients, population.labels[population.held], population.count
            ),
        )


@dataclass(frozen=True, eq=False)
class _Row:
    """The row a[after, ·] of one method and seed."""

    directory: RunDirectory
    embedded: EmbeddedStream
    context: MethodContext
    method: str
    after: int
    stage: Stage

    @property
    def step(self) -> dict[str, Any]:
        """The fields by which the trace identifies it."""
        seed = self.context.seeds.seed
        return {"seed": seed, "method": self.method, "after": self.after}

    @property
    def seen(self) -> EmbeddedStream:
        """The stream it is evaluated on: embedded by the earlier encoder before an upgrade."""
        earlier, before = self.context.earlier, self.embedded.before
        early = earlier is not None and self.after < earlier.tasks
        return before if early and before is not None else self.embedded

    @property
    def scenario(self) -> str:
        """The scenario in which it is evaluated."""
        return self.embedded.stream.scenario(self.directory.config.stream.scenario)

    def finish(self, whole: bool) -> list[dict[str, Any]]:
        """Train, save, evaluate and trace the row, unless the trace has it.

        whole: whether the run goes to its last task; if so, the scores that are shown and not
        stored are returned.
        """
        rule, begun = self.directory.config.privacy.evaluation, time.perf_counter()
        stored: dict[str, Any] = {}
        if self.directory.find(kind="row", **self.step) is None:
            self._keep()
            if rule == "stored":
                stored = self._figures()
            seconds = _seconds(self.directory, time.perf_counter() - begun)
            self.directory.note(kind="row", **self.step, **stored, **seconds)
        if rule != "shown" or not whole:
            return []
        return [{"kind": "row", **self.step, **self._figures()}]

    def measure(self) -> None:
        """Charge and run the private evaluation of the last row, if configured and not done yet."""
        seed = self.context.seeds.seed
        if self.directory.config.privacy.evaluation != "private":
            return
        if self.directory.find(kind="evaluation", seed=seed) is None:
            measured = privately_measured(self.seen, self.context, self.scenario, self.stage)
            self.directory.note(kind="evaluation", seed=seed, **measured)

    def _figures(self) -> dict[str, Any]:
        return figures_of(self.seen, self.context, self.scenario, self.stage(), self.after)

    def _keep(self) -> None:
        learnt, directory = self.stage(), self.directory
        if self.method == directory.config.method:
            for file, arrays in learnt.artefacts.items():
                directory.seed(self.context.seeds.seed).save_arrays(file, arrays)
        if learnt.diagnosis and directory.find(kind="diagnosis", **self.step) is None:
            diagnosis = {name: plain(value) for name, value in learnt.diagnosis.items()}
            directory.note(kind="diagnosis", **self.step, **diagnosis)


def _seconds(directory: RunDirectory, seconds: float) -> dict[str, float]:
    """Duration of a step; not recorded with enforced privacy: it depends on private rows."""
    if directory.config.privacy.mode == "enforced":
        return {}
    return {"seconds": round(seconds, 3)}


def _note_cost(directory: RunDirectory, ledger: Ledger, plan: Plan, seed: int) -> None:
    """Copy ε of the ledger into the trace; every printed ε comes from there."""
    if directory.find(kind="cost", seed=seed) is None:
        epsilon = {
            scope: {who: plain(ledger.epsilon(scope, who)) for who in ADVERSARIES}
            for scope in SCOPES
        }
        directory.note(
            kind="cost", seed=seed, epsilon=epsilon, sigma=plan.sigma, releases=len(ledger.charges)
        )


# -- units of privacy ------------------------------------------------------------------------------


def usual_unit(config: Config) -> Unit:
    """The unit of a configuration that names none: a client, or what an embedded stream proposes.

    A method that cannot hide a person hides a client.
    """
    if config.stream.data is not None or config.stream.name not in EMBEDDED:
        return "client"
    stream = load_stream(config.stream.name, None)
    if stream.unit == "client":
        return "client"
    try:
        check_privacy(SettledConfig.of(with_settings(config, {"privacy.unit": stream.unit})))
    except ConfigError:
        return "client"
    return stream.unit


def units_of(config: Config, stream: Stream) -> int:
    """How many units of privacy are registered."""
    if config.privacy.unit == "person":
        return stream.registered_people
    return config.stream.clients or stream.clients


def with_unit(settled: SettledConfig, embedded: EmbeddedStream, unit: Unit) -> Result:
    """The same simulated run for another unit, without yardsticks; nothing of it is kept."""
    if settled.config.privacy.mode != "simulated":
        raise ValueError("settled: only a simulation can be repeated for another unit")
    other = with_settings(settled.given, {"privacy.unit": unit, "yardsticks": False})
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run", other)
        return run(SettledConfig.of(other), embedded, directory, lambda what, done, total: None)

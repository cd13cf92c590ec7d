"""Run a configuration: every seed, the method and its yardsticks, one traced step at a time.

A step is a row of the accuracy matrix. Finished steps stand in the trace, so an interrupted run
goes on where it stopped, and every figure can be made again from the trace alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cslr.baselines.setting import Learnt, Setting, Stage
from cslr.bench.holding import hold
from cslr.bench.methods import YARDSTICKS, method_named
from cslr.bench.own_run import is_own
from cslr.bench.partition import describe_partition
from cslr.bench.predict import Model
from cslr.bench.results import Result, collect
from cslr.bench.rundir import RunDirectory, SeedDirectory
from cslr.bench.scoring import Scored, score
from cslr.bench.streams import Stream
from cslr.bench.study import Study
from cslr.config import Config
from cslr.engines.simulation import Population
from cslr.errors import BudgetExceeded, ConfigError, PlanChanged
from cslr.privacy.accounting import ADVERSARIES, SCOPES, Scope, epsilon_of
from cslr.privacy.keys import EphemeralKeys, SeededKeys
from cslr.privacy.ledger import Federation, Ledger
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate
from cslr.seeding import Seeds
from cslr.types import BoolArray, FloatArray, IntArray

__all__ = ["Step", "run"]

Step = Callable[[str, int, int], None]
"""Told of every step: what, how many are done, how many there are."""


def run(config: Config, study: Study, directory: RunDirectory, on_step: Step) -> Result:
    """Everything the configuration asks for, from the trace where it is already there."""
    started = time.perf_counter()
    _check_privacy(config)
    method = method_named(config.method)
    plan = _plan(config, study.stream)
    populations = [_population(config, study, seed) for seed in config.seeds]
    if config.privacy.mode == "enforced" and method.reads == "privately":
        with _ledger(config, config.method, config.seeds[0], directory) as ledger:
            _check_affordable(ledger, plan, directory.seed(config.seeds[0]))
    directory.begin()
    names = [config.method, *[name for name in _beside(config) if name != config.method]]
    rows = len(study.stream.tasks) + 1
    total, done = len(config.seeds) * len(names) * rows, 0
    for seed, population in zip(config.seeds, populations, strict=True):
        _note_partition(directory, study, population, seed)
        for name in names:
            with _ledger(config, name, seed, directory) as ledger:
                setting = _setting(config, study, population, seed, plan, ledger, directory, name)
                for after, stage in enumerate(method_named(name).stages(setting)):
                    on_step(f"seed {seed} · {name} · after {after} tasks", done, total)
                    if directory.find(kind="row", seed=seed, method=name, after=after) is None:
                        _finish_row(directory, study, setting, stage, name, after)
                    done += 1
                if name == config.method:
                    _note_cost(directory, ledger, plan, seed)
    Model.of(config, study).save(directory.path)
    if directory.find(kind="finished") is None:
        seconds = study.seconds + time.perf_counter() - started
        directory.note(kind="finished", seconds=round(seconds, 3))
    on_step("done", total, total)
    return collect(config, directory, study.stream)


def _check_privacy(config: Config) -> None:
    """Nobody's own rows are read without noise, and nothing is noted about who holds them."""
    method = method_named(config.method)
    if config.privacy.mode == "enforced" and method.reads == "openly":
        raise ConfigError(
            f"method {config.method!r} reads rows without noise, so it cannot be run where privacy "
            f"is enforced; use --method cslr"
        )
    if config.privacy.mode == "enforced" and method.settled(config).head.kind == "federated":
        raise ConfigError(
            "a federated head sends updates without noise, so it cannot be run where privacy is "
            "enforced; use --head released or --head dp-fedavg"
        )
    if is_own(config.stream) and config.privacy.mode != "enforced":
        raise ValueError("config must be completed (own_run.complete) before own rows are read")


def _beside(config: Config) -> tuple[str, ...]:
    """The yardsticks of a run: those without noise only where nobody is to be protected.

    Zero-shot is never left out: forward transfer is measured against it.
    """
    if not config.yardsticks:
        return ("zero-shot",)
    enforced = config.privacy.mode == "enforced"
    return tuple(
        name for name in YARDSTICKS if not (enforced and method_named(name).reads == "openly")
    )


def _plan(config: Config, stream: Stream) -> Plan:
    """The noise that follows from the promise; none is needed where nothing is released."""
    privacy, method = config.privacy, method_named(config.method)
    private = method.reads == "privately"
    settled = method.settled(config)
    return calibrate(
        Budget(privacy.epsilon if private else math.inf, privacy.delta, privacy.adversary),
        len(stream.tasks),
        privacy.participation,
        privacy.cap or stream.cap,
        method.schedule(settled) if private else Schedule(),
        settled.head.participation or privacy.participation,
    )


def _population(config: Config, study: Study, seed: int) -> Population:
    """Who holds which examples: simulated for a study, given with one's own data."""
    clients, rows = hold(study.stream, config.stream, Seeds(seed).at("partition"))
    train = study.train
    lengths = np.diff(train.starts)[rows]
    first = np.repeat(train.starts[rows] - np.cumsum(lengths) + lengths, lengths)
    return Population(
        train.z,
        train.labels,
        train.tasks,
        np.repeat(clients, lengths),
        config.stream.clients or study.stream.clients,
        first + np.arange(lengths.sum()),
        train.targets,
        _kinds(study),
    )


def _kinds(study: Study) -> IntArray:
    """(n,) the true mode of each train example: what its stream knows of it, else its label."""
    known = study.stream.train.kinds
    return study.train.labels if known is None else known[study.train.rows]


def _note_partition(
    directory: RunDirectory, study: Study, population: Population, seed: int
) -> None:
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


def _ledger(config: Config, method: str, seed: int, directory: RunDirectory) -> Ledger:
    """The run's own ledger if privacy is simulated, the federation's if it is enforced."""
    privacy = config.privacy
    known = method_named(method)
    epsilon = math.inf if known.reads == "openly" else privacy.budget or privacy.epsilon
    federated = known.settled(config).head.kind == "federated"
    scope: Scope = "replay" if federated else "end_to_end"
    budget = Budget(epsilon, privacy.delta, privacy.adversary, scope)
    name = config.stream.name
    if method != config.method:
        federation = Federation(name, Budget(math.inf, privacy.delta), "simulated")
        return Ledger.in_memory(federation, SeededKeys(Seeds(seed)))
    federation = Federation(name, budget, privacy.mode)
    if privacy.mode == "enforced" and privacy.federation is not None:
        keys = EphemeralKeys(privacy.federation / "keys")
        return Ledger.at(privacy.federation / "ledger.jsonl", federation, keys)
    path = directory.seed(seed).path / "ledger.jsonl"
    return Ledger.at(path, federation, SeededKeys(Seeds(seed)))


def _check_affordable(ledger: Ledger, plan: Plan, kept: SeedDirectory) -> None:
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
    settled = {
        record["body"]["attempt"] for record in ledger.records if record["kind"] == "settled"
    }
    open_ = {charge.label for place, charge in enumerate(ledger.charges) if place not in settled}
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


def _setting(
    config: Config,
    study: Study,
    population: Population,
    seed: int,
    plan: Plan,
    ledger: Ledger,
    directory: RunDirectory,
    method: str | None = None,
) -> Setting:
    stream = study.stream
    config = method_named(method or config.method).settled(config)
    return Setting(
        population=population,
        tasks=tuple(task.labels for task in stream.tasks),
        family=study.family,
        label_texts=study.label_texts,
        topics=study.topics,
        public=study.public,
        encoder=study.encoder,
        replay=config.replay,
        head=config.head,
        effort=config.effort,
        plan=plan,
        ledger=ledger,
        seeds=Seeds(seed),
        test_shares=_shares(study),
        keep=directory.seed(seed),
    )


def _shares(study: Study) -> FloatArray:
    """(T, c) each label's share of the test examples of a task."""
    counts = np.zeros((len(study.stream.tasks), study.family.labels))
    np.add.at(counts, (study.test.tasks, study.test.labels), 1.0)
    shares: FloatArray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return shares


def _finish_row(
    directory: RunDirectory, study: Study, setting: Setting, stage: Stage, method: str, after: int
) -> None:
    """Learn, keep what was learnt, evaluate the row a[after, ·], and trace it."""
    begun = time.perf_counter()
    learnt = stage()
    seed = setting.seeds.seed
    scenario = study.stream.scenario(directory.config.stream.scenario)
    if method == directory.config.method:
        for file, arrays in learnt.artefacts.items():
            directory.seed(seed).save_arrays(file, arrays)
    seen = setting.seen(after) if after else np.ones(setting.labels, dtype=np.bool_)
    allowed = [_allowed(scenario, setting, after, task) for task in range(len(setting.tasks))]
    scored = _scored(study, learnt, allowed, seen)
    more = dict(scored.more)
    if learnt.personal and after == len(setting.tasks):
        more["personal"] = _personal(study, setting, learnt, allowed, seen)
    step: dict[str, object] = {"seed": seed, "method": method, "after": after}
    if learnt.diagnosis and directory.find(kind="diagnosis", **step) is None:
        measured = {name: _plain(value) for name, value in learnt.diagnosis.items()}
        directory.note(kind="diagnosis", **step, **measured)
    directory.note(
        kind="row",
        seed=seed,
        method=method,
        after=after,
        scores=[_plain(value) for value in scored.tasks],
        labels=[_plain(value) for value in scored.labels],
        more={name: _plain(value) for name, value in more.items()},
        seconds=round(time.perf_counter() - begun, 3),
    )


def _personal(
    study: Study, setting: Setting, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray
) -> float:
    """The mean over clients of each one's own model on the tasks it holds."""
    population, means = setting.population, []
    for client, scorer in learnt.personal:
        held = np.unique(population.tasks[population.held[population.clients == client]])
        scored = _scored(study, Learnt(scorer), allowed, seen)
        means.append(float(np.nanmean(np.array(scored.tasks)[held])))
    return float(np.mean(means))


def _scored(study: Study, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray) -> Scored:
    """Nothing is known about a task without test rows."""
    if not len(study.stream.test):
        return Scored([math.nan] * len(allowed), [math.nan] * len(seen), {})
    scored = score(study, learnt.scores(study.test.z), allowed, seen)
    tested = np.isin(np.arange(len(allowed)), study.stream.test.tasks)
    return replace(scored, tasks=np.where(tested, scored.tasks, math.nan).tolist())


def _allowed(scenario: str, setting: Setting, after: int, task: int) -> BoolArray:
    """(c,) the labels an answer may have.

    class: those seen so far, or all of them on a task not seen yet (forward transfer);
    domain: all of them; task: those of the task.
    """
    if scenario == "task":
        allowed = np.zeros(setting.labels, dtype=np.bool_)
        allowed[list(setting.tasks[task])] = True
        return allowed
    if scenario == "class" and task < after:
        return setting.seen(after)
    return np.ones(setting.labels, dtype=np.bool_)


def _note_cost(directory: RunDirectory, ledger: Ledger, plan: Plan, seed: int) -> None:
    """Copy what the ledger says into the trace; no other ε is ever printed."""
    if directory.find(kind="cost", seed=seed) is None:
        epsilon = {
            scope: {who: _plain(ledger.epsilon(scope, who)) for who in ADVERSARIES}
            for scope in SCOPES
        }
        directory.note(
            kind="cost", seed=seed, epsilon=epsilon, sigma=plan.sigma, releases=len(ledger.charges)
        )


def _plain(value: float) -> float | None:
    """JSON has neither NaN nor ∞."""
    return value if math.isfinite(value) else None

"""Run a configuration: every seed, the method and its yardsticks, one traced step at a time.

A step is a row of the accuracy matrix. Finished steps stand in the trace, so an interrupted run
goes on where it stopped, and every figure can be made again from the trace alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from cslr.baselines.setting import Setting, Stage
from cslr.bench.methods import NON_PRIVATE, YARDSTICKS, method_named
from cslr.bench.metrics import accuracy
from cslr.bench.partition import describe_partition, dirichlet_partition
from cslr.bench.results import Result, collect
from cslr.bench.rundir import RunDirectory
from cslr.bench.study import Study
from cslr.config import Config
from cslr.engines.simulation import Population
from cslr.privacy.accounting import ADVERSARIES, SCOPES
from cslr.privacy.keys import EphemeralKeys, SeededKeys
from cslr.privacy.ledger import Federation, Ledger
from cslr.privacy.plan import Budget, Plan, calibrate
from cslr.seeding import Seeds
from cslr.types import BoolArray

__all__ = ["Step", "run"]

Step = Callable[[str, int, int], None]
"""Told of every step: what, how many are done, how many there are."""


def run(config: Config, study: Study, directory: RunDirectory, on_step: Step) -> Result:
    """Everything the configuration asks for, from the trace where it is already there."""
    started = time.perf_counter()
    plan = _plan(config, len(study.stream.tasks))
    populations = [_population(config, study, seed) for seed in config.seeds]
    directory.begin()
    # Zero-shot is never left out: forward transfer is measured against it.
    beside = YARDSTICKS if config.yardsticks else ("zero-shot",)
    names = [config.method, *[name for name in beside if name != config.method]]
    rows = len(study.stream.tasks) + 1
    total, done = len(config.seeds) * len(names) * rows, 0
    for seed, population in zip(config.seeds, populations, strict=True):
        _note_partition(directory, study, population, seed)
        for name in names:
            with _ledger(config, name, seed, directory) as ledger:
                setting = _setting(config, study, population, seed, plan, ledger, directory)
                for after, stage in enumerate(method_named(name)(setting)):
                    on_step(f"seed {seed} · {name} · after {after} tasks", done, total)
                    if directory.find(kind="row", seed=seed, method=name, after=after) is None:
                        _finish_row(directory, study, setting, stage, name, after)
                    done += 1
                if name == config.method:
                    _note_cost(directory, ledger, plan, seed)
    if directory.find(kind="finished") is None:
        seconds = study.seconds + time.perf_counter() - started
        directory.note(kind="finished", seconds=round(seconds, 3))
    on_step("done", total, total)
    return collect(config, directory, study.stream)


def _plan(config: Config, releases: int) -> Plan:
    """The noise that follows from the promise; none is needed where nothing is released."""
    privacy = config.privacy
    epsilon = privacy.epsilon if config.method == "cslr" else math.inf
    budget = Budget(epsilon, privacy.delta, privacy.adversary)
    return calibrate(budget, releases, privacy.participation, privacy.cap)


def _population(config: Config, study: Study, seed: int) -> Population:
    """Simulated clients: a Dirichlet partition of the train rows."""
    stream = study.stream
    clients = config.stream.clients or stream.clients
    alpha = config.stream.alpha or stream.alpha
    # Task and label together: in a domain stream every task shares out its labels anew.
    kinds = stream.train.tasks * len(stream.labels) + stream.train.labels
    owners = dirichlet_partition(
        kinds, clients, alpha, Seeds(seed).at("partition"), config.stream.min_rows
    )
    return Population(study.train, stream.train.labels, stream.train.tasks, owners, clients)


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
            realised=describe_partition(population.clients, population.labels, population.count),
        )


def _ledger(config: Config, method: str, seed: int, directory: RunDirectory) -> Ledger:
    """The run's own ledger if privacy is simulated, the federation's if it is enforced."""
    privacy = config.privacy
    epsilon = math.inf if method in NON_PRIVATE else privacy.epsilon
    budget = Budget(epsilon, privacy.delta, privacy.adversary)
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


def _setting(
    config: Config,
    study: Study,
    population: Population,
    seed: int,
    plan: Plan,
    ledger: Ledger,
    directory: RunDirectory,
) -> Setting:
    stream = study.stream
    return Setting(
        population=population,
        tasks=tuple(task.labels for task in stream.tasks),
        label_texts=study.label_texts,
        public=study.public,
        encoder=study.encoder,
        replay=config.replay,
        head=config.head,
        plan=plan,
        ledger=ledger,
        seeds=Seeds(seed),
        test_labels=stream.test.labels,
        test_tasks=stream.test.tasks,
        keep=directory.seed(seed),
    )


def _finish_row(
    directory: RunDirectory, study: Study, setting: Setting, stage: Stage, method: str, after: int
) -> None:
    """Learn, keep what was learnt, evaluate the row a[after, ·], and trace it.

    Also traced: each label's accuracy among the rows of all tasks.
    """
    begun = time.perf_counter()
    learnt = stage()
    seed, test = setting.seeds.seed, study.stream.test
    scenario = study.stream.scenario(directory.config.stream.scenario)
    if method == directory.config.method:
        for file, arrays in learnt.artefacts.items():
            directory.seed(seed).save_arrays(file, arrays)
    scores = learnt.scores(study.test)
    row = [
        accuracy(
            scores[test.tasks == task],
            test.labels[test.tasks == task],
            _allowed(scenario, setting, after, task),
        )
        for task in range(len(setting.tasks))
    ]
    seen = setting.seen(after) if after else np.ones(setting.labels, dtype=np.bool_)
    labels = [
        accuracy(scores[test.labels == label], test.labels[test.labels == label], seen)
        for label in range(setting.labels)
    ]
    directory.note(
        kind="row",
        seed=seed,
        method=method,
        after=after,
        scores=[_plain(value) for value in row],
        labels=[_plain(value) for value in labels],
        seconds=round(time.perf_counter() - begun, 3),
    )


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
